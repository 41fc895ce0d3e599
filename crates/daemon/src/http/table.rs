//! Every route: one table, from which requests are answered, the OpenAPI document is
//! written and the tests of who may ask are made.

use super::routes::{Answers, Kind, Parameter, Route};

const fn may(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, kind, about, required: false }
}

const fn must(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, kind, about, required: true }
}

const fn get(path: &'static str, answers: Answers, parameters: &'static [Parameter], about: &'static str) -> Route {
    Route { method: "GET", path, about, parameters, answers }
}

const fn post(path: &'static str, verb: &'static str, parameters: &'static [Parameter], about: &'static str) -> Route {
    Route { method: "POST", path, about, parameters, answers: Answers::Verb(verb) }
}

const fn post_lines(
    path: &'static str,
    verb: &'static str,
    parameters: &'static [Parameter],
    about: &'static str,
) -> Route {
    Route { method: "POST", path, about, parameters, answers: Answers::Lines(verb) }
}

use Answers::{Lines, Verb};
use Kind::{Flag, Number, Path, Paths, Place, Rest, Text, Texts, Word, Words};

const END: &[Parameter] = &[
    may("grace", Text, "how long a gentle end may take, like 10s"),
    may("force", Flag, "go ahead even if the wish cannot be stored"),
];
const WHICH: [Parameter; 3] = [
    may("request", Number, "which of several requests, counted from 1"),
    may("timeout", Text, "how long the session may take to go on, like 15s"),
    may("expect", Text, "only if this is what it asks, as its reason says"),
];
const AGAIN: &[Parameter] = &[
    may("message", Word, "what to say to it"),
    may("headless", Flag, "without a terminal"),
    may("terminal", Flag, "with a terminal, though it had none"),
    may("env", Texts, "variables for its environment, NAME=VALUE"),
    may("force", Flag, "although another agent works there"),
    may("arguments", Rest, "further arguments for the agent"),
];

