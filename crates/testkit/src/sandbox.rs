//! A place of its own for one test: HOME, XDG directories, a git project, a private `/tmp`, and a
//! [`World`] in which everything the test starts must live.
//!
//! The environment of a program in here holds only what [`Sandbox::new`] and [`Sandbox::env`] put
//! into it. Paths are the same inside and outside the world, `/tmp` aside. Dropping the sandbox
//! ends the world and removes the directory. A test process that was killed cannot do that; its
//! world ends all the same, and the directory, whose lock it held, is removed by a later test.
//!
//! ```text
//! ROOT/home            HOME; .config .cache .local/{state,share} are the XDG directories
//! ROOT/home/work/NAME  projects, each a git repository on main with one commit
//! ROOT/run             XDG_RUNTIME_DIR
//! ROOT/tmp             /tmp of the world
//! ROOT/bin             first on PATH
//! ROOT/streams         what programs wrote
//! ```

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    Child, Lookalike, Output, Program, Size, Terminal, World, copy_program, find_built, forking, workspace,
    world::{Ground, Process},
};

/// Where sandboxes are made, if set; otherwise in the user's cache directory.
pub const PLACE: &str = "LARIAT_SANDBOXES";

/// The longest root that leaves room for a socket's path (108 bytes) below it.
const LONGEST_ROOT: usize = 64;

/// One test's place. See the module.
pub struct Sandbox {
    world: Option<World>,
    root: PathBuf,
    env: Mutex<BTreeMap<String, String>>,
    boots: usize,
    /// Locked for as long as the test lives; see [`sweep`].
    _lock: File,
}

impl Sandbox {
    /// Makes a place and starts its world. The name only helps a person who looks.
    ///
    /// # Panics
    /// When the machine does not allow it; the message says what is needed.
    pub fn new(name: &str) -> Self {
        let (root, lock) = claim_root(name);
        assert!(
            root.as_os_str().len() <= LONGEST_ROOT,
            "{} is too long a path for unix sockets below it: set {PLACE} to a shorter place",
            root.display()
        );
        let home = root.join("home");
        let env = [
            ("HOME", home.clone()),
            ("XDG_CONFIG_HOME", home.join(".config")),
            ("XDG_STATE_HOME", home.join(".local/state")),
            ("XDG_DATA_HOME", home.join(".local/share")),
            ("XDG_CACHE_HOME", home.join(".cache")),
            ("XDG_RUNTIME_DIR", root.join("run")),
        ];
        for (_, folder) in &env {
            make_private(folder);
        }
        for folder in ["tmp", "bin", "streams"] {
            make_private(&root.join(folder));
        }
        let mut env: BTreeMap<String, String> =
            env.into_iter().map(|(name, path)| (name.to_owned(), utf8(&path))).collect();
        let path = std::env::var("PATH").expect("PATH");
        env.insert("PATH".into(), format!("{}:{path}", utf8(&root.join("bin"))));
        env.insert("LANG".into(), "C.UTF-8".into());
        env.insert("TERM".into(), "xterm-256color".into());
        env.insert("GIT_CONFIG_NOSYSTEM".into(), "1".into());
        fs::write(
            home.join(".gitconfig"),
            "[user]\n\tname = Dev\n\temail = dev@example.invalid\n[init]\n\tdefaultBranch = main\n\
             [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n",
        )
        .expect("a git configuration");
        let mut sandbox = Self { world: None, root, env: Mutex::new(env), boots: 0, _lock: lock };
        sandbox.project("proj");
        sandbox.world = Some(sandbox.start_world(None));
        if let Some(lariat) = find_built("lariat") {
            sandbox.install("lariat", &lariat);
        }
        sandbox
    }

    fn start_world(&self, boot_id: Option<&Path>) -> World {
        let programs = std::env::current_exe().expect("the path of the running test");
        let mut keep = vec![self.root.clone()];
        // The demo may be installed, and the sources gone since.
        keep.extend(Some(workspace().to_owned()).filter(|sources| sources.is_dir()));
        // target/PROFILE, where this test and the programs beside it are.
        keep.extend(programs.ancestors().nth(2).map(Path::to_owned));
        let agents = [crate::agents::PLACE, crate::agents::OPENCLAW_PLACE];
        keep.extend(agents.into_iter().filter_map(std::env::var_os).map(PathBuf::from));
        World::start(&Ground { tmp: &self.root.join("tmp"), streams: &self.root.join("streams"), boot_id, keep })
    }

    /// The world in which everything runs.
    pub fn world(&self) -> &World {
        self.world.as_ref().expect("a sandbox has a world from its start to its end")
    }

    /// Ends every process at once and goes on under another boot id, as a power cut and a start
    /// of the machine would, but with what was written still there.
    pub fn reboot(&mut self) {
        self.world = None;
        self.boots += 1;
        let file = self.root.join("boot_id");
        let number = self.boots;
        fs::write(&file, format!("b007b007-0000-4000-8000-{number:012x}\n")).expect("a boot id");
        for gone in ["tmp", "run"] {
            let folder = self.root.join(gone);
            fs::remove_dir_all(&folder).expect("what a reboot clears");
            make_private(&folder);
        }
        self.world = Some(self.start_world(Some(&file)));
    }

    /// The top of this place.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// HOME.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// XDG_RUNTIME_DIR.
    pub fn runtime_dir(&self) -> PathBuf {
        self.root.join("run")
    }

    /// XDG_STATE_HOME.
    pub fn state_dir(&self) -> PathBuf {
        self.home().join(".local/state")
    }

    /// The project that programs start in.
    pub fn work(&self) -> PathBuf {
        self.project_path("proj")
    }

