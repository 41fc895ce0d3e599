//! From words to what was asked; and the nearest right word for a wrong one.
//!
//! clap names verbs or flags only if they are much like what was typed, and aliases of one letter among them. A person who
//! typed `frobnicate` is helped by the nearest one too, so every error gets that here.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::process::exit;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Args as _, Command, CommandFactory as _, FromArgMatches as _, Parser as _};
use lariat_core::Untrusted;

use super::{Cli, Common, Launch, Ls, Verb};
use crate::output::{Out, complain};

/// No command line is longer.
const LONGEST: u64 = 8 << 20;

/// What was asked, and in which words.
pub struct Asked {
    pub cli: Cli,
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// They came by standard input.
    pub by_input: bool,
}

/// What was asked, or an error on the terminal and the end.
pub fn parse() -> Asked {
    let (words, by_input) = words();
    let cli = launch(&words).unwrap_or_else(|| {
        Cli::try_parse_from(&words).or_else(|error| help_of_help(&words, error)).unwrap_or_else(|error| {
            let typed: Vec<String> = words.iter().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
            let mut cli = Cli::command();
            cli.build();
            refuse(suggest(error, &cli, &typed), &typed)
        })
    });
    if let (Some(_), Some(option)) = (&cli.verb, cli.ls.given()) {
        let typed: Vec<String> = words.iter().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
        let text = format!("'{option}' has no effect before the verb; put it after the verb");
        refuse(Cli::command().error(ErrorKind::ArgumentConflict, text), &typed)
    }
    Asked { cli, words, by_input }
}

/// What these words ask, if they are understood.
pub fn understood(words: &[OsString]) -> Option<Cli> {
    Cli::try_parse_from(words).ok()
}

/// The verb `help` knows no flag, not even the one that every other verb knows.
fn help_of_help(words: &[OsString], error: Error) -> Result<Cli, Error> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(wrong)) if wrong == "--help" || wrong == "-h" => {
            Cli::try_parse_from(words.iter().filter(|word| *word != wrong.as_str()))
        }
        _ => Err(error),
    }
}

/// Tells what was not understood, also as an object where JSON was asked for, and ends; or shows the help that was
/// asked for.
fn refuse(error: Error, typed: &[String]) -> ! {
    if error.use_stderr() {
        let code = error.exit_code();
        let told = escaped(error).render().to_string();
        let json = typed.iter().take_while(|word| *word != "--").any(|word| word == "--json");
        if json {
            let text = told.split("\n\nUsage:").next().unwrap_or(&told);
            let text = text.split("\n\nFor more information").next().unwrap_or(text);
            Out::new(true).failed(2, text.trim_start_matches("error: ").trim());
        }
        complain(told.trim_end());
        exit(code);
    }
    match error.print() {
        // Help that nobody got; but a reader that went away wanted no more.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            complain(format_args!("lariat: standard output: {e}"));
            exit(1)
        }
        _ => exit(error.exit_code()),
    }
}

/// The error, with what it quotes as it may be shown: as text without colours it would lose escapes without a trace.
fn escaped(mut error: Error) -> Error {
    let row = |text: &String| Untrusted::new(text.as_str()).row();
    let quoted = |(kind, value): (ContextKind, &ContextValue)| match value {
        ContextValue::String(text) => Some((kind, ContextValue::String(row(text)))),
        ContextValue::Strings(texts) => Some((kind, ContextValue::Strings(texts.iter().map(row).collect()))),
        _ => None,
    };
    let quoted: Vec<_> = error.context().filter_map(quoted).collect();
    for (kind, value) in quoted {
        error.insert(kind, value);
    }
    error
}

/// A launch that is asked for without a mistake: a launch is short, and to build what all the other
/// verbs take is a good part of it. Everything else, help too, is told by the whole.
fn launch(words: &[OsString]) -> Option<Cli> {
    words.get(1).filter(|verb| *verb == "launch" || *verb == "run")?;
    let verb = Launch::augment_args(Command::new("launch")).alias("run");
    let command = Common::augment_args(Command::new("lariat")).subcommand(verb);
    let told = command.try_get_matches_from(words).ok()?;
    let launch = Launch::from_arg_matches(told.subcommand_matches("launch")?).ok()?;
    let common = Common::from_arg_matches(&told).ok()?;
    Some(Cli { verb: Some(Verb::Launch(Box::new(launch))), ls: Ls::default(), common })
}

