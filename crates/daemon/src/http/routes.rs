//! What can be asked by HTTP, and the command line that it means. The routes stand in
//! [`table`](super::table).
//!
//! A route is a verb of the command line with its flags as parameters. So it can do
//! what the verb can, refuses what the verb refuses, and answers what `--json` prints.

use serde_json::{Map, Value};

pub use super::table::ROUTES;

/// A way to ask.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// `GET` for what looks, `POST` for what acts.
    pub method: &'static str,
    /// The path; `{target}` stands for a session, `{name}` for any name.
    pub path: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// What can be said besides.
    pub parameters: &'static [Parameter],
    /// What answers.
    pub answers: Answers,
}

/// What answers a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// A verb, which prints one object.
    Verb(&'static str),
    /// A verb, which prints one object a line.
    Lines(&'static str),
    /// The events, as they happen.
    Events,
    /// How the daemon is.
    Status,
    /// Numbers for Prometheus.
    Metrics,
    /// The description of all this.
    OpenApi,
    /// A file of the page; the name of it, or `None` for the one that stands in the path.
    Page(Option<&'static str>),
    /// A pass for a page, for a secret that is good for one use.
    Enter,
    /// The same, for a page that has one.
    Admit,
    /// A proof for a page that it is us.
    Meet,
    /// A session's terminal, on a WebSocket.
    Terminal,
}

impl Route {
    /// Whether it needs no token: the page holds nothing of the user's, who enters has no
    /// token yet, and who wants to know whom he meets does not give his.
    pub fn is_open(&self) -> bool {
        matches!(self.answers, Answers::Page(_) | Answers::Enter | Answers::Meet)
    }
}

/// Something that can be said in a request: in the query for `GET`, in the body for
/// `POST`.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What it means.
    pub about: &'static str,
    /// It must be there.
    pub required: bool,
}

/// What a parameter is, and what becomes of it on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A text: `--name=TEXT`.
    Text,
    /// A place, which must be absolute: `--name=PATH`.
    Path,
    /// Yes or no: `--name`.
    Flag,
    /// A whole number: `--name=N`.
    Number,
    /// Several texts: `--name=TEXT` each.
    Texts,
    /// Several places, which must be absolute: `--name=PATH` each.
    Paths,
    /// A text in its own place, whatever it begins with.
    Word,
    /// A place in its own place.
    Place,
    /// Several texts in their own places.
    Words,
    /// Arguments for the agent: after `--`.
    Rest,
}

/// Where a path leads.
pub enum Found {
    /// To a route, with the target that was named.
    Route(&'static Route, Option<String>),
    /// To a route, but by these methods only.
    Methods(Vec<&'static str>),
    /// Nowhere.
    Nothing,
}

/// Finds the route of a request.
pub fn find(method: &str, path: &str) -> Found {
    let mut methods = Vec::new();
    for route in ROUTES {
        if let Some(target) = fits(route.path, path) {
            if route.method == method {
                return Found::Route(route, target);
            }
            methods.push(route.method);
        }
    }
    if methods.is_empty() { Found::Nothing } else { Found::Methods(methods) }
}

fn fits(pattern: &str, path: &str) -> Option<Option<String>> {
    let (mut ours, mut theirs) = (pattern.split('/'), path.split('/'));
    let mut target = None;
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return Some(target),
            (Some(ours), Some(part)) if ours.starts_with('{') => {
                target = Some(decoded(part).filter(|t| !t.is_empty())?);
            }
            (Some(ours), Some(theirs)) if ours == theirs => {}
            _ => return None,
        }
    }
}

/// Takes `%41` for `A`.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        bytes.push(match b {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b => b,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The query as an object of texts; a name without a value is `true`.
pub fn query(text: &str) -> Option<Map<String, Value>> {
    let mut map = Map::new();
    for pair in text.split('&').filter(|p| !p.is_empty()) {
        let plain = |t: &str| decoded(&t.replace('+', " "));
        let value = match pair.split_once('=') {
            Some((_, value)) => Value::String(plain(value)?),
            None => Value::Bool(true),
        };
        map.insert(plain(pair.split('=').next().unwrap_or(""))?, value);
    }
    Some(map)
}

