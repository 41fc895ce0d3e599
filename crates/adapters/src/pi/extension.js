// Loaded by a Pi that lariat launched, for that launch only. It writes beside itself which session
// the process holds, whether a turn is open and what other extensions ask a person: Pi shows none of that
// from outside. It changes nothing.
import { spawn } from "node:child_process";
import { appendFileSync } from "node:fs";

// The command that hears with which session the process goes on; lariat fills it in.
const hook = null;
const place = new URL("./pi-events.jsonl", import.meta.url);
let prompt;
// What is asked now, the last one last.
let asked = [];

// Whether there is no model that it has a key for: undefined if it cannot be told.
function needsLogin(context) {
  try {
    const models = context.modelRegistry.getAvailable();
    return Array.isArray(models) ? models.length === 0 : undefined;
  } catch {
    return undefined;
  }
}

function tell(event, context) {
  try {
    const session = context.sessionManager;
    const line = {
      event,
      pid: process.pid,
      at: new Date().toISOString(),
      id: session.getSessionId(),
      file: session.getSessionFile(),
      cwd: context.cwd,
      prompt,
      asks: asked.at(-1)?.text,
      login: needsLogin(context),
      terminal: process.stdout.isTTY === true,
    };
    appendFileSync(place, JSON.stringify(line) + "\n");
  } catch {
    // A full disk is no reason to disturb the agent.
  }
}

// Tells that the process has gone on to another session, so that its handle goes along.
function moved(context) {
  try {
    const heard = spawn("/bin/sh", ["-c", hook], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
    heard.on("error", () => {});
    heard.stdin.on("error", () => {});
    heard.stdin.end(JSON.stringify({ event: "moved", id: context.sessionManager.getSessionId() }));
    heard.unref();
  } catch {
    // As above.
  }
}

// Hears what extensions ask by the dialogs that Pi has for them, and that it is over.
const heard = new WeakSet();
function hear(context) {
  const ui = context.hasUI ? context.ui : undefined;
  if (!ui || heard.has(ui)) return;
  heard.add(ui);
  for (const name of ["select", "confirm", "input", "editor", "custom"]) {
    const ask = ui[name];
    if (typeof ask !== "function") continue;
    ui[name] = (...words) => {
      const said = words.slice(0, name === "confirm" ? 2 : 1).filter((word) => typeof word === "string");
      const question = { text: said.join(": ").slice(0, 600) || "what an extension shows" };
      const answer = ask.apply(ui, words);
      asked.push(question);
      tell("asks", context);
      const answered = () => {
        asked = asked.filter((other) => other !== question);
        tell("answered", context);
      };
      Promise.resolve(answer).then(answered, answered);
      return answer;
    };
  }
}

export default function (pi) {
  pi.on("before_agent_start", (event) => {
    prompt = typeof event.prompt === "string" ? event.prompt.slice(0, 600) : undefined;
  });
  const told = ["session_start", "model_select", "agent_start", "agent_end", "agent_settled", "session_compact", "session_tree"];
  for (const event of told) {
    pi.on(event, (more, context) => {
      if (event === "session_start") {
        [prompt, asked] = [undefined, []];
        try {
          hear(context);
        } catch {
          // Another version may have them otherwise.
        }
      }
      tell(event, context);
      const another = event === "session_start" && ["new", "resume", "fork"].includes(more?.reason);
      if (another && hook) moved(context);
    });
  }
  // It says that it will make the conversation shorter, that it has, and nothing if that fails. So it does when it
  // leaves a branch of it, and is to sum that up.
  const shortens = (name, event, context) => {
    tell(name, context);
    event.signal?.addEventListener?.("abort", () => tell("compaction_aborted", context), { once: true });
  };
  pi.on("session_before_compact", (event, context) => shortens("session_before_compact", event, context));
  pi.on("session_before_tree", (event, context) => {
    const left = event.preparation;
    if (left?.userWantsSummary && left.entriesToSummarize?.length) shortens("session_before_tree", event, context);
  });
}
