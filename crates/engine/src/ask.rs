//! What a launched session asks a person, and how the answer gets back.
//!
//! # Theory of operation
//!
//! An agent that can is launched with hooks: when it asks, it starts
//! `lariat __hook FOLDER` and tells it what. That process ([`hear`]) writes the
//! request into the session's folder and sleeps until an answer lies beside it;
//! then it hands the agent the answer and ends. A request is as alive as the
//! process that waits for its answer, so a crash leaves nothing that still asks.
//!
//! The agent shows its dialog meanwhile. If the person at the terminal is first,
//! the agent moves on, and the request is withdrawn: at once if what was asked for
//! has its result ([`is_settled`]), else when the agent shows no question any more.
//!
//! By the same way an agent tells that its process goes on with another session:
//! then the handle goes with it.

use std::collections::HashSet;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lariat_adapters::look::Places;
use lariat_adapters::tool::{Calls, mark};
use lariat_adapters::{Adapter, Ask as Asked, Decision};
use lariat_core::{Ask, Fact, Intent, Observation, Session, Status, Time, Want, Witness};
use lariat_shim::record::Process;
use lariat_sys::point::point;
use lariat_sys::process::{Identity, own_program};
use lariat_sys::watch::Watch;
use lariat_sys::{clock, durable, file, scan};
use serde::{Deserialize, Serialize};

use crate::launched::Launched;
use crate::list::{Question, list};
use crate::records::{self, Locks, Wish, Wishes};

/// The argument that makes `lariat` hear what an agent's hook tells.
pub const VERB: &str = "__hook";
/// Where requests lie in a session's folder.
pub const FOLDER: &str = "asks";
/// What an answer ends in once it was taken, and while it is.
const TAKEN: &str = "taken";
const TAKING: &str = "taking";
const LARGEST: u64 = 16 << 20;
/// How long an agent that shows no question must go on showing none.
const WITHDRAWN: Duration = Duration::from_secs(3);
/// How often we look whether the shim has put on record whom it started.
const RECORDED: Duration = Duration::from_millis(200);

/// Something asked and not answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Who waits for the answer.
    pub process: Process,
    /// Since when.
    pub at: Time,
    /// What the agent said, as it said it.
    pub event: String,
    /// Which of several that this process waits for, if it waits for several at once.
    #[serde(default)]
    pub part: u32,
}

impl Request {
    /// What the files of it are called.
    pub(crate) fn stem(&self) -> String {
        match self.part {
            0 => format!("{}-{}", self.process.pid, self.process.start),
            part => format!("{}-{}-{part}", self.process.pid, self.process.start),
        }
    }

    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(FOLDER).join(format!("{}.json", self.stem()))
    }
}