    /// A project of this name: a git repository on main with one commit, made if it is not there.
    pub fn project(&self, name: &str) -> PathBuf {
        let path = self.project_path(name);
        if path.exists() {
            return path;
        }
        fs::create_dir_all(&path).expect("a project's directory");
        fs::write(path.join("README.md"), format!("# {name}\n")).expect("a project's first file");
        self.git(&path, &["init", "--quiet"]);
        self.git(&path, &["add", "."]);
        self.git(&path, &["commit", "--quiet", "--message", "First"]);
        path
    }

    fn project_path(&self, name: &str) -> PathBuf {
        self.home().join("work").join(name)
    }

    /// Runs git in a directory of this place, and returns what it wrote.
    ///
    /// # Panics
    /// When git fails.
    #[track_caller]
    pub fn git(&self, folder: &Path, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.current_dir(folder).args(args).env_clear().envs(&*self.environment());
        let output = forking::run(&mut git).expect("git can be run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?} in {}: {said}", folder.display());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn environment(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.env.lock().expect("no thread panics while it holds the environment")
    }

    /// Sets a variable for every program started from here on.
    pub fn env(&self, name: &str, value: impl AsRef<Path>) {
        self.environment().insert(name.to_owned(), utf8(value.as_ref()));
    }

    /// Takes a variable away from every program started from here on.
    pub fn without_env(&self, name: &str) {
        self.environment().remove(name);
    }

    /// Makes a program callable by this name, as a link to where it really is.
    pub fn install(&self, name: &str, program: &Path) {
        let link = self.root.join("bin").join(name);
        drop(fs::remove_file(&link));
        symlink(program, link).expect("a link in the sandbox's bin");
    }

    /// Puts a copy of a program under this name, so that its executable bears the name too.
    pub fn install_copy(&self, name: &str, program: &Path) -> PathBuf {
        let copy = self.root.join("bin").join(name);
        drop(fs::remove_file(&copy));
        fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder in the sandbox's bin");
        if fs::hard_link(program, &copy).is_err() {
            copy_program(program, &copy);
        }
        copy
    }

    /// A program with this place's environment, in the default project; to be spawned or run.
    pub fn program(&self, name: impl AsRef<Path>) -> Program {
        let program = Program::new(name, self.work());
        self.environment().iter().fold(program, |program, (name, value)| program.env(name, value))
    }

    /// Starts a program of this place.
    pub fn spawn(&self, program: &Program) -> Child {
        self.world().spawn(program)
    }

    /// Starts a program of this place on a terminal of the default size.
    pub fn terminal(&self, program: &Program) -> Terminal {
        Terminal::start(self.world(), program, Size::default())
    }

    /// Runs a command line to its end: `sandbox.run(["lariat", "ls", "--json"])`.
    ///
    /// # Panics
    /// When it does not end within [`DEADLINE`](crate::DEADLINE).
    #[track_caller]
    pub fn run<A: AsRef<Path>>(&self, argv: impl IntoIterator<Item = A>) -> Output {
        let mut argv = argv.into_iter();
        let program = self.program(argv.next().expect("a program to run")).args(argv);
        self.world().run(&program)
    }

    /// Starts a process that looks like this program; see [`Lookalike`].
    pub fn lookalike(&self, name: &str, args: &[&str]) -> Lookalike {
        Lookalike::start(self, &Lookalike::program(self, name).args(args))
    }

    /// Every process in the world.
    pub fn processes(&self) -> Vec<Process> {
        self.world().processes()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.world = None;
        if std::env::var_os("LARIAT_KEEP_SANDBOXES").is_none() {
            remove(&self.root);
        }
    }
}

fn utf8(path: &Path) -> String {
    path.to_str().expect("a sandbox has UTF-8 paths").to_owned()
}

fn make_private(folder: &Path) {
    fs::create_dir_all(folder).expect("a directory of the sandbox");
    fs::set_permissions(folder, Permissions::from_mode(0o700)).expect("a private directory");
}

/// Removes a sandbox's directory. What is left, if anything, the next sweep finds.
fn remove(root: &Path) {
    drop(fs::remove_dir_all(root));
}

/// A new directory of our own, locked.
fn claim_root(name: &str) -> (PathBuf, File) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let place = place();
    fs::create_dir_all(&place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    // Held while making and sweeping, so that nobody sweeps a place that is not locked yet.
    let door = File::create(place.join(".door")).expect("the lock on all sandboxes");
    door.lock().expect("the lock on all sandboxes");
    sweep(&place);
    let short: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(16).collect();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let root = place.join(format!("{short}-{}-{number}", std::process::id()));
    make_private(&root);
    let lock = File::create(root.join(".lock")).expect("the lock on a sandbox");
    lock.try_lock().expect("a sandbox nobody else has");
    (root, lock)
}

fn place() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let place = set(PLACE)
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("lariat-testkit")))
        .or_else(|| Some(set("HOME")?.join(".cache/lariat-testkit")))
        .unwrap_or_else(|| panic!("set {PLACE} to a directory for the tests' sandboxes"));
    fs::create_dir_all(&place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    place.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", place.display()))
}

/// Removes what killed tests left: every sandbox whose lock nobody holds.
fn sweep(place: &Path) {
    if std::env::var_os("LARIAT_KEEP_SANDBOXES").is_some() {
        return;
    }
    for entry in fs::read_dir(place).expect("the place of sandboxes").flatten() {
        let root = entry.path();
        let free = match File::open(root.join(".lock")) {
            Ok(lock) => lock.try_lock().is_ok(),
            Err(error) => error.kind() == ErrorKind::NotFound && is_dir(&root).unwrap_or(false),
        };
        if free {
            remove(&root);
        }
    }
}

fn is_dir(path: &Path) -> io::Result<bool> {
    Ok(fs::symlink_metadata(path)?.is_dir())
}
