//! `lariat top`: the terminal screen. See [`crate::tui`].

use crate::Done;
use crate::args::Common;
use crate::output::Failure;
use crate::tui;

pub fn run(common: &Common) -> Done {
    if common.json {
        return Err(Failure::Usage(
            "top is for people; `lariat ls --json` and `lariat events` are for programs".into(),
        ));
    }
    tui::run(common)
}
