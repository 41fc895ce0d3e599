//! The scripted model on its own, for demonstrations and for people.
//!
//! `lariat-model [--port N]` prints its address, then serves until it is killed. A `HOLD` can only
//! be released by a test, so here such a reply never comes. It never leaves loopback.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use lariat_testkit::Model;

const USAGE: &str = "usage: lariat-model [--port N]";
const WORDS: &str = "words: HOLD name, SLEEP s, TOOL cmd, BGTOOL cmd, PARALLEL a ;; b, WRITE path, \
                     ASK, PLAN, REPEAT, AGENT text, CALL name {json}, ESCALATE, FAIL code";

fn main() -> ExitCode {
    let mut port = 0;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next().and_then(|value| value.parse().ok())) {
            ("--port", Some(value)) => port = value,
            _ => {
                drop(writeln!(io::stderr(), "{USAGE}"));
                return ExitCode::from(2);
            }
        }
    }
    match serve(port) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "lariat-model: port {port}: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(port: u16) -> io::Result<()> {
    let model = Model::bind(port)?;
    let mut out = io::stdout();
    writeln!(out, "{}", model.url())?;
    writeln!(io::stderr(), "{WORDS}")?;
    out.flush()?;
    model.serve();
    Ok(())
}