/// The command line that a hook runs, if this launch is to have one.
pub fn hook(folder: &Path, ask: &Asked) -> Option<String> {
    // Without a terminal an agent denies what it would have to ask, unless told to wait.
    let wanted = !ask.headless || ask.held;
    let program = own_program().ok().filter(|_| wanted)?;
    Some(format!("{} {VERB} {}", quoted(program.to_str()?), quoted(folder.to_str()?)))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What a session asks now, longest waiting first.
pub fn pending(folder: &Path) -> Vec<Request> {
    let asks = folder.join(FOLDER);
    let entries = file::Directory::open(&asks).and_then(|d| d.entries()).unwrap_or_default();
    let requests = entries.into_iter().filter(|e| e.name.ends_with(".json")).filter_map(|entry| {
        let bytes = file::read_small(&asks.join(entry.name), LARGEST).ok()?;
        let request: Request = serde_json::from_slice(&bytes).ok()?;
        matches!(Identity::from(request.process.clone()).is_alive(), Ok(true)).then_some(request)
    });
    let mut requests: Vec<Request> = requests.collect();
    requests.sort_by_key(|r| (r.at, r.process.pid, r.part));
    requests
}

/// What it asks, as its hooks tell: what has waited longest, and what somebody else has answered.
pub fn observe(agent: &str, places: &Places, folder: &Path, calls: &Calls) -> Vec<Observation> {
    let requests: Vec<(Request, Ask)> =
        pending(folder).into_iter().filter_map(|r| asked(agent, &r).map(|ask| (r, ask))).collect();
    let seen = |(request, ask): &(Request, Ask), fact: fn(Ask) -> Fact| {
        let observation = Observation::new(Witness::Hook, fact(ask.clone())).at(Some(request.at));
        observation.from(places.shown(&request.path(folder)))
    };
    let (over, asks): (Vec<_>, Vec<_>) = (0..requests.len()).partition(|&at| is_settled(&requests, at, calls));
    let asks = asks.first().map(|&at| seen(&requests[at], Fact::Asks));
    asks.into_iter().chain(over.into_iter().map(|at| seen(&requests[at], Fact::Answered))).collect()
}

/// Whether what a request asks for has its result. An event does not say which call it is about: such a call got one
/// since, and as many are asked for later as are open still.
fn is_settled(requests: &[(Request, Ask)], at: usize, calls: &Calls) -> bool {
    let (request, ask) = &requests[at];
    let mark = mark(ask);
    let open = calls.open.iter().filter(|open| **open == mark).count();
    let later = requests[at + 1..].iter().filter(|(_, other)| other == ask).count();
    later >= open && calls.settled.iter().any(|(settled, since)| *settled == mark && *since > request.at)
}

/// What a session asks that nobody has answered, by a look at it, longest waiting first.
pub fn open(places: &Places, session: &Session, folder: &Path) -> Vec<Request> {
    pending(folder).into_iter().filter(|r| !is_answered(places, session, folder, r)).collect()
}

fn is_answered(places: &Places, session: &Session, folder: &Path, request: &Request) -> bool {
    let source = places.shown(&request.path(folder));
    let answered = |o: &Observation| matches!(o.fact, Fact::Answered(_)) && o.source.as_ref() == Some(&source);
    session.because.iter().any(|(_, o)| answered(o))
}

/// A request in words.
pub fn asked(agent: &str, request: &Request) -> Option<Ask> {
    lariat_adapters::named(agent)?.asked(request.event.as_bytes())
}

/// Whether the one who waited for an answer has taken this one; `None` while that is open. Of several who answer at once, the
/// last may be heard, or the first.
pub fn is_taken(launched: &Launched, request: &Request, answer: &str) -> Option<bool> {
    let taken = launched.folder.join(FOLDER).join(format!("{}.{TAKEN}", request.stem()));
    let over = !pending(&launched.folder).contains(request);
    if file::read_small(&taken, LARGEST).is_ok_and(|it| it == answer.as_bytes()) {
        #[expect(clippy::disallowed_methods, reason = "our own note, which was read")]
        let _ = std::fs::remove_file(taken);
        return Some(true);
    }
    over.then_some(false)
}

/// Takes the answer that lies there, if one does. It is read where nobody else does anything with it, and only then shown to
/// have been taken: whoever gave it takes that away.
pub(crate) fn take(reply: &Path) -> Option<Vec<u8>> {
    let taking = reply.with_extension(TAKING);
    #[expect(clippy::disallowed_methods, reason = "our own answer, which is about to be read")]
    std::fs::rename(reply, &taking).ok()?;
    let answer = file::read_small(&taking, LARGEST).ok();
    #[expect(clippy::disallowed_methods, reason = "our own answer, which was read")]
    let _ = std::fs::rename(taking, reply.with_extension(TAKEN));
    answer
}

/// Answers a request. When it returns, the one who waits for it will find it; what it will find.
pub fn answer(launched: &Launched, request: &Request, decision: &Decision) -> Result<String, String> {
    let adapter = lariat_adapters::named(&launched.record.agent).ok_or("its agent is not known")?;
    let text = adapter.answer(request.event.as_bytes(), decision)?;
    let asks = launched.folder.join(FOLDER);
    let put = durable::put(&asks, &format!("{}.answer", request.stem()), text.as_bytes());
    put.map(|()| text).map_err(|e| format!("{}: {e}", asks.display()))
}

/// Hears what an agent's hook tells on standard input. If it asks something, waits
/// for the answer and gives it on standard output; silent if it was withdrawn.
pub fn hear(question: &Question, folder: &Path) -> io::Result<()> {
    let mut event = String::new();
    io::stdin().lock().take(LARGEST).read_to_string(&mut event)?;
    let launched = Launched::read(folder).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
    let adapter = lariat_adapters::named(&launched.record.agent);
    if adapter.map_or(Ok(false), |adapter| is_hosted(adapter, &launched))? {
        return Ok(());
    }
    match adapter.and_then(|a| a.moved(event.as_bytes())) {
        Some(native_id) => moved(&question.places, &launched, &native_id),
        None => wait(question, folder, event),
    }
}

/// Whether the one who speaks stands below a server: what a launched agent put into the background took its hooks along,
/// and is a session of its own. Who cannot be looked at may be one: then nobody is heard, and the agent asks by itself.
fn is_hosted(adapter: &dyn Adapter, launched: &Launched) -> io::Result<bool> {
    let agent = launched.shim.as_ref().map(|s| Identity::from(s.agent.clone()));
    let agent = agent.and_then(|agent| agent.here().ok().flatten()).map(|(now, _)| (now.pid, now.start));
    let own = |p: &scan::Process| agent == Some((p.pid, p.start));
    first_above(std::os::unix::process::parent_id(), scan::look, own, |p| adapter.hosts(p))
}

/// Whether the first of these two that stands above a process, or is it, is the second.
fn first_above(
    mut pid: u32,
    look: impl Fn(u32) -> io::Result<Option<scan::Process>>,
    one: impl Fn(&scan::Process) -> bool,
    other: impl Fn(&scan::Process) -> bool,
) -> io::Result<bool> {
    let mut above = HashSet::new();
    while above.insert(pid) {
        match look(pid)? {
            Some(process) if one(&process) => return Ok(false),
            Some(process) if other(&process) => return Ok(true),
            Some(process) => pid = process.ppid,
            None => break, // nobody, or another user's
        }
    }
    Ok(false)
}

/// The agent's process goes on with another session: the handle goes with it, and so
/// does what is wished of it. A stop that was asked of the one is not lost by the
/// other.
fn moved(places: &Places, launched: &Launched, native_id: &str) -> io::Result<()> {
    let handle = &launched.record.launch.handle;
    let id = format!("{}:{native_id}", launched.record.agent);
    let _act = Locks::of(places, Some(handle), &id)?.act()?;
    // Read again, now that nobody changes it.
    let launched = Launched::read(&launched.folder).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
    if launched.record.native_id.as_deref() == Some(native_id) {
        return Ok(());
    }
    let before = records::read_in(&launched.folder);
    let known = Wishes::read(places).by_id.get(&id).map_or(0, |w| w.intent.generation);
    let generation = known.max(before.as_ref().map_or(0, |w| w.intent.generation)) + 1;
    let run = Intent { want: Want::Run, generation, at: Time(clock::now_ms()), found_live: true, until: None };
    let process = launched.shim.as_ref().map(|s| s.agent.clone());
    let fresh =
        || Wish { id: id.clone(), intent: run, verb: "launch".into(), process, run: None, ahead: None, seen: None };
    let wish = match before.filter(|w| w.intent.want == Want::Stop) {
        Some(stop) => Wish { id: id.clone(), intent: Intent { generation, ..stop.intent }, ..stop },
        None => fresh(),
    };
    launched.move_on(native_id)?;
    records::put_in(&launched.folder, &wish)
}

fn wait(question: &Question, folder: &Path, event: String) -> io::Result<()> {
    let (process, _) = Identity::open(std::process::id())?;
    let request = Request { process: process.into(), at: Time(clock::now_ms()), event, part: 0 };
    let asks = folder.join(FOLDER);
    durable::make_folder(&asks)?;
    sweep(&asks);
    let (name, reply) = (format!("{}.json", request.stem()), asks.join(format!("{}.answer", request.stem())));
    durable::put(&asks, &name, serde_json::to_string(&request)?.as_bytes())?;
    point("ask.asked");
    let answer = until_answered(question, folder, &request, &reply);
    for path in [reply, asks.join(name)] {
        #[expect(clippy::disallowed_methods, reason = "our own request, which is over")]
        let _ = std::fs::remove_file(path);
    }
    match answer? {
        Some(answer) => io::stdout().lock().write_all(&answer),
        None => Ok(()),
    }
}

fn until_answered(question: &Question, folder: &Path, request: &Request, reply: &Path) -> io::Result<Option<Vec<u8>>> {
    let parent = std::os::unix::process::parent_id();
    let mut watch = Watch::new();
    watch.path(&folder.join(FOLDER));
    question.places.stores().iter().for_each(|store| watch.path(store));
    watch.process(parent);
    let mut agent = None;
    let mut quiet: Option<Instant> = None;
    loop {
        // Before any answer: to what was decided, there is none.
        let stand = stand(question, folder, request);
        if stand == Stand::Answered {
            return Ok(None);
        }
        if let Some(answer) = take(reply) {
            return Ok(Some(answer));
        }
        // One that asks at once does so before its shim has put on record who it is.
        let launched = Launched::read(folder).ok().flatten().filter(|l| l.shim.is_some());
        let gone = launched.as_ref().is_some_and(|l| matches!(l.process(), Ok(None)));
        if let (None, Some(shim)) = (agent, launched.and_then(|l| l.shim)) {
            agent = Some(shim.agent.pid);
            watch.process(shim.agent.pid);
        }
        if gone || std::os::unix::process::parent_id() != parent {
            return Ok(None);
        }
        let pause = if stand == Stand::Asks {
            quiet = None;
            Duration::from_secs(60)
        } else {
            // Between two questions it may show none for a moment.
            WITHDRAWN.saturating_sub(quiet.get_or_insert_with(Instant::now).elapsed())
        };
        if pause.is_zero() {
            return Ok(None);
        }
        let pause = if agent.is_none() { pause.min(RECORDED) } else { pause };
        watch.sleep(pause, Duration::from_millis(20))?;
    }
}

/// How a request stands with the agent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// It waits for something.
    Asks,
    /// It shows no question.
    Quiet,
    /// Somebody else has answered this one.
    Answered,
}

