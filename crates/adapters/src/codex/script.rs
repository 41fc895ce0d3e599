//! Scripts that call tools: models since GPT-5.6 write one in place of calling the tools themselves.
//!
//! The rollout has the script as one call, and of the tools in it only that they have ended. What runs for one bears
//! an id of its own and the thread's.

use crate::reader::TEXT;
use crate::tool::Call;

/// The program that runs scripts, as the kernel names it. It stays, and is no command.
pub const HOST: &str = "codex-code-mode";

/// Tools that may have to ask a person first.
const ASKING: [&str; 3] = ["exec_command", "apply_patch", "request_permissions"];
/// Tools that are over at once.
const QUICK: [&str; 2] = ["update_plan", "view_image"];
/// What else a script may wait by, or call tools by.
const OTHERWISE: [&str; 2] = ["setTimeout", "tools["];

/// Whether a call is a script.
pub fn is_script(call: &Call) -> bool {
    call.name == "exec" && call.gist.contains("tools.")
}

/// Whether all that a script can wait for is a command, or a person's leave for one. Of one that is cut short here
/// that is not known.
pub fn may_ask(call: &Call) -> bool {
    let whole = call.gist.len() + 3 < TEXT;
    let tools = || call.gist.split("tools.").skip(1).map(name);
    is_script(call)
        && whole
        && !OTHERWISE.iter().any(|word| call.gist.contains(word))
        && tools().all(|tool| ASKING.contains(&tool) || QUICK.contains(&tool))
        && tools().any(|tool| ASKING.contains(&tool))
}

fn name(rest: &str) -> &str {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_script_of_commands_waits_for_nothing_else() {
        let script = |text: &str| Call { id: "c".into(), name: "exec".into(), gist: text.into(), at: None };
        for asks in [
            "await tools.exec_command({cmd: 'rm -rf build'})",
            "await tools.request_permissions({reason: 'x'})",
            "await tools.update_plan({}); text(await tools.apply_patch(`*** Begin Patch`));",
        ] {
            assert!(may_ask(&script(asks)), "{asks}");
        }
        for other in [
            "await new Promise(() => {})",
            "await tools.view_image({path: 'a.png'})",
            "await tools.exec_command({cmd: 'ls'}); await tools.mcp__web__find({})",
            "await tools.exec_command({cmd: 'ls'}); await tools['slow']()",
            "await tools.exec_command({cmd: 'ls'}); await new Promise(f => setTimeout(f, 9000))",
        ] {
            assert!(!may_ask(&script(other)), "{other}");
        }
        let long = format!("await tools.exec_command({{cmd: 'echo {}", "x".repeat(TEXT));
        assert!(!may_ask(&script(&long[..TEXT])), "the rest of it may call for anything");
        assert!(!may_ask(&Call { name: "exec_command".into(), ..script("await tools.exec_command()") }));
    }
}
