//! Many launches by one file: every combination of what it lists.
//!
//! The file is TOML, or JSON. It says what differs; everything else is the same for all, and is said
//! on the command line. Nothing is launched here: [`check`] says beforehand what would be in the
//! way of any of them, so that a mistake costs no half of a fleet.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use lariat_sys::file;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use crate::launch::{self, Order};
use crate::list::Question;
use crate::worktree::make;

/// No file is longer.
const LARGEST: u64 = 16 << 20;
/// More is a mistake.
pub const MOST: usize = 1000;
/// What a file may say.
const KEYS: [&str; 8] = ["agents", "models", "prompts", "prompt_files", "cwd", "count", "group", "worktree"];

/// What a file says; what it does not say is empty.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Matrix {
    /// The agents.
    pub agents: Vec<String>,
    /// The models, each for every agent.
    pub models: Vec<String>,
    /// The prompts, those that stand in files last.
    pub prompts: Vec<String>,
    /// Where they work.
    pub cwd: Vec<PathBuf>,
    /// How many of each.
    pub count: Option<usize>,
    /// The group that all of them belong to.
    pub group: Option<String>,
    /// Whether each gets a checkout of its own.
    pub worktree: Option<bool>,
}

/// Reads a file. Its paths are relative to where it lies.
pub fn read(path: &Path) -> Result<Matrix, String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let text = text_of(path).map_err(wrong)?;
    let said = parse(&text, path.extension().is_some_and(|e| e == "json")).map_err(wrong)?;
    let beside = path.parent().unwrap_or(Path::new(""));
    Matrix::of(&said, beside).map_err(wrong)
}

fn text_of(path: &Path) -> Result<String, String> {
    let bytes = file::read_small(path, LARGEST).map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".into())
}

fn parse(text: &str, json: bool) -> Result<Value, String> {
    if json || text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|e| e.to_string());
    }
    let table = DeTable::parse(text).map_err(|e| e.to_string().trim_end().to_owned())?;
    Ok(of_table(table.get_ref()))
}

fn of_table(table: &DeTable<'_>) -> Value {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), of_toml(value.get_ref()))).collect()
}

fn of_toml(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(b) => Value::from(*b),
        DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).map_or(Value::Null, Value::from),
        DeValue::Array(all) => all.iter().map(|v| of_toml(v.get_ref())).collect(),
        DeValue::Table(table) => of_table(table),
        DeValue::Float(_) | DeValue::Datetime(_) => Value::Null,
    }
}

impl Matrix {
    fn of(said: &Value, beside: &Path) -> Result<Matrix, String> {
        let said = said.as_object().ok_or("it must list what to launch, like agents = [\"claude\", \"codex\"]")?;
        if let Some(odd) = said.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("'{odd}' is not known; it may say {}", KEYS.join(", ")));
        }
        let list = |key: &str| -> Result<Vec<String>, String> {
            let wrong = || format!("{key} must be a text or a list of texts, none of them empty");
            let all = match said.get(key) {
                None => return Ok(Vec::new()),
                Some(Value::Array(all)) => all.as_slice(),
                Some(one) => std::slice::from_ref(one),
            };
            let texts = all.iter().map(|v| v.as_str().filter(|t| !t.trim().is_empty()).map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().filter(|t| !t.is_empty()).ok_or_else(wrong)
        };
        let mut prompts = list("prompts")?;
        for name in list("prompt_files")? {
            let text = text_of(&beside.join(&name)).map_err(|e| format!("prompt_files: {name}: {e}"))?;
            if text.trim().is_empty() {
                return Err(format!("prompt_files: {name}: it is empty"));
            }
            prompts.push(text);
        }
        if prompts.iter().any(|text| text.contains('\0')) {
            return Err("prompts: one holds a zero byte, which no agent can be given; take it out".into());
        }
        let whole = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let count = said.get("count").map(|v| whole(v).ok_or("count must be a number from 1 on")).transpose()?;
        let yes = |v: &Value| v.as_bool().ok_or("worktree must be true or false");
        let worktree = said.get("worktree").map(yes).transpose()?;
        let group = list("group")?;
        if group.len() > 1 {
            return Err("all of them belong to one group".into());
        }
        Ok(Matrix {
            agents: list("agents")?,
            models: list("models")?,
            prompts,
            cwd: list("cwd")?.iter().map(|c| beside.join(c)).collect(),
            count,
            group: group.into_iter().next(),
            worktree,
        })
    }

    /// Every combination, in the order of the file: agents, models, prompts, directories, and so many of each.
    /// What is not listed is as `all` says.
    pub fn orders(&self, all: &Order) -> Result<Vec<Order>, String> {
        let agents = if self.agents.is_empty() { vec![all.agent.clone()] } else { self.agents.clone() };
        let models = or_else(&self.models, all.ask.model.clone());
        let prompts = or_else(&self.prompts, None);
        let places = if self.cwd.is_empty() { vec![all.cwd.clone()] } else { self.cwd.clone() };
        let each = [agents.len(), models.len(), prompts.len(), places.len(), self.count.unwrap_or(1)];
        let number = each.iter().try_fold(1usize, |n, m| n.checked_mul(*m)).filter(|n| *n <= MOST);
        let number = number.ok_or_else(|| format!("it asks for more than {MOST} launches; make its lists shorter"))?;
        let mut orders = Vec::with_capacity(number);
        for agent in &agents {
            for model in &models {
                for prompt in &prompts {
                    for cwd in &places {
                        for _ in 0..self.count.unwrap_or(1) {
                            let mut order = Order { agent: agent.clone(), cwd: cwd.clone(), ..all.clone() };
                            order.ask.model.clone_from(model);
                            let before = all.ask.prompt.as_deref().unwrap_or_default();
                            let prompt = prompt.as_ref().map(|p| [before, p].concat());
                            order.ask.prompt = prompt.or_else(|| all.ask.prompt.clone());
                            let name = |name: &String| format!("{name}-{}", orders.len() + 1);
                            order.ask.name = all.ask.name.as_ref().map(name);
                            orders.push(order);
                        }
                    }
                }
            }
        }
        Ok(orders)
    }
}

