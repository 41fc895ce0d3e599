//! The form of a new session: which agent, where, what to ask.

use crate::tui::act::{self, Order};
use crate::tui::input::{Key, Line};

/// What is filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Form {
    agents: Vec<String>,
    agent: usize,
    pub directory: Line,
    pub prompt: Line,
    pub worktree: bool,
    pub headless: bool,
    /// The field that keys go to.
    pub at: usize,
}

/// The fields, in order.
pub const FIELDS: [&str; 5] = ["agent", "directory", "prompt", "worktree", "headless"];

impl Form {
    pub fn new(agents: Vec<String>, agent: &str, directory: &str) -> Form {
        let agent = agents.iter().position(|a| a == agent).unwrap_or(0);
        let directory = Line::of(directory);
        Form { agents, agent, directory, prompt: Line::default(), worktree: false, headless: false, at: 2 }
    }

    pub fn agent(&self) -> &str {
        self.agents.get(self.agent).map_or("claude", String::as_str)
    }

    /// A key that neither launches nor leaves.
    pub fn key(&mut self, key: &Key) {
        let last = FIELDS.len() - 1;
        match key {
            Key::Tab | Key::Down => self.at = if self.at == last { 0 } else { self.at + 1 },
            Key::BackTab | Key::Up => self.at = self.at.checked_sub(1).unwrap_or(last),
            _ => match self.at {
                0 => self.turn(key),
                1 => drop(self.directory.key(&one_line(key))),
                2 => drop(self.prompt.key(key)),
                3 => self.worktree = toggled(self.worktree, key),
                _ => self.headless = toggled(self.headless, key),
            },
        }
    }

    fn turn(&mut self, key: &Key) {
        let count = self.agents.len().max(1);
        match key {
            Key::Right | Key::Char(' ') => self.agent = (self.agent + 1) % count,
            Key::Left => self.agent = (self.agent + count - 1) % count,
            Key::Char(c) => {
                // The next one that begins so.
                let after = (1..=count).map(|n| (self.agent + n) % count);
                let begins = |i: &usize| self.agents.get(*i).is_some_and(|a| a.starts_with(*c));
                self.agent = after.into_iter().find(begins).unwrap_or(self.agent);
            }
            _ => {}
        }
    }

    /// What it asks for.
    pub fn order(&self) -> Order {
        let mut args: Vec<String> = vec!["launch".into(), self.agent().into()];
        if !self.directory.text().trim().is_empty() {
            args.extend(["--cwd".into(), self.directory.text().to_owned()]);
        }
        args.extend(self.headless.then(|| "--headless".into()));
        let prompt = self.prompt.text();
        let asked = !prompt.trim().is_empty();
        let mut typed = args.clone();
        if asked {
            args.extend(["-p".into(), "-".into()]);
            typed.extend(["-p".into(), prompt.to_owned()]);
        }
        for line in [&mut args, &mut typed] {
            line.extend(self.worktree.then(|| "--worktree".into())); // last: it may take a value
        }
        let stdin = if asked { prompt.to_owned() } else { String::new() };
        Order { what: format!("launch {}", self.agent()), shown: act::line(&typed), args, stdin }
    }
}

fn one_line(key: &Key) -> Key {
    match key {
        Key::Paste(text) => Key::Paste(text.split(['\r', '\n']).next().unwrap_or_default().to_owned()),
        key => key.clone(),
    }
}

fn toggled(is: bool, key: &Key) -> bool {
    match key {
        Key::Char(' ') | Key::Left | Key::Right => !is,
        Key::Char('y') => true,
        Key::Char('n') => false,
        _ => is,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_becomes_a_command_line() {
        let mut form = Form::new(["claude", "codex", "pi"].map(str::to_owned).into(), "codex", "/work");
        for key in [Key::Char('h'), Key::Char('i'), Key::Tab, Key::Char('y'), Key::Tab, Key::Char(' '), Key::Tab] {
            form.key(&key);
        }
        form.key(&Key::Char('p'));
        let order = form.order();
        assert_eq!(order.args, ["launch", "pi", "--cwd", "/work", "--headless", "-p", "-", "--worktree"]);
        assert_eq!(order.stdin, "hi");
        assert_eq!(order.shown, "lariat launch pi --cwd /work --headless -p hi --worktree");
    }
}
