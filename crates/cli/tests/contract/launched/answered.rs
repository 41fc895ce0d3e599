//! What a launched Claude Code asks, answered by the person at its terminal.

use lariat_testkit::{DEADLINE, agents::Claude, wait_until};

use super::{act, handle, launch};
use crate::looks::Stage;

#[test]
fn what_was_answered_at_the_terminal_is_asked_no_more_while_the_next_is() {
    let stage = Stage::new("answered-in-turn");
    let _claude = Claude::install(&stage.sandbox, &stage.model);
    let asks = ["claude", "-p", "PARALLEL touch p1 ;; touch p2 ;; touch p3", "--", "--permission-mode", "manual"];
    let launched = launch(&stage, &asks);
    let terminal = stage.sandbox.terminal(&stage.lariat().args(["attach", handle(&launched)]));
    for made in ["p1", "p2"] {
        let reason = format!("permission: Bash touch {made}");
        stage.until("waiting", &reason);
        for verb in ["status", "explain", "peek"] {
            assert_eq!(act(&stage, &[verb, handle(&launched), "--json"])["reason"], reason, "{verb}");
        }
        terminal.choose_while('❯', 1, DEADLINE, |screen| {
            let after = screen.rsplit_once(&format!("touch {made}")).map_or("", |(_, after)| after);
            after.contains("Do you want to proceed?") && !after.contains("touch")
        });
        wait_until("it is done", DEADLINE, || stage.sandbox.work().join(made).exists());
    }
    stage.until("waiting", "permission: Bash touch p3");
    // There is one thing to decide, and it is not one that was decided.
    let told = act(&stage, &["approve", handle(&launched), "--json"]);
    assert_eq!(told["asked"], "permission: Bash touch p3", "{told}");
    stage.until("idle", "turn over");

    // Nor is a question asked from here any more, once it was answered there.
    act(&stage, &["send", handle(&launched), "ASK me", "--json"]);
    stage.until("waiting", "question: Which colour?");
    terminal.wait_for_text("Which colour?", DEADLINE);
    terminal.choose('❯', 1, DEADLINE);
    stage.until("idle", "turn over");
    let refused = stage.sandbox.world().run(&stage.lariat().args(["approve", handle(&launched)]));
    assert!(refused.code() == 3 && refused.stderr.contains("it asks nothing"), "{}", refused.stderr);
    act(&stage, &["kill", handle(&launched), "--json"]);
}