fn or_else(list: &[String], one: Option<String>) -> Vec<Option<String>> {
    if list.is_empty() { vec![one] } else { list.iter().cloned().map(Some).collect() }
}

/// Whether all of them could be launched, as far as that can be told before the first one is: which cannot, counted
/// from 1, and why.
pub fn check(
    question: &Question,
    orders: &[Order],
    wish: Option<&make::Wish>,
) -> Result<(), (usize, launch::LaunchError)> {
    let mut taken = HashSet::new();
    let mut standing: HashSet<&Path> = HashSet::new();
    for (n, order) in orders.iter().enumerate() {
        let cwd = launch::check(&question.places, order).map_err(|e| (n + 1, e))?;
        match wish {
            Some(wish) if standing.insert(&order.cwd) => make::check(&cwd, wish).map_err(|e| (n + 1, e.into()))?,
            Some(_) => {}
            None if order.force || taken.insert(cwd.clone()) => {}
            None => {
                let why = format!(
                    "{}: another one of them; let each have a worktree of its own (worktree = true), or use --force",
                    cwd.display()
                );
                return Err((n + 1, launch::LaunchError::Claimed(why)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Matrix, String> {
        parse(text, false).and_then(|said| Matrix::of(&said, Path::new("/there")))
    }

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = "agents = [\"claude\", \"codex\"]\nmodels = \"m\"\nprompts = [\"a\", \"b\"]\ncwd = \"x\"\ncount = 3\ngroup = \"g\"\nworktree = false\n";
        let json = r#"{"agents":["claude","codex"],"models":["m"],"prompts":["a","b"],"cwd":["x"],"count":3,"group":"g","worktree":false}"#;
        assert_eq!(of(toml), of(json));
        let matrix = of(toml).unwrap();
        assert_eq!((matrix.count, matrix.cwd, matrix.worktree), (Some(3), vec!["/there/x".into()], Some(false)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("agent = \"claude\"", "'agent' is not known"),
            ("agents = []", "agents must be"),
            ("agents = [\"\"]", "agents must be"),
            ("prompts = [1]", "prompts must be"),
            ("count = 0", "count must be"),
            ("count = -1", "count must be"),
            ("worktree = \"no\"", "worktree must be"),
            ("group = [\"a\", \"b\"]", "one group"),
            ("prompt_files = [\"nowhere.md\"]", "prompt_files: nowhere.md"),
            ("agents = [", ""),
            ("[]", ""),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn every_combination_once_and_in_order() {
        let matrix = of("agents = [\"claude\", \"codex\"]\nprompts = [\"a\", \"b\"]\ncount = 2").unwrap();
        let mut all = Order { cwd: "/w".into(), ..Order::default() };
        all.ask.name = Some("try".into());
        all.ask.model = Some("m".into());
        all.ask.prompt = Some("file:\n".into());
        let orders = matrix.orders(&all).unwrap();
        let told: Vec<String> = orders
            .iter()
            .map(|o| {
                format!(
                    "{} {} {}",
                    o.agent,
                    o.ask.prompt.as_deref().unwrap_or("-"),
                    o.ask.name.as_deref().unwrap_or("-")
                )
            })
            .collect();
        assert_eq!(told.len(), 8);
        assert_eq!((told[0].as_str(), told[7].as_str()), ("claude file:\na try-1", "codex file:\nb try-8"));
        assert!(orders.iter().all(|o| o.ask.model.as_deref() == Some("m") && o.cwd == Path::new("/w")));
        assert!(of("agents = [\"a\"]\ncount = 1001").unwrap().orders(&all).is_err());
    }
}
