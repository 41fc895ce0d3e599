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

use Answers::{Lines, Verb};
use Kind::{Flag, Number, Path, Place, Rest, Text, Texts, Word, Words};

const END: &[Parameter] = &[
    may("grace", Text, "how long a gentle end may take, like 10s"),
    may("force", Flag, "go ahead even if the wish cannot be stored"),
];
const WHICH: [Parameter; 2] = [
    may("request", Number, "which of several requests, counted from 1"),
    may("timeout", Text, "how long the session may take to go on, like 15s"),
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
        about: "The token, for the secret that `lariat web` made",
        parameters: &[must("once", Text, "the secret, good for one use")],
        answers: Answers::Enter,
    },
    get(
        "/v1/sessions",
        Verb("ls"),
        &[
            may("all", Flag, "ended sessions too"),
            may("agent", Text, "only this agent"),
            may("status", Text, "only these statuses, separated by commas"),
            may("group", Text, "only this group"),
            may("host", Text, "only this host"),
        ],
        "What is here now",
    ),
    get("/v1/sessions/{target}", Verb("status"), &[], "One session in full"),
    get("/v1/sessions/{target}/explain", Verb("explain"), &[], "Why its status is what it is"),
    get("/v1/sessions/{target}/peek", Verb("peek"), &[may("replies", Number, "how many replies")], "What it last said"),
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
    get("/v1/journal", Lines("journal"), &[], "What lariat did"),
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
            may("env", Texts, "variables for its environment, NAME=VALUE"),
            may("headless", Flag, "one prompt, structured output, no terminal"),
            may("ask", Flag, "hold what it asks, though it has no terminal"),
            may("on-exit", Text, "a command to run once it has ended"),
            may("max", Number, "how many launched sessions may run at once"),
            may("keep", Flag, "bring it back after a crash without asking"),
            may("force", Flag, "although another agent works there"),
            may("arguments", Rest, "further arguments for the agent"),
        ],
        "Launch an agent",
    ),
    post(
        "/v1/sessions/{target}/send",
        "send",
        &[must("text", Word, "what to say"), may("timeout", Text, "how long its transcript may take to show it")],
        "Say something to it",
    ),
    post("/v1/sessions/{target}/approve", "approve", &WHICH, "Allow what it asks permission for"),
    post(
        "/v1/sessions/{target}/deny",
        "deny",
        &[may("reason", Word, "why, for the agent to read"), WHICH[0], WHICH[1]],
        "Refuse what it asks permission for",
    ),
    post(
        "/v1/sessions/{target}/answer",
        "answer",
        &[must("answers", Words, "one answer for each question"), WHICH[0], WHICH[1]],
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
    post("/v1/unlock", "unlock", &[must("path", Place, "the directory, absolute")], "Give a directory up"),
];