/// The command line that a request means; or what is wrong with it.
pub fn arguments(route: &Route, target: Option<&str>, said: &Map<String, Value>) -> Result<Vec<String>, String> {
    let verb = match route.answers {
        Answers::Verb(verb) | Answers::Lines(verb) => verb,
        Answers::Terminal => "attach --where",
        _ => "",
    };
    let known = |name: &String| route.parameters.iter().any(|p| p.name == name);
    if let Some(odd) = said.keys().find(|name| !known(name)) {
        let names: Vec<&str> = route.parameters.iter().map(|p| p.name).collect();
        return Err(format!("{odd:?} is no parameter here; there are {names:?}"));
    }
    let mut flags: Vec<String> = verb.split(' ').chain(["--json"]).map(str::to_owned).collect();
    let (mut words, mut rest) = (Vec::new(), Vec::new());
    if let Some(target) = target {
        // A zero byte would end the word, and what follows it would be another.
        if target.contains('\0') || target.starts_with(['-', '.']) && !verb.is_empty() {
            return Err(format!("{target:?} is no session"));
        }
        words.push(target.to_owned());
    }
    for parameter in route.parameters {
        let name = parameter.name;
        let wrong = |what: &str| format!("{name} should be {what}");
        let value = match said.get(name) {
            None | Some(Value::Null) if parameter.required => return Err(format!("{name} is missing")),
            None | Some(Value::Null) => continue,
            Some(value) => value,
        };
        let text = || value.as_str().filter(|t| !t.contains('\0')).map(str::to_owned);
        let texts = || -> Option<Vec<String>> {
            let list = value.as_array()?.iter();
            list.map(|v| v.as_str().filter(|t| !t.contains('\0')).map(str::to_owned)).collect()
        };
        let absolute = |path: String| if path.starts_with('/') { Ok(path) } else { Err(wrong("an absolute path")) };
        match parameter.kind {
            Kind::Text => flags.push(format!("--{name}={}", unread(text().ok_or_else(|| wrong("a text"))?))),
            Kind::Path => flags.push(format!("--{name}={}", absolute(text().ok_or_else(|| wrong("a text"))?)?)),
            Kind::Number => {
                let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
                flags.push(format!("--{name}={}", number.ok_or_else(|| wrong("a whole number"))?));
            }
            Kind::Flag => match value {
                Value::Bool(true) => flags.push(format!("--{name}")),
                Value::Bool(false) => {}
                Value::String(s) if matches!(s.as_str(), "true" | "1" | "") => flags.push(format!("--{name}")),
                Value::String(s) if matches!(s.as_str(), "false" | "0") => {}
                _ => return Err(wrong("true or false")),
            },
            Kind::Texts => {
                let texts = texts().ok_or_else(|| wrong("a list of texts"))?;
                flags.extend(texts.into_iter().map(|t| format!("--{name}={t}")));
            }
            Kind::Paths => {
                for path in texts().ok_or_else(|| wrong("a list of texts"))? {
                    flags.push(format!("--{name}={}", absolute(path)?));
                }
            }
            Kind::Word => words.push(unread(text().ok_or_else(|| wrong("a text"))?)),
            Kind::Place => words.push(absolute(text().ok_or_else(|| wrong("a text"))?)?),
            Kind::Words => words.extend(texts().ok_or_else(|| wrong("a list of texts"))?.into_iter().map(unread)),
            Kind::Rest => rest = texts().ok_or_else(|| wrong("a list of texts"))?,
        }
        // What must be true must be said to be.
        if parameter.required && parameter.kind == Kind::Flag && !flags.contains(&format!("--{name}")) {
            return Err(wrong("true"));
        }
    }
    flags.extend(words);
    if !rest.is_empty() {
        flags.push("--".into());
        flags.extend(rest);
    }
    Ok(flags)
}

/// A word that is neither a flag nor an order to read standard input.
fn unread(text: String) -> String {
    if text.starts_with('-') { format!(" {text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(method: &str, path: &str, said: Value) -> Result<String, String> {
        let Found::Route(route, target) = find(method, path) else { return Err("no route".into()) };
        let said = said.as_object().cloned().unwrap_or_default();
        arguments(route, target.as_deref(), &said).map(|a| a.join(" "))
    }

    #[test]
    fn a_target_is_one_word() {
        for target in ["x%00--force", "%00", "-a", ".", "..%2Fx"] {
            let told = line("POST", &format!("/v1/sessions/{target}/kill"), json!({}));
            assert!(told.as_ref().is_err_and(|why| why.ends_with("is no session")), "{target}: {told:?}");
        }
        assert_eq!(line("POST", "/v1/sessions/x/kill", json!({})).as_deref(), Ok("kill --json x"));
    }

    #[test]
    fn a_request_is_a_command_line() {
        assert_eq!(line("GET", "/v1/sessions", json!({"all": true})).unwrap(), "ls --json --all");
        let asked = json!({"agent": "claude", "cwd": "/w", "prompt": "-x", "env": ["A=b"], "arguments": ["--flag"]});
        let launch = line("POST", "/v1/sessions", asked).unwrap();
        assert_eq!(launch, "launch --json --cwd=/w --prompt= -x --env=A=b claude -- --flag");
        assert_eq!(
            line("POST", "/v1/sessions/a%2Db/stop", json!({"grace": "1s"})).unwrap(),
            "stop --json --grace=1s a-b"
        );
        assert_eq!(line("POST", "/v1/sessions/x/send", json!({"text": "-"})).unwrap(), "send --json x  -");
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (method, path, said) in [
            ("POST", "/v1/sessions/--all/kill", json!({})),
            ("POST", "/v1/sessions/./kill", json!({})),
            ("POST", "/v1/sessions/x/kill", json!({"all": true})),
            ("POST", "/v1/sessions/x/send", json!({})),
            ("POST", "/v1/sessions/x/send", json!({"text": ["a"]})),
            ("POST", "/v1/sessions", json!({"agent": "claude", "cwd": "here"})),
            ("POST", "/v1/restore", json!({"yes": false})),
            ("GET", "/v1/sessions/x%00y", json!({"nul": true})),
            ("DELETE", "/v1/sessions", json!({})),
            ("GET", "/v1/sessions/", json!({})),
            ("GET", "/v1/nothing", json!({})),
            ("GET", "/v1/sessions/%zz", json!({})),
        ] {
            assert!(line(method, path, said).is_err(), "{method} {path}");
        }
    }

    #[test]
    fn what_is_asked_by_get_only_looks() {
        for route in ROUTES {
            let (Answers::Verb(verb) | Answers::Lines(verb)) = route.answers else { continue };
            let said = json!({"yes": true});
            let line: Vec<String> = verb.split(' ').chain(["--json"]).map(str::to_owned).collect();
            let others = ["logs", "usage", "worktree ls", "fuse ls", "gc", "daemon deliveries", "daemon logs"];
            let looks = crate::serve::only_looks(&line) || others.contains(&verb);
            if route.method == "GET" {
                assert!(looks, "{}", route.path);
                assert!(arguments(route, Some("x"), said.as_object().unwrap()).is_err(), "{} takes --yes", route.path);
            }
        }
    }
}
