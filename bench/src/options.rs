//! The command line of the rig.

use std::io;
use std::path::PathBuf;

use crate::corpus::Params;

pub const HELP: &str = "\
usage: lariat-bench [OPTIONS] [list|usage|procs|hosted|daemon|screens|all|corpus]

  list     list 10,000 Claude and 2,000 Codex sessions, no daemon; then with 500 of Pi and 500 of OpenCode
  usage    add up tokens over every byte, beside ccusage
  procs    look at 3,000 processes
  hosted   launch, terminals and memory of hosted sessions, beside tmux and dtach
  daemon   ask a daemon, watch 1,000 agents die
  screens  the terminal screen while nothing happens, the web page in a browser
  all      all of them (the default)
  corpus   only make the corpus

  --quick          1,000 + 200 sessions, fewer rounds
  --rounds N       runs of each side (11; quick: 5)
  --claude N       Claude sessions in the corpus
  --codex N        Codex sessions in the corpus
  --max-bytes N    size to which the corpus is clamped (475,000 a session)
  --seed N         seed of the corpus (7)
  --corpus DIR     where the corpus lies (target/bench/corpus-<sessions>)
  --json FILE      write the report as JSON, too

The lariat that is measured is named by the variable LARIAT, else it is the one
built beside this program. The exit code is 1 if an answer was wrong.
";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jobs {
    #[default]
    All,
    List,
    Usage,
    Procs,
    Hosted,
    Daemon,
    Screens,
    Corpus,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub jobs: Jobs,
    pub json: Option<PathBuf>,
    quick: bool,
    rounds: Option<usize>,
    claude: Option<usize>,
    codex: Option<usize>,
    max_bytes: Option<u64>,
    seed: Option<u64>,
    corpus: Option<PathBuf>,
}

impl Options {
    /// `None` if only help was asked for.
    pub fn parse(args: &[String]) -> Result<Option<Self>, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "-h" | "--help" => return Ok(None),
                "all" => options.jobs = Jobs::All,
                "list" => options.jobs = Jobs::List,
                "usage" => options.jobs = Jobs::Usage,
                "procs" => options.jobs = Jobs::Procs,
                "hosted" => options.jobs = Jobs::Hosted,
                "daemon" => options.jobs = Jobs::Daemon,
                "screens" => options.jobs = Jobs::Screens,
                "corpus" => options.jobs = Jobs::Corpus,
                "--quick" => options.quick = true,
                "--rounds" => options.rounds = Some(number(arg, value()?)?.max(1)),
                "--claude" => options.claude = Some(number(arg, value()?)?),
                "--codex" => options.codex = Some(number(arg, value()?)?),
                "--max-bytes" => options.max_bytes = Some(number(arg, value()?)? as u64),
                "--seed" => options.seed = Some(number(arg, value()?)? as u64),
                "--corpus" => options.corpus = Some(value()?.into()),
                "--json" => options.json = Some(value()?.into()),
                _ => return Err(format!("{arg}: no such option or job")),
            }
        }
        Ok(Some(options))
    }

    pub fn is_quick(&self) -> bool {
        self.quick
    }

    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 5 } else { 11 })
    }

    /// How many idle sessions are hosted, how many bytes go through a terminal, how often.
    pub fn hosted(&self) -> crate::hosted::Scale {
        let rounds = self.rounds().min(5);
        match self.quick {
            true => crate::hosted::Scale { sessions: 50, flood: 10_000_000, rounds: rounds.min(3) },
            false => crate::hosted::Scale { sessions: 200, flood: 100_000_000, rounds },
        }
    }

    pub fn params(&self) -> Params {
        let scale = if self.quick { 1_000 } else { 10_000 };
        let claude = self.claude.unwrap_or(scale);
        let codex = self.codex.unwrap_or(claude / 5);
        // 5.7 GB at 12,000 sessions.
        let budget = self.max_bytes.unwrap_or((claude + codex) as u64 * 475_000);
        Params::new(claude, codex, budget, self.seed.unwrap_or(7))
    }

    /// `bench` in the target directory in which this program was built.
    pub fn dir(&self) -> io::Result<PathBuf> {
        let this = std::env::current_exe()?;
        let target = this.ancestors().nth(2).ok_or_else(|| io::Error::other("this program lies in no directory"))?;
        Ok(target.join("bench"))
    }

    pub fn corpus_dir(&self) -> io::Result<PathBuf> {
        if let Some(dir) = &self.corpus {
            return std::path::absolute(dir);
        }
        let params = self.params();
        Ok(self.dir()?.join(format!("corpus-{}", params.claude + params.codex)))
    }
}

fn number(flag: &str, value: &str) -> Result<usize, String> {
    value.replace(['_', ','], "").parse().map_err(|_| format!("{flag}: {value} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn sizes_follow_the_flags() {
        let quick = parse("--quick list").unwrap().unwrap();
        assert_eq!((quick.jobs, quick.rounds()), (Jobs::List, 5));
        assert_eq!((quick.params().claude, quick.params().codex), (1_000, 200));
        let full = parse("").unwrap().unwrap();
        assert_eq!((full.jobs, full.params().max_bytes), (Jobs::All, 5_700_000_000));
        let own = parse("--claude 50 --max-bytes 1_000_000").unwrap().unwrap();
        assert_eq!((own.params().codex, own.params().max_bytes), (10, 1_000_000));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(parse("--fast").is_err());
        assert!(parse("--rounds").is_err());
        assert!(parse("--rounds many").is_err());
        assert_eq!(parse("--help"), Ok(None));
    }
}
