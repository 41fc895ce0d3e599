//! Sessions of other machines: which one a target means, and verbs that run where it is.
//!
//! What is a whole id or handle here means the session here, whatever any host says: a handle
//! answers at once. Every other target is asked of all hosts too, and what fits two is an error.
//! A verb that acts is never done here to a session of another machine: it is run there, and what
//! it says is shown escaped, since nobody vouches for what another machine sends.

use std::ffi::OsString;
use std::io;

use lariat_adapters::look::{Places, Scope};
use lariat_core::{Session, Time, Untrusted};
use lariat_daemon::verb::BY_INPUT;
use lariat_engine::hosts::ask::{self, Found};
use lariat_engine::hosts::ssh::{self, Call, Input, Unreached};
use lariat_engine::hosts::{Fleet, HERE, Host, LOCAL, WHILE_HEARD};
use lariat_engine::list::Answer;
use lariat_engine::target::is_whole;
use lariat_engine::{NotOne, list, resolve};
use lariat_sys::bounded::Stream;
use lariat_sys::clock;

use crate::Done;
use crate::args::{Asked, Common, Verb, understood};
use crate::output::{Failure, Out, complain};
use crate::verbs::{self, daemon, not_one, question};

/// Longer lines are shown in pieces.
const LINE: usize = 1 << 20;
/// No object that a lariat prints is longer.
const OBJECT: usize = 64 << 20;
/// What stands for a target while its place among the words is looked for.
const MARK: &str = "lariat-mark-of-a-target";

/// A host that is not known.
pub fn no_host(name: &str) -> Failure {
    let name = Untrusted::new(name).row();
    Failure::Usage(format!("no host is called '{name}'; `lariat host ls` lists them, `lariat host add {name}` adds it"))
}

/// Everything there is here, and the one session that a target means, on whichever machine.
pub fn find(target: &str, common: &Common) -> Result<(Answer, usize), Failure> {
    let places = Places::from_env();
    let Some(fleet) = Fleet::read(&places) else { return verbs::find(target, common) };
    if let Some((host, rest)) = fleet.split(target) {
        let name = host.name.clone();
        let found = ask::find(fleet.clone(), Some(&name), &places, rest, common.deadline).found();
        if found.sessions.is_empty() && found.several.is_empty() && !found.partial {
            verbs::warn(&found.warnings);
            let target = Untrusted::new(target).row();
            let why = format!("no session fits '{target}'; `lariat ls -a --host {name}` lists all of that host");
            return Err(Failure::Usage(why));
        }
        return one(target, Answer::empty(Time(clock::now_ms())), Err(NotOne::None(target.to_owned())), found);
    }
    let mut answer = list(question(common, Scope::All));
    let here = resolve(target, &answer.listing.sessions);
    // A directory is one of this machine.
    let is_here =
        target.starts_with(['.', '/']) || here.as_ref().is_ok_and(|at| is_whole(target, &answer.listing.sessions[*at]));
    let found = match is_here {
        true => Found::default(),
        false => ask::find(fleet, None, &places, target, common.deadline).found(),
    };
    answer.unhinted |= !is_here; // another machine gives no hints
    daemon::tell_seen(&answer);
    one(target, answer, here, found)
}

/// The same for several targets.
pub fn find_all(targets: &[String], common: &Common) -> Result<(Answer, Vec<usize>), Failure> {
    if Fleet::read(&Places::from_env()).is_none() {
        let answer = list(question(common, Scope::All));
        let at = |t: &String| resolve(t, &answer.listing.sessions).map_err(|e| not_one(&e, &answer));
        let places = targets.iter().map(at).collect::<Result<_, Failure>>()?;
        return Ok((answer, places));
    }
    let mut all = Answer::empty(Time(clock::now_ms()));
    for target in targets {
        let (mut answer, at) = find(target, common)?;
        all.listing.sessions.push(answer.listing.sessions.swap_remove(at));
        all.listing.warnings.append(&mut answer.listing.warnings);
        all.partial |= answer.partial;
    }
    all.listing.warnings.sort_unstable();
    all.listing.warnings.dedup();
    let places = (0..targets.len()).collect();
    Ok((all, places))
}

