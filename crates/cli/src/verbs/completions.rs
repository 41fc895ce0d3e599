//! `lariat completions`: a script for a shell.

use clap::CommandFactory as _;

use crate::Done;
use crate::args::Cli;
use crate::output::Out;

pub fn run(shell: clap_complete::Shell, out: &mut Out) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lariat", &mut script);
    out.raw(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
