//! PID 1 of a test's private world: the program `lariat-world`.
//!
//! It makes `/tmp` private, starts what the test asks for, reaps whatever is left to it, and tells
//! the test how each of its own children ended. When the test's end of the socket closes, for
//! whatever reason, it exits, and the kernel ends everything else in the namespace with it.
//!
//! It never signals anything, keeps no file, and has no opinion on what it runs.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    mount::{mount_bind, mount_bind_recursive},
    process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid},
};
use serde_json::{Value, json};

use super::wire;
use crate::wait::wait_briefly;

/// The whole program: `--init` as PID 1, `--stage` on the way from there to a program.
pub fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let result = match args.next().and_then(|mode| mode.into_string().ok()).as_deref() {
        Some("--init") => init(args),
        Some("--stage") => Err(stage(args)),
        _ => Err(io::Error::other("this program is started by the tests, not by hand")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use io::Write;
            drop(writeln!(io::stderr(), "lariat-world: {error}"));
            // What a shell says when a program cannot be run.
            ExitCode::from(127)
        }
    }
}

/// Arguments: the directory to mount on `/tmp`, a boot id file or nothing, then the paths that
/// must stay visible.
fn init(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let tmp = PathBuf::from(args.next().unwrap_or_default());
    let boot_id = args.next().filter(|path| !path.is_empty());
    let keep: Vec<PathBuf> = args.map(PathBuf::from).collect();
    private_tmp(&tmp, &keep).map_err(|e| io::Error::new(e.kind(), format!("mounting a private /tmp: {e}")))?;
    if let Some(boot_id) = boot_id {
        mount_bind(boot_id.as_os_str(), "/proc/sys/kernel/random/boot_id")?;
    }

    let stdin = io::stdin();
    let link = stdin.as_fd();
    let me = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    wire::send(link, &json!({"ready": wire::PROTOCOL}), &[me.as_fd()])?;

    let children = Arc::new(Children::default());
    thread::spawn({
        let children = Arc::clone(&children);
        move || children.reap()
    });
    while let Some((packet, fds)) = wire::receive(link)? {
        children.spawn(&packet, fds)?;
    }
    Ok(())
}

/// Puts `tmp` in the place of `/tmp`, and the kept paths that were in there back into it.
fn private_tmp(tmp: &Path, keep: &[PathBuf]) -> io::Result<()> {
    let shared = Path::new("/tmp");
    let mut kept = Vec::new();
    for path in keep.iter().filter(|path| path.starts_with(shared)) {
        kept.push((path, open_path(path)?));
    }
    mount_bind(through(&open_path(tmp)?), shared)?;
    for (path, before) in kept {
        fs::create_dir_all(path)?;
        mount_bind_recursive(through(&before), path.as_path())?;
    }
    Ok(())
}

fn open_path(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|e| io::Error::new(io::Error::from(e).kind(), format!("{}: {e}", path.display())))
}

fn through(fd: &OwnedFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// The children the test asked for, as opposed to the orphans that come here to be reaped.
#[derive(Default)]
struct Children {
    pids: Mutex<HashSet<i32>>,
    some: Condvar,
}

const POISON: &str = "no thread of the world panics while it holds the children";

impl Children {
    fn spawn(&self, packet: &Value, fds: Vec<OwnedFd>) -> io::Result<()> {
        // Held throughout, so that the exit is told after the start, however short the life.
        let mut pids = self.pids.lock().expect(POISON);
        let stdin = io::stdin();
        match start(packet, fds).and_then(|pid| {
            let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
            Ok((pid, pidfd))
        }) {
            Ok((pid, pidfd)) => {
                pids.insert(pid.as_raw_nonzero().get());
                let answer = json!({"spawned": pid.as_raw_nonzero().get()});
                wire::send(stdin.as_fd(), &answer, &[pidfd.as_fd()])?;
                self.some.notify_all();
            }
            Err(error) => {
                wire::send(stdin.as_fd(), &json!({"refused": error.to_string()}), &[])?;
            }
        }
        Ok(())
    }

    fn reap(&self) {
        let stdin = io::stdin();
        loop {
            // Looks first and takes later, so that a child that is just being started keeps its
            // pid until the test has been told of it.
            match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Err(Errno::CHILD) => {
                    let pids = self.pids.lock().expect(POISON);
                    drop(self.some.wait_while(pids, |pids| pids.is_empty()).expect(POISON));
                }
                _ => {
                    let mut pids = self.pids.lock().expect(POISON);
                    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                        let pid = pid.as_raw_nonzero().get();
                        if pids.remove(&pid) {
                            // A test that is gone needs no answer.
                            drop(wire::send(stdin.as_fd(), &ending(pid, status), &[]));
                        }
                    }
                }
            }
        }
    }
}

fn ending(pid: i32, status: WaitStatus) -> Value {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => json!({"exited": pid, "code": code}),
        (_, signal) => json!({"exited": pid, "signal": signal}),
    }
}

/// Starts this same program in `--stage`, which becomes the one that was asked for. So a spawn
/// here never fails half-way, and std never waits for a child that the reaper took.
fn start(packet: &Value, fds: Vec<OwnedFd>) -> io::Result<Pid> {
    let [stdin, stdout, stderr]: [OwnedFd; 3] =
        fds.try_into().map_err(|_| io::Error::other("three standard streams are needed"))?;
    let spawn = &packet["spawn"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut command = Command::new("/proc/self/exe");
    command.arg("--stage").arg(text(&spawn["cwd"])).arg(text(&spawn["arg0"]));
    command.arg(if spawn["tty"] == true { "tty" } else { "" });
    command.args(spawn["argv"].as_array().into_iter().flatten().map(text)).env_clear();
    for (name, value) in spawn["env"].as_object().into_iter().flatten() {
        command.env(name, text(value));
    }
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    let child = command.spawn()?;
    // The test may look at it or signal it as soon as it knows it: by then it is the program, and has its arguments, which
    // the kernel puts there a moment later.
    let stage = fs::read_link("/proc/self/exe")?;
    let [exe, cmdline] = ["exe", "cmdline"].map(|what| format!("/proc/{}/{what}", child.id()));
    wait_briefly("a program to replace its stage", || match fs::read_link(&exe) {
        Ok(exe) => exe != stage && fs::read(&cmdline).is_ok_and(|words| !words.is_empty()),
        Err(_) => true, // it has ended already
    });
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("a child without a pid"))
}

/// Leads a session of its own, takes the terminal if there is one, and becomes the program.
fn stage(mut args: impl Iterator<Item = OsString>) -> io::Error {
    let [cwd, arg0, tty, program] = [(); 4].map(|()| args.next().unwrap_or_default());
    let ready = || -> io::Result<()> {
        rustix::process::setsid()?;
        if tty == "tty" {
            rustix::process::ioctl_tiocsctty(io::stdin())?;
        }
        std::env::set_current_dir(&cwd)
    };
    if let Err(error) = ready() {
        return io::Error::new(error.kind(), format!("{}: {error}", cwd.display()));
    }
    let mut command = Command::new(&program);
    command.args(args);
    if !arg0.is_empty() {
        command.arg0(arg0);
    }
    let error = command.exec();
    io::Error::new(error.kind(), format!("{}: {error}", program.display()))
}