/// The one session, of those here and there.
fn one(
    target: &str,
    mut answer: Answer,
    here: Result<usize, NotOne>,
    found: Found,
) -> Result<(Answer, usize), Failure> {
    answer.listing.warnings.extend(found.warnings);
    answer.partial |= found.partial;
    let shown = Untrusted::new(target).row();
    let fits = usize::from(here.is_ok()) + found.sessions.len() + found.several.len();
    let of_here = matches!(here, Err(NotOne::Several { .. }));
    if fits > 1 || (of_here && fits > 0) || !found.several.is_empty() {
        let mut text = format!("'{shown}' fits more than one session; which one?");
        let mut say = |s: &Session| text.push_str(&format!("\n  {}  {}", s.target().row(), s.status.word()));
        match &here {
            Ok(at) => say(&answer.listing.sessions[*at]),
            Err(NotOne::Several { candidates, .. }) => {
                candidates.iter().take(20).for_each(|at| say(&answer.listing.sessions[*at]));
            }
            Err(NotOne::None(_)) => {}
        }
        found.sessions.iter().for_each(|s| say(s));
        for (host, said) in found.several {
            text.push_str(&format!("\n  on {host}: {}", Untrusted::new(said.trim()).block()));
        }
        return Err(Failure::Usage(text));
    }
    match (here, found.sessions.into_iter().next()) {
        (Ok(at), _) => Ok((answer, at)),
        (Err(_), Some(session)) => {
            answer.listing.sessions.push(session);
            let last = answer.listing.sessions.len() - 1;
            Ok((answer, last))
        }
        (Err(error), None) => {
            verbs::warn(&answer.listing.warnings);
            Err(match (answer.partial, &error) {
                (true, NotOne::None(_)) => {
                    Failure::Unread(format!("no session fits '{shown}', but not every store and host could be read"))
                }
                _ => not_one(&error, &answer),
            })
        }
    }
}

/// Runs what was asked on the machine that it is about; `None` if that is this one.
pub fn run(asked: &Asked, out: &mut Out) -> Option<Done> {
    leave_with_the_one_who_hears();
    let verb = asked.cli.verb.as_ref()?;
    let (named, targets) = (verb.host(), verb.targets());
    if named == Some(LOCAL) || (named.is_none() && targets.is_empty()) {
        return None;
    }
    let fleet = match (Fleet::read(&Places::from_env()), named) {
        (Some(fleet), _) => fleet,
        (None, Some(name)) => return Some(Err(no_host(name))),
        (None, None) => return None,
    };
    match whither(asked, verb, &fleet) {
        Ok(Some((host, words))) => Some(go(&host, &words, verb, asked, out)),
        Ok(None) => None,
        Err(failure) => Some(Err(failure)),
    }
}

/// The machine that a verb is to be run on, and the words to be said there; nothing for this one.
fn whither(asked: &Asked, verb: &Verb, fleet: &Fleet) -> Result<Option<(Host, Vec<String>)>, Failure> {
    let words: Option<Vec<String>> = asked.words.iter().skip(1).map(|w| w.to_str().map(str::to_owned)).collect();
    let words = words.ok_or_else(|| Failure::Usage("what is said to another machine must be UTF-8".into()))?;
    if let Some(name) = verb.host() {
        let host = fleet.named(name).ok_or_else(|| no_host(name))?;
        let words = without_host(&asked.words, &words, name).ok_or_else(|| unclear("--host"))?;
        return Ok(Some((host.clone(), words)));
    }
    let targets = verb.targets();
    let found = targets.iter().map(|target| place(target, fleet, &asked.cli.common));
    let found: Vec<Option<(Host, String)>> = found.collect::<Result<_, Failure>>()?;
    let Some((host, _)) = found.iter().flatten().next().cloned() else { return Ok(None) };
    if found.iter().any(|f| f.as_ref().is_none_or(|(other, _)| other.name != host.name)) {
        return Err(Failure::Usage("these sessions are on different machines; one command for each".into()));
    }
    let mut there = words;
    for (nth, (target, found)) in targets.iter().zip(found).enumerate() {
        let at = position(&asked.words, nth, target).ok_or_else(|| unclear(target))?;
        there[at - 1] = found.map_or_else(String::new, |(_, id)| id);
    }
    Ok(Some((host, there)))
}

fn unclear(word: &str) -> Failure {
    Failure::Usage(format!("'{}' cannot be told from another word; say it once", Untrusted::new(word).row()))
}