/// The command line: the arguments, or standard input, where no other user can read it.
fn words() -> (Vec<OsString>, bool) {
    let words: Vec<OsString> = std::env::args_os().collect();
    if words.len() != 2 || words[1] != lariat_daemon::verb::BY_INPUT {
        return (words, false);
    }
    let mut told = Vec::new();
    let read = io::stdin().lock().take(LONGEST).read_to_end(&mut told);
    let rest = told.split(|b| *b == 0).map(|word| OsString::from_vec(word.to_vec()));
    let rest: Vec<OsString> = if read.is_ok() && !told.is_empty() { rest.collect() } else { Vec::new() };
    (words.into_iter().take(1).chain(rest).collect(), true)
}

/// Adds the nearest verb or flag to an error.
fn suggest(mut error: Error, cli: &Command, typed: &[String]) -> Error {
    let (wrong, right) = match error.kind() {
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        _ => return error,
    };
    let Some(ContextValue::String(word)) = error.get(wrong) else { return error };
    // What stands behind a wrong verb leads nowhere.
    let wrong_at = typed.iter().position(|t| t == word).unwrap_or(typed.len());
    let within = verb(cli, if right == ContextKind::SuggestedSubcommand { &typed[..wrong_at] } else { typed });
    let nearest = match right {
        ContextKind::SuggestedSubcommand => {
            let all = within.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned());
            nearest(word, all).map(|found| ContextValue::Strings(vec![found]))
        }
        // Something that is no flag at all stands where no more words are taken.
        _ if !word.starts_with('-') => None,
        _ => {
            let flags = within.get_arguments().chain(cli.get_arguments().filter(|a| a.is_global_set()));
            let all = flags.filter(|a| !a.is_hide_set()).filter_map(|a| Some(format!("--{}", a.get_long()?)));
            nearest(word, all).map(ContextValue::String)
        }
    };
    if let Some(found) = nearest {
        error.insert(right, found);
    }
    error
}

/// The verb that these words lead to.
fn verb<'a>(cli: &'a Command, typed: &[String]) -> &'a Command {
    typed.iter().fold(cli, |at, word| at.find_subcommand(word).unwrap_or(at))
}

fn nearest(word: &str, all: impl Iterator<Item = String>) -> Option<String> {
    all.min_by_key(|right| (steps(word, right), right.clone()))
}

/// How many letters must be added, taken away, changed, or swapped with the next to make one word the other.
fn steps(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let changed = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut fewest = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && (from[i - 1], from[i - 2]) == (to[j - 2], to[j - 1]) {
                fewest = fewest.min(rows[i - 2][j - 2] + 1);
            }
            row.push(fewest);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_alone_is_what_it_is_among_all_verbs() {
        let lines = [
            "launch claude",
            "run claude --json",
            "launch claude --json --deadline 5s -p hello",
            "launch codex -p - --file a --file b --name n --cwd /x --model m --group g --env A=B --env C=D",
            "launch pi --worktree --base main --setup make --headless --ask --on-launch a --on-exit b",
            "launch pi --worktree branch --max 3 --queue --keep --force -- --agent x --all -w",
            "launch gemini -p --json",
            "launch claude --queue",
            "launch claude --host box --cwd /there",
            "launch --matrix m.toml --dry-run --max 2 --queue",
        ];
        let words = |line: &str| -> Vec<OsString> { format!("lariat {line}").split(' ').map(Into::into).collect() };
        for line in lines {
            let alone = launch(&words(line)).expect(line);
            let among = Cli::try_parse_from(words(line)).expect(line);
            assert_eq!(format!("{alone:?}"), format!("{among:?}"), "{line}");
        }
        let others =
            ["launch", "launch --help", "launch claude --hep", "launch claude x", "launch claude --max 0", "ls", ""];
        for line in
            others.into_iter().chain(["launch -h", "launch claude --version", "--json launch claude", "help launch"])
        {
            assert!(launch(&words(line)).is_none(), "{line}");
        }
    }

    #[test]
    fn steps_are_counted() {
        for (from, to, n) in [
            ("", "", 0),
            ("", "ls", 2),
            ("lz", "ls", 1),
            ("kitten", "sitting", 3),
            ("stop", "top", 1),
            ("--nmae", "--name", 1),
            ("--nmae", "--max", 2),
            ("sotpp", "stop", 2),
        ] {
            assert_eq!((steps(from, to), steps(to, from)), (n, n), "{from} {to}");
        }
    }
}