/// Whether the session still waits, and for this. What cannot be told is taken for yes.
fn stand(question: &Question, folder: &Path, request: &Request) -> Stand {
    let Ok(Some(launched)) = Launched::read(folder) else { return Stand::Asks };
    let answer = list(question.clone());
    let session = answer.listing.sessions.iter().find(|s| s.handle.as_ref() == Some(&launched.record.launch.handle));
    match session {
        Some(s) if is_answered(&question.places, s, folder, request) => Stand::Answered,
        Some(s) if s.status != Status::Waiting && s.live.is_some() => Stand::Quiet,
        _ => Stand::Asks,
    }
}

/// Takes away what those left who were killed while they waited.
fn sweep(asks: &Path) {
    let entries = file::Directory::open(asks).and_then(|d| d.entries()).unwrap_or_default();
    let gone = |path: &PathBuf| {
        let request = file::read_small(path, LARGEST).ok().and_then(|b| serde_json::from_slice::<Request>(&b).ok());
        request.is_some_and(|r| matches!(Identity::from(r.process).is_alive(), Ok(false)))
    };
    for path in entries.into_iter().filter(|e| e.name.ends_with(".json")).map(|e| asks.join(e.name)).filter(gone) {
        for path in [path.with_extension("answer"), path.with_extension(TAKING), path.with_extension(TAKEN), path] {
            #[expect(clippy::disallowed_methods, reason = "our own request, whose asker is gone")]
            let _ = std::fs::remove_file(path);
        }
    }
    let _ = durable::sweep(asks);
}

