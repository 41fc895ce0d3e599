//! What is run in a world, and what it leaves.
//!
//! Plain values: nothing here starts or waits for anything.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::Signal;

/// What to run, in the manner of [`std::process::Command`], but with nothing inherited.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) argv: Vec<String>,
    pub(super) arg0: Option<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: PathBuf,
    pub(super) stdin: Stdin,
}

/// Where a program's input comes from.
#[derive(Debug, Clone, Default)]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// A pipe whose other end the [`Child`](crate::Child) holds.
    Pipe,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
}

impl Program {
    /// A program found on the `PATH` of its own environment, or by its path.
    pub fn new(program: impl AsRef<Path>, cwd: impl AsRef<Path>) -> Self {
        Self {
            argv: vec![text(program.as_ref())],
            arg0: None,
            env: BTreeMap::new(),
            cwd: cwd.as_ref().to_owned(),
            stdin: Stdin::Null,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<Path>) -> Self {
        self.argv.push(text(arg.as_ref()));
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(self, args: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    /// Sets the name the program is called by, without changing which it is.
    #[must_use]
    pub fn arg0(mut self, name: &str) -> Self {
        self.arg0 = Some(name.to_owned());
        self
    }

    /// Sets one variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<Path>) -> Self {
        self.env.insert(name.to_owned(), text(value.as_ref()));
        self
    }

    /// Takes one variable out of its environment.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    /// Sets the directory it starts in.
    #[must_use]
    pub fn cwd(mut self, cwd: impl AsRef<Path>) -> Self {
        self.cwd = cwd.as_ref().to_owned();
        self
    }

    /// Starts it with these signals ignored. (By way of bash, which can say so safely.)
    #[must_use]
    pub fn ignoring(mut self, signals: &[Signal]) -> Self {
        let numbers: Vec<_> = signals.iter().map(|signal| signal.as_raw().to_string()).collect();
        let trap = format!("trap '' {}; exec -a \"$0\" \"$@\"", numbers.join(" "));
        let name = self.arg0.take().unwrap_or_else(|| self.argv[0].clone());
        self.argv.splice(0..0, ["bash".to_owned(), "-c".to_owned(), trap, name]);
        self
    }

    /// Sets where its input comes from.
    #[must_use]
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }
}

pub(super) fn text(path: &Path) -> String {
    path.to_str().expect("tests use paths and arguments that are UTF-8").to_owned()
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// Whether it ended by itself and well.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

/// What a program that ran to its end left.
#[derive(Debug, Clone)]
pub struct Output {
    /// How it ended.
    pub exit: Exit,
    /// What it wrote.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl Output {
    /// The exit code.
    ///
    /// # Panics
    /// When a signal ended it.
    #[track_caller]
    pub fn code(&self) -> i32 {
        match self.exit {
            Exit::Code(code) => code,
            Exit::Signal(signal) => panic!("ended by signal {signal}; {self:?}"),
        }
    }

    /// Itself, if it ended well.
    ///
    /// # Panics
    /// When it did not; the message holds all it said.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.exit.success(), "{:?}\n{}\n{}", self.exit, self.stdout, self.stderr);
        self
    }

    /// Its output as one JSON value.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("not JSON: {e}; {self:?}"))
    }
}