/// The host of a target and what it is called there; nothing if it is here, or nowhere: then the
/// verb says so itself.
fn place(target: &str, fleet: &Fleet, common: &Common) -> Result<Option<(Host, String)>, Failure> {
    if let Some((host, rest)) = fleet.split(target) {
        return Ok(Some((host.clone(), rest.to_owned())));
    }
    if target.starts_with(['.', '/']) {
        return Ok(None);
    }
    let (answer, at) = find(target, common)?;
    let session = &answer.listing.sessions[at];
    let host = session.host.as_deref().filter(|_| session.elsewhere).and_then(|name| fleet.named(name));
    Ok(host.map(|host| (host.clone(), session.id.raw().to_owned())))
}

/// Where among the words the nth target stands: where another word would be taken for it.
fn position(words: &[OsString], nth: usize, target: &str) -> Option<usize> {
    (1..words.len()).filter(|at| words[*at] == target).find(|at| {
        let mut marked = words.to_vec();
        marked[*at] = MARK.into();
        let verb = understood(&marked).and_then(|cli| cli.verb);
        verb.is_some_and(|verb| verb.targets().get(nth) == Some(&MARK))
    })
}

/// The words without the option that names the host: those that ask the same otherwise.
fn without_host(typed: &[OsString], words: &[String], name: &str) -> Option<Vec<String>> {
    let joined = format!("--host={name}");
    (0..words.len()).find_map(|at| {
        let length = match words[at].as_str() {
            "--host" if words.get(at + 1).is_some_and(|next| next == name) => 2,
            word if word == joined => 1,
            _ => return None,
        };
        let mut marked = typed.to_vec();
        marked[at + length] = if length == 2 { MARK.into() } else { format!("--host={MARK}").into() };
        let is_it = understood(&marked).and_then(|c| c.verb).is_some_and(|verb| verb.host() == Some(MARK));
        is_it.then(|| words[..at].iter().chain(&words[at + length..]).cloned().collect())
    })
}

fn go(host: &Host, words: &[String], verb: &Verb, asked: &Asked, out: &mut Out) -> Done {
    let unread = |unreached: Unreached| {
        Failure::Unread(format!("the host {}: {}; what was asked may not have been done", host.name, unreached.told()))
    };
    let code = |code: i32| u8::try_from(code).unwrap_or(1);
    if let Verb::Attach(args) = verb {
        if args.to_where {
            let why = format!("its terminal is on {}; `lariat attach {}` shows it", host.name, args.target);
            return Err(Failure::Refused(Untrusted::new(why).row()));
        }
        out.flush()?;
        let mut words = words.to_vec();
        // Said by our environment, which is not that of there.
        if std::env::var_os("LARIAT_DETACH").is_some() && !words.iter().any(|w| w.starts_with("--detach")) {
            words.insert(1, format!("--detach={}", args.detach.shown().to_lowercase()));
        }
        return ssh::show(host, &words).map(code).map_err(unread);
    }
    let follows = match verb {
        Verb::Peek(args) => args.follow,
        Verb::Logs(args) => args.follow,
        Verb::Wait(_) => true,
        _ => false,
    };
    let call = if follows { Call::Follow } else { Call::Act };
    let input = match asked.by_input {
        true if !follows => Input::Words(BY_INPUT),
        // What stands in our standard input is only for one who was told to read it.
        _ if words.iter().any(|w| w == "-") => Input::Ours,
        _ => Input::Nothing,
    };
    let raw = matches!(verb, Verb::Logs(args) if args.raw) && !out.is_terminal();
    let (mut said, mut complained, mut failed) = (Vec::new(), Vec::new(), None);
    // Text may be anything; but who was asked for JSON, and says something else, is no lariat.
    let mut odd = None;
    let strict = out.json && !raw;
    let mut show = |stream: Stream, bytes: &[u8]| -> io::Result<()> {
        let shown = match stream {
            Stream::Out if raw => out.bytes(bytes),
            Stream::Out => {
                said.extend_from_slice(bytes);
                let said = lines(&mut said, if strict { OBJECT } else { LINE });
                odd = odd.take().or_else(|| said.iter().find(|line| strict && !is_json(line)).cloned());
                if odd.is_some() {
                    return Ok(()); // the rest of it is drained, so that it ends as it would
                }
                said.iter().try_for_each(|line| out.line(line)).and_then(|()| out.flush_now())
            }
            Stream::Err => {
                complained.extend_from_slice(bytes);
                lines(&mut complained, LINE).iter().for_each(complain);
                Ok(())
            }
        };
        shown.inspect_err(|e| failed = Some(io::Error::new(e.kind(), e.to_string())))
    };
    let ran = ssh::run(host, call, words, input, &mut show);
    if let Some(failed) = failed {
        return Err(failed.into()); // ours: nobody reads any more
    }
    let rest = Untrusted::new(String::from_utf8_lossy(&said)).block();
    odd = odd.or_else(|| Some(rest.clone()).filter(|rest| strict && !rest.is_empty() && !is_json(rest)));
    if odd.is_none() && !rest.is_empty() {
        out.raw(&rest)?;
    }
    if !complained.is_empty() {
        complain(String::from_utf8_lossy(&complained));
    }
    let code = ran.map(code).map_err(unread)?;
    odd.map_or(Ok(code), |said| {
        let why = format!("it does not answer as lariat does: '{}'", Untrusted::new(said).row_within(60));
        Err(unread(ask::odd(host, &why, "")))
    })
}

