//! `lariat demo`: the program beside ours that shows lariat on scripted agents, in a world of its own.
//!
//! The scripted agents are no part of this program: what supervises real ones carries none that play.

use std::os::unix::process::CommandExt as _;

use anyhow::{Context as _, anyhow};
use lariat_sys::process::own_program;

use crate::Done;
use crate::args::{Common, Demo};
use crate::output::Failure;

const PROGRAM: &str = "lariat-demo";

/// Becomes that program.
pub fn run(args: &Demo, common: &Common) -> Done {
    if common.json {
        return Err(Failure::Usage("demo is for people; it tells nothing in JSON".into()));
    }
    let program = own_program().context("where this program is")?.with_file_name(PROGRAM);
    #[expect(clippy::disallowed_methods, reason = "the demo, which the user asked for")]
    let mut command = std::process::Command::new(&program);
    let error = command.args(args.tour.then_some("--tour")).exec();
    let next = "`make install` puts it there, and `make demo` in lariat's sources shows it without that";
    Err(anyhow!("{}: {error}; {next}", program.display()).into())
}
