//! A sandbox with sessions in it.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lariat_shim::client::{Client, Event};
use lariat_shim::record::{self, Exit, Launch, Shim};
use lariat_shim::wire::{Attach, Size};
use lariat_testkit::world::Process;
use lariat_testkit::{DEADLINE, Sandbox, Signal, built, wait_for, wait_until};

pub struct Place(Option<Sandbox>);

impl Place {
    pub fn new(name: &str) -> Place {
        let sandbox = Sandbox::new(name);
        sandbox.install("lariat-shim", &built("lariat-shim"));
        Place(Some(sandbox))
    }

    fn sessions(&self) -> PathBuf {
        self.state_dir().join("lariat/sessions")
    }

    pub fn session(&self, handle: &str, argv: &[&str]) -> Session<'_> {
        let folder = self.sessions().join(handle);
        fs::create_dir_all(&folder).unwrap();
        let door = self.runtime_dir().join("lariat");
        fs::create_dir_all(&door).unwrap();
        fs::set_permissions(&door, fs::Permissions::from_mode(0o700)).unwrap();
        let launch = Launch {
            version: record::VERSION,
            handle: handle.to_owned(),
            argv: argv.iter().map(|&a| a.to_owned()).collect(),
            cwd: self.work(),
            env: vec![("PATH".into(), std::env::var("PATH").unwrap())],
            headless: false,
            rows: 24,
            cols: 80,
            socket: door.join(handle),
            output: 4 << 20,
            after: None,
        };
        Session { place: self, folder, launch }
    }

    /// A session whose agent is a shell script.
    pub fn script(&self, handle: &str, script: &str) -> Session<'_> {
        self.session(handle, &["bash", "-c", script])
    }

    /// Processes of this short name.
    pub fn named(&self, comm: &str) -> Vec<Process> {
        self.processes().into_iter().filter(|p| p.comm == comm && p.state != 'Z').collect()
    }

    pub fn wait_for_quiet(&self) {
        wait_until("shims and keepers to be gone", DEADLINE, || {
            self.named("lariat-shim").is_empty() && self.named("lariat-keeper").is_empty()
        });
    }
}

impl Deref for Place {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        self.0.as_ref().unwrap()
    }
}

impl Drop for Place {
    /// Cgroups are the machine's: those of sessions that were cut off are taken away here.
    fn drop(&mut self) {
        let folders = fs::read_dir(self.sessions()).into_iter().flatten().flatten();
        let shims = folders.filter_map(|f| record::read::<Shim>(&f.path(), record::SHIM).ok().flatten());
        let cgroups: Vec<_> = shims.filter_map(|s| s.cgroup).collect();
        drop(self.0.take());
        for cgroup in cgroups {
            drop(fs::remove_dir(cgroup));
        }
    }
}

pub struct Session<'a> {
    pub place: &'a Place,
    pub folder: PathBuf,
    pub launch: Launch,
}

pub const SIZE: Size = Size { rows: 24, cols: 80 };
pub const ALL: u32 = u32::MAX;

impl Session<'_> {
    pub fn headless(mut self) -> Self {
        self.launch.headless = true;
        self
    }

    pub fn put_launch(&self) {
        fs::write(self.folder.join(record::LAUNCH), serde_json::to_vec(&self.launch).unwrap()).unwrap();
    }

    /// Runs a shim as a launcher does; gives what it said, nothing if it died without a word.
    pub fn run(&self, flags: &str, env: &[(&str, &str)]) -> String {
        let script = format!("lariat-shim __shim {flags} \"$0\" | cat");
        let mut program = self.place.program("sh").args(["-c", &script]).arg(&self.folder);
        for (name, value) in env {
            program = program.env(name, value);
        }
        self.place.world().run(&program).stdout.trim_end().to_owned()
    }

    /// Runs one that waits for the word to go, with what it is given, as `printf` writes it; `LAUNCH` is what stands
    /// in the launch record.
    pub fn run_given(&self, given: &str) -> String {
        let given = given.replace("LAUNCH", "'; cat \"$0/launch.json\"; printf '");
        let script = format!("{{ printf '{given}'; }} | lariat-shim __shim --when-told \"$0\" | cat");
        let program = self.place.program("sh").args(["-c", &script]).arg(&self.folder);
        self.place.world().run(&program).stdout.trim_end().to_owned()
    }

    /// Starts it; the launcher is dead when this returns.
    #[track_caller]
    pub fn start(&self) -> Shim {
        self.put_launch();
        assert_eq!(self.run("", &[]), "started");
        self.shim()
    }

    #[track_caller]
    pub fn shim(&self) -> Shim {
        record::read(&self.folder, record::SHIM).unwrap().expect("a shim record")
    }

    pub fn exit_now(&self) -> Option<Exit> {
        record::read(&self.folder, record::EXIT).unwrap()
    }

    #[track_caller]
    pub fn exit(&self) -> Exit {
        wait_for("an exit record", DEADLINE, || self.exit_now())
    }

    #[track_caller]
    pub fn process(&self, pid: u32) -> Process {
        self.place.world().process(pid.cast_signed()).expect("that process lives")
    }

    pub fn kill(&self, pid: u32) {
        assert!(self.process(pid).signal(Signal::KILL));
        wait_until("the killed to be gone", DEADLINE, || self.is_gone(pid));
    }

    pub fn is_gone(&self, pid: u32) -> bool {
        self.place.world().process(pid.cast_signed()).is_none_or(|p| p.state == 'Z')
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(&self.launch.socket).expect("the shim lets us in")
    }

    #[track_caller]
    pub fn attach(&self, size: Size) -> Viewer {
        let client = self.client();
        client.attach(Attach { size, watch: false, tail: ALL }).unwrap();
        Viewer { client, seen: Vec::new() }
    }

    #[track_caller]
    pub fn watch(&self, size: Size) -> Viewer {
        let client = self.client();
        client.attach(Attach { size, watch: true, tail: ALL }).unwrap();
        Viewer { client, seen: Vec::new() }
    }

    pub fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.join(name)).unwrap()
    }
}

/// One who looks.
pub struct Viewer {
    pub client: Client,
    pub seen: Vec<u8>,
}

impl Viewer {
    /// Reads until this was shown, counted from what an earlier wait has used up.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        let mut searched = 0;
        loop {
            let at = self.seen[searched..].windows(text.len()).position(|w| w == text.as_bytes());
            if let Some(at) = at {
                self.seen.drain(..searched + at + text.len());
                return;
            }
            searched = (self.seen.len() + 1).saturating_sub(text.len());
            match self.client.next().unwrap() {
                Event::Output(bytes) => self.seen.extend_from_slice(bytes),
                other => panic!(
                    "{other:?} before {text:?}; seen {:?}",
                    String::from_utf8_lossy(&self.seen[self.seen.len().saturating_sub(200)..])
                ),
            }
        }
    }

    /// Reads to the end; says how that was.
    pub fn rest(&mut self) -> Event<'static> {
        loop {
            match self.client.next().unwrap() {
                Event::Output(bytes) => self.seen.extend_from_slice(bytes),
                Event::Exited(exit) => return Event::Exited(exit),
                Event::Dropped(why) => return Event::Dropped(why),
                Event::Status(_) => {}
                Event::Closed => return Event::Closed,
            }
        }
    }

    pub fn type_text(&self, text: &str) {
        self.client.input(text.as_bytes()).unwrap();
    }
}

/// Whether this kernel tells how a process ended to one that is not its parent.
pub fn kernel_tells() -> bool {
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = version.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}

pub fn make_fifo(path: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
}
