//! How a transcript ends: what the program leaves behind when the last turn is
//! answered, fails, is stopped by a person, or is cut off.

use super::super::Ending;
use super::{Link, Session};

impl Session<'_, '_> {
    /// Ends the turn that is open, and says how.
    pub(super) fn end(&mut self, ending: Ending) -> &'static str {
        match ending {
            Ending::Done => {
                self.answer();
                self.turn_over();
                if self.rng.chance(0.25) {
                    return "answered, killed when idle";
                }
                self.cost_state();
                "answered"
            }
            Ending::Failed => {
                self.api_error();
                self.last_prompt();
                self.cost_state();
                "api error"
            }
            Ending::Stopped => self.end_stopped(),
            Ending::Open => self.end_open(),
        }
    }

    fn end_stopped(&mut self) -> &'static str {
        if self.rng.chance(0.5) {
            self.last_prompt();
            self.cost_state();
            self.said_by_user(r#"{"type":"text","text":"[Request interrupted by user]"}"#, "");
            return "interrupt while thinking";
        }
        self.use_tool();
        self.last_prompt();
        self.cost_state();
        let call = self.call;
        let rejected = format!(
            r#"{{"type":"tool_result","content":"The user doesn't want to proceed with this tool use.","is_error":true,"tool_use_id":"toolu_{}"}}"#,
            call.short(23)
        );
        self.said_by_user(&rejected, r#","toolUseResult":"User rejected tool use","toolDenialKind":"user-rejected""#);
        self.snapshot();
        self.said_by_user(r#"{"type":"text","text":"[Request interrupted by user for tool use]"}"#, "");
        self.last_prompt();
        "interrupt in tool"
    }

    fn end_open(&mut self) -> &'static str {
        match self.rng.below(4) {
            0 => {
                self.answer();
                self.turn_over();
                self.prompt();
                self.last_prompt();
                self.cost_state();
                "terminated after a prompt"
            }
            1 => {
                self.use_tool();
                self.last_prompt();
                "killed in a tool"
            }
            2 => {
                self.use_tool();
                self.result();
                "killed after a tool"
            }
            _ => {
                self.use_tool();
                let whole = self.out.len();
                self.result();
                // Half a line of the result, without its newline.
                let torn = whole + (self.out.len() - whole) / 2;
                self.out.truncate(torn);
                "killed in a write"
            }
        }
    }

    fn said_by_user(&mut self, content: &str, more: &str) {
        let (uuid, at) = (self.rng.uuid(), self.tick(10, 4_000));
        let parent = Link(self.parent.replace(uuid));
        let common = self.common;
        let side = if self.current { r#""isSidechain":false,"# } else { "" };
        self.line(format_args!(
            r#"{{"parentUuid":{parent},{side}"type":"user","message":{{"role":"user","content":[{content}]}},"uuid":"{uuid}","timestamp":"{at}"{more},{common}}}"#
        ));
    }

    fn api_error(&mut self) {
        let (uuid, message, at) = (self.rng.uuid(), self.rng.uuid(), self.tick(10, 4_000));
        let parent = Link(self.parent.replace(uuid));
        let common = self.common;
        let side = if self.current { r#""isSidechain":false,"# } else { "" };
        self.line(format_args!(
            r#"{{"parentUuid":{parent},{side}"type":"assistant","uuid":"{uuid}","timestamp":"{at}","message":{{"id":"{message}","container":null,"model":"<synthetic>","role":"assistant","stop_reason":"stop_sequence","stop_sequence":"","type":"message","usage":{{"input_tokens":0,"output_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"server_tool_use":{{"web_search_requests":0,"web_fetch_requests":0}},"service_tier":null}},"content":[{{"type":"text","text":"API Error: 529 overloaded"}}],"context_management":null}},"error":"unknown","isApiErrorMessage":true,"apiErrorStatus":529,{common}}}"#
        ));
    }
}
