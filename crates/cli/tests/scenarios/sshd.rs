//! A real sshd on loopback, whose machine is a sandbox. HOME and all that follows from it are the sandbox's, by the
//! daemon's own settings: nothing of the machine's is looked at.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use lariat_testkit::{Child, DEADLINE, Sandbox, wait_for, wait_until};

/// Whether sshd can serve here: without root it can only be what it is started as, and in a user namespace of one
/// user it cannot even give up what it has not.
pub fn can_serve() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let root = rustix::process::geteuid().is_root() && !map.trim_end().ends_with(" 1");
    if !root {
        println!("skipped: sshd wants to be root");
    }
    root
}

/// One that serves.
pub struct Sshd {
    pub process: Child,
    port: u16,
    /// The machine's own key.
    key: String,
    user: String,
}

impl Sshd {
    /// Lets in whoever has the key that is `allowed`.
    pub fn start(sandbox: &Sandbox, allowed: &Path) -> Sshd {
        let key = make_key(sandbox, "sshd-key");
        // A machine does not see the files of another.
        let keys = sandbox.root().join("allowed");
        fs::copy(allowed, &keys).expect("who may come in");
        // Where sshd puts a part of itself.
        sandbox.run(["sh", "-c", "mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd"]).expect_success();
        let own = [
            format!("HOME={}", sandbox.home().display()),
            format!("PATH={}:/usr/bin:/bin", sandbox.root().join("bin").display()),
            "LANG=C.UTF-8".into(),
            format!("XDG_RUNTIME_DIR={}", sandbox.runtime_dir().display()),
            format!("XDG_STATE_HOME={}", sandbox.state_dir().display()),
        ];
        let settings = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             PermitRootLogin prohibit-password\nPrintMotd no\nPrintLastLog no\nSetEnv {}\n",
            key.display(),
            keys.display(),
            own.join(" ")
        );
        let config = sandbox.root().join("sshd_config");
        fs::write(&config, settings).expect("settings");
        let (process, port) = wait_for("a port for sshd", DEADLINE, || {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a port").port();
            let sshd = sandbox.program("/usr/sbin/sshd").args(["-D", "-e", "-f"]).arg(&config);
            let sshd = sandbox.spawn(&sshd.arg(format!("-oListenAddress=127.0.0.1:{free}")));
            wait_until("sshd listens, or cannot", DEADLINE, || {
                sshd.exit().is_some() || sshd.stderr().contains("Server listening")
            });
            assert!(sshd.exit().is_none() || sshd.stderr().contains("in use"), "{}", sshd.stderr());
            sshd.exit().is_none().then_some((sshd, free))
        });
        let key = fs::read_to_string(key.with_extension("pub")).expect("its key");
        let user = sandbox.run(["id", "-un"]).stdout.trim().to_owned();
        Sshd { process, port, key, user }
    }

    /// Its line in a file of known hosts.
    pub fn known(&self) -> String {
        format!("[127.0.0.1]:{} {}", self.port, self.key)
    }

    /// Its part of an ssh configuration.
    pub fn entry(&self, name: &str, identity: &Path, known: &Path) -> String {
        format!(
            "Host {name}\n HostName 127.0.0.1\n Port {}\n User {}\n IdentityFile {}\n IdentitiesOnly yes\n \
             UserKnownHostsFile {}\n GlobalKnownHostsFile /dev/null\n",
            self.port,
            self.user,
            identity.display(),
            known.display()
        )
    }
}

/// A key without a password; the public one is beside it.
pub fn make_key(sandbox: &Sandbox, name: &str) -> PathBuf {
    let path = sandbox.root().join(name);
    sandbox.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path.to_str().expect("UTF-8")]).expect_success();
    path
}