/// Whether a line is what `--json` prints: an object.
fn is_json(line: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line).is_ok()
}

/// Takes the whole lines out, escaped, and pieces of such as are longer than that.
fn lines(bytes: &mut Vec<u8>, most: usize) -> Vec<String> {
    let whole = bytes.iter().rposition(|b| *b == b'\n').map(|at| at + 1);
    let end = whole.or((bytes.len() > most).then_some(bytes.len())).unwrap_or(0);
    let rest = bytes.split_off(end);
    let whole = std::mem::replace(bytes, rest);
    let text = String::from_utf8_lossy(&whole).into_owned();
    text.lines().map(|line| Untrusted::new(line).block()).collect()
}

/// Ends with whoever listens on another machine, if that is asked: its end closes our standard input.
fn leave_with_the_one_who_hears() {
    if std::env::var_os(HERE).is_none_or(|how| how != WHILE_HEARD) {
        return;
    }
    let wait = || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(0);
    };
    drop(std::thread::Builder::new().name("hearing".into()).spawn(wait)); // without it, we stay
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        ["lariat"].into_iter().chain(line.split(' ')).map(OsString::from).collect()
    }

    #[test]
    fn a_target_is_told_from_words_that_look_like_it() {
        let at = |line: &str, nth, target: &str| position(&words(line), nth, target);
        assert_eq!(at("send --key x x x", 0, "x"), Some(4));
        assert_eq!(at("send x --key x x", 0, "x"), Some(2));
        assert_eq!(at("kill a b a", 2, "a"), Some(4));
        assert_eq!(at("kill --json box:a --grace 3s", 0, "box:a"), Some(3));
        assert_eq!(at("rename a a", 0, "a"), Some(2));
        assert_eq!(at("kill -- a", 0, "a"), Some(3));
        assert_eq!(at("kill a", 0, "b"), None);
    }

    #[test]
    fn the_option_that_names_the_host_is_left_out_and_nothing_else() {
        let without = |line: &str| {
            let typed = words(line);
            let plain: Vec<String> = line.split(' ').map(str::to_owned).collect();
            without_host(&typed, &plain, "box").map(|w| w.join(" "))
        };
        assert_eq!(without("launch claude --host box -p hi").as_deref(), Some("launch claude -p hi"));
        assert_eq!(without("launch --host=box claude").as_deref(), Some("launch claude"));
        assert_eq!(without("launch claude -p --host=box --host box").as_deref(), Some("launch claude -p --host=box"));
        assert_eq!(without("launch claude --host box -- --host box").as_deref(), Some("launch claude -- --host box"));
        assert_eq!(without("kill --all --yes --host box").as_deref(), Some("kill --all --yes"));
    }

    #[test]
    fn what_another_machine_says_is_shown_line_by_line_and_acts_on_nothing() {
        let mut bytes = b"one\r\ntwo\x1b[2J\nrest".to_vec();
        let shown = lines(&mut bytes, LINE);
        assert_eq!(shown.len(), 2);
        assert!(shown[0] == "one" && !shown[1].contains('\x1b'), "{shown:?}");
        assert_eq!(bytes, b"rest");
    }
}