#[cfg(test)]
mod tests {
    use super::*;
    use lariat_core::{AskKind, Untrusted};

    fn asked(at: i64, what: &str) -> (Request, Ask) {
        let process = Identity::open(std::process::id()).expect("this process").0.into();
        let ask = Ask { kind: AskKind::Permission, text: Untrusted::new(what) };
        (Request { process, at: Time(at), event: String::new(), part: 0 }, ask)
    }

    #[test]
    fn a_request_is_over_when_what_it_asks_for_has_its_result() {
        let requests = [asked(10, "Bash make"), asked(20, "Bash ls"), asked(30, "Bash make")];
        let [make, ls] = [0, 1].map(|at: usize| mark(&requests[at].1));
        let over = |open: &[u64], settled: &[(u64, i64)]| {
            let settled = settled.iter().map(|(mark, at)| (*mark, Time(*at))).collect();
            let calls = Calls { open: open.to_vec(), settled };
            [0, 1, 2].map(|at| is_settled(&requests, at, &calls))
        };
        assert_eq!(over(&[ls], &[(make, 25)]), [true, false, false], "the third is not on record yet");
        assert_eq!(over(&[make, ls], &[(make, 25)]), [true, false, false]);
        assert_eq!(over(&[make, ls], &[(make, 35)]), [true, false, false], "the longest waiting was answered");
        assert_eq!(over(&[make, make, ls], &[(make, 35)]), [false; 3], "others than these were");
        assert_eq!(over(&[], &[(make, 35), (ls, 35)]), [true; 3]);
        assert_eq!(over(&[], &[(make, 5), (ls, 5)]), [false; 3], "that was before they were asked");
        assert_eq!(over(&[], &[]), [false; 3], "nothing tells");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test's own folder")]
    fn an_answer_is_read_however_soon_its_giver_sees_that_it_was_taken() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = std::env::temp_dir().join(format!("lariat-take-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (reply, over) = (folder.join("1-1.answer"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = std::fs::remove_file(reply.with_extension(TAKEN)); // as its giver does
                }
            });
            for n in 0..2000 {
                std::fs::write(&reply, n.to_string()).expect("an answer");
                let taken = take(&reply);
                if taken != Some(n.to_string().into_bytes()) {
                    over.store(true, Ordering::Relaxed);
                    panic!("{n}: {taken:?}");
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(take(&reply), None);
        std::fs::remove_dir_all(folder).expect("our folder");
    }

    #[test]
    fn who_cannot_be_looked_at_is_not_taken_for_no_server() {
        let me = std::process::id();
        let (is_me, nobody) = (|p: &scan::Process| p.pid == me, |_: &scan::Process| false);
        assert!(!first_above(me, scan::look, is_me, |_| true).expect("a look"), "its own agent comes first");
        assert!(first_above(me, scan::look, nobody, is_me).expect("a look"), "a server comes first");
        let parent = std::os::unix::process::parent_id();
        assert!(first_above(me, scan::look, nobody, |p| p.pid == parent).expect("a look"), "a server above it");
        assert!(!first_above(me, scan::look, nobody, nobody).expect("a look"));
        let blind = |pid| if pid == me { scan::look(pid) } else { Err(io::ErrorKind::PermissionDenied.into()) };
        assert!(first_above(me, blind, nobody, |p| p.pid == parent).is_err());
    }
}