/// Every route.
pub const ROUTES: &[Route] = &[
    get("/", Answers::Page(Some("index.html")), &[], "The page"),
    get("/assets/{name}", Answers::Page(None), &[], "What the page needs"),
    Route {
        method: "POST",
        path: "/v1/enter",
        about: "A pass for a page, for the secret that `lariat web` made",
        parameters: &[must("once", Text, "the secret, good for one use")],
        answers: Answers::Enter,
    },
    Route {
        method: "POST",
        path: "/v1/meet",
        about: "Proves to a page that this is the daemon it knows, before it says anything",
        parameters: &[
            must("page", Text, "the page's name"),
            must("nonce", Text, "32 hexadecimal digits that nobody used before"),
        ],
        answers: Answers::Meet,
    },
    Route {
        method: "POST",
        path: "/v1/page",
        about: "The pass and the key of the page that asks, or of a new one",
        parameters: &[],
        answers: Answers::Admit,
    },
    get(
        "/v1/sessions",
        Verb("ls"),
        &[
            may("all", Flag, "ended sessions too"),
            may("agent", Text, "only this agent"),
            may("status", Text, "only these statuses, separated by commas"),
            may("group", Text, "only this group"),
            may("host", Text, "only this host; `local` for this machine, which asks no other"),
            may("limit", Number, "at most so many at once, in the order of ids"),
            may("after", Text, "those after this id: `next` of the page before"),
        ],
        "What is here now",
    ),
    get("/v1/sessions/{target}", Verb("status"), &[], "One session in full"),
    get("/v1/sessions/{target}/explain", Verb("explain"), &[], "Why its status is what it is"),
    get("/v1/sessions/{target}/peek", Verb("peek"), &[may("replies", Number, "how many replies")], "What it last said"),
    get(
        "/v1/sessions/{target}/talk",
        Verb("peek --all"),
        &[
            may("before", Number, "what was said before this number, which the page after it told"),
            may("limit", Number, "how much is in a page; 50 unless told, 1000 at most"),
        ],
        "The whole conversation, in pages from the end",
    ),
    get(
        "/v1/sessions/{target}/diff",
        Verb("diff"),
        &[may("stat", Flag, "only which files, and how much of them")],
        "What was changed where it works",
    ),
    get(
        "/v1/sessions/{target}/logs",
        Lines("logs"),
        &[may("lines", Number, "only so many lines from the end")],
        "What a launched session wrote",
    ),
    get(
        "/v1/sessions/{target}/wait",
        Verb("wait"),
        &[
            may("until", Text, "idle, waiting or done; one that has ended is waited for no longer"),
            may("timeout", Text, "how long at most, like 30s"),
        ],
        "Answers when it comes to rest, needs you, or has ended",
    ),
    get("/v1/sessions/{target}/terminal", Answers::Terminal, &[], "Its terminal, on a WebSocket"),
    get("/v1/status", Verb("status"), &[], "How many there are of each kind"),
    get("/v1/restore", Verb("restore"), &[may("kept", Flag, "only those that are kept")], "What could be brought back"),
    get("/v1/locks", Verb("locks"), &[], "Who holds which directory"),
    get(
        "/v1/journal",
        Lines("journal"),
        &[may("lines", Number, "only so many entries from the end"), may("before", Number, "those before this number")],
        "What lariat did",
    ),
    get(
        "/v1/usage",
        Verb("usage"),
        &[
            may("by", Text, "day, agent, model, dir, group or session"),
            may("since", Text, "only what was used since: 7d, 2026-11-01"),
        ],
        "Tokens and cost, over all sessions",
    ),
    get("/v1/sessions/{target}/usage", Verb("usage"), &[], "What it used, over time"),
    get("/v1/worktrees", Verb("worktree ls"), &[], "The checkouts that lariat made"),
    get("/v1/fuses", Verb("fuse ls"), &[], "Fuses, and how far they have burnt"),
    get(
        "/v1/gc",
        Verb("gc"),
        &[may("retain", Text, "how long what has ended is kept, like 7d")],
        "What could be forgotten",
    ),
    get("/v1/deliveries", Verb("daemon deliveries"), &[], "What is owed to webhooks, and what nobody took"),
    get(
        "/v1/daemon/logs",
        Lines("daemon logs"),
        &[may("lines", Number, "only so many lines from the end")],
        "What the daemon did",
    ),
    get("/v1/doctor", Verb("doctor"), &[], "What this machine offers"),
    get("/v1/daemon", Answers::Status, &[], "How the daemon is"),
    get(
        "/v1/events",
        Answers::Events,
        &[may("since", Text, "the last event that is known")],
        "What happens, as it happens",
    ),
    get("/v1/openapi.json", Answers::OpenApi, &[], "This description"),
    get("/metrics", Answers::Metrics, &[], "Numbers for Prometheus"),
    post(
        "/v1/sessions",
        "launch",
        &[
            must("agent", Word, "the agent"),
            must("cwd", Path, "where it works, absolute"),
            may("prompt", Text, "what to ask"),
            may("name", Text, "a name for the session"),
            may("model", Text, "the model"),
            may("group", Text, "the group it belongs to"),
            may("file", Paths, "files to put before the prompt, absolute"),
            may("worktree", Text, "a checkout of its own, on this branch; an empty text for a new branch"),
            may("base", Text, "where the new branch begins"),
            may("setup", Text, "a command to run in the new worktree first"),
            may("env", Texts, "variables for its environment, NAME=VALUE"),
            may("headless", Flag, "one prompt, structured output, no terminal"),
            may("ask", Flag, "hold what it asks, though it has no terminal"),
            may("on-launch", Text, "a command to run once it is launched"),
            may("on-exit", Text, "a command to run once it has ended"),
            may("max", Number, "how many launched sessions may run at once"),
            may("queue", Flag, "wait while as many run as may"),
            may("keep", Flag, "bring it back after a crash without asking"),
            may("force", Flag, "although another agent works there"),
            may("arguments", Rest, "further arguments for the agent"),
        ],
        "Launch an agent",
    ),
    post(
        "/v1/sessions/{target}/send",
        "send",
        &[
            must("text", Word, "what to say"),
            may("timeout", Text, "how long its transcript may take to show it"),
            may("key", Text, "a text with the same key is typed only once"),
            may("wait", Flag, "answer with the reply, when the turn is over"),
            may("when-idle", Flag, "hold it back until it stands at its prompt"),
        ],
        "Say something to it",
    ),
    post("/v1/sessions/{target}/approve", "approve", &WHICH, "Allow what it asks permission for"),
    post(
        "/v1/sessions/{target}/deny",
        "deny",
        &[may("reason", Word, "why, for the agent to read"), WHICH[0], WHICH[1], WHICH[2]],
        "Refuse what it asks permission for",
    ),
    post(
        "/v1/sessions/{target}/answer",
        "answer",
        &[must("answers", Words, "one answer for each question"), WHICH[0], WHICH[1], WHICH[2]],
        "Answer what it asks",
    ),
    post("/v1/sessions/{target}/stop", "stop", END, "End it gently, for good"),
    post("/v1/sessions/{target}/kill", "kill", END, "End it at once, for good"),
    post("/v1/sessions/{target}/resume", "resume", AGAIN, "Go on with it"),
    post("/v1/sessions/{target}/fork", "fork", AGAIN, "Begin a new one with what was said in it"),
    post("/v1/sessions/{target}/rename", "rename", &[must("name", Word, "its new name")], "Give it another name"),
    post("/v1/sessions/{target}/keep", "keep", &[may("off", Flag, "no longer")], "Bring it back without asking"),
    post(
        "/v1/restore",
        "restore",
        &[
            must("yes", Flag, "do it"),
            may("max", Number, "how many may run at once"),
            may("kept", Flag, "only those that are kept"),
            may("force", Flag, "although other agents work there"),
        ],
        "Bring back what was cut off",
    ),
    post(
        "/v1/lock",
        "lock",
        &[
            must("path", Place, "the directory, absolute"),
            may("by", Text, "who holds it"),
            may("reason", Text, "what for"),
            may("for", Text, "how long, like 2h"),
            may("force", Flag, "although somebody else holds it"),
        ],
        "Hold a directory",
    ),
    post_lines(
        "/v1/worktrees/clean",
        "worktree clean",
        &[
            may("targets", Words, "handles, branches or paths; none for all that lariat made"),
            may("force", Flag, "save work that is in no commit, then remove"),
            may("dry-run", Flag, "only say what would be done"),
        ],
        "Remove worktrees that nobody is in, with nothing lost",
    ),
    post_lines(
        "/v1/worktrees/save",
        "worktree save",
        &[must("targets", Words, "handles, branches or paths")],
        "Save everything in worktrees as commits of their own",
    ),
    post(
        "/v1/worktrees/apply",
        "worktree apply",
        &[
            must("saved", Word, "HANDLE for what was saved last, or HANDLE/N"),
            may("into", Path, "a checkout, absolute"),
        ],
        "Give saved work back",
    ),
    post(
        "/v1/fuses",
        "fuse set",
        &[
            must("target", Word, "a session, or a directory"),
            may("after", Text, "after this time, like 30m"),
            may("tokens", Number, "when it has used so many tokens"),
            may("cost", Text, "when it has cost so many dollars"),
            may("minutes", Number, "when it has run so many minutes"),
            may("idle", Text, "when it has been idle for this time"),
            may("then", Text, "stop, kill, cmd or webhook; answers say command for cmd, and tell for webhook"),
            may("run", Text, "the command, for cmd"),
        ],
        "Set a fuse",
    ),
    post(
        "/v1/fuses/{target}/extend",
        "fuse extend",
        &[must("by", Text, "how much more time, like 10m")],
        "Give a fuse more time",
    ),
    post("/v1/fuses/{target}/cancel", "fuse cancel", &[], "Take a fuse away"),
    post(
        "/v1/gc",
        "gc",
        &[must("yes", Flag, "do it"), may("retain", Text, "how long what has ended is kept, like 7d")],
        "Forget our records of what has ended long ago",
    ),
    post("/v1/unlock", "unlock", &[must("path", Place, "the directory, absolute")], "Give a directory up"),
];
