//! Removes arguments and results from a line, for readers that must not have them.
//!
//! What remains: names, codes, times, counts, ids, the persons who decided and their reasons. Not
//! here: the bodies of requests and responses, which [`Line`] does not have.
//!
//! Invariant: each kind of line is decided about here, and text that a service wrote, or that quotes an
//! argument, does not remain.

use std::borrow::Cow;

use toolcrib_manifest::RawJson;

use crate::line::{Line, TraceCall};
use crate::rules::RulesLine;

/// The value in place of arguments and results, as JSON.
pub const REMOVED: &str = r#""[not exported]""#;
/// Limits the bytes of an error's code; the mediator's are shorter.
const MOST_CODE: usize = 64;

impl Line<'_> {
    /// Replaces arguments and results by [`REMOVED`]. The result of a failed call keeps its error code.
    pub fn without_arguments(mut self) -> Self {
        match &mut self {
            Line::Intent(intent) => {
                intent.arguments = Cow::Owned(removed());
                intent.would_deny = intent.would_deny.take().map(code_alone);
            }
            Line::Question(question) => {
                question.arguments = Cow::Owned(removed());
                // Pointers into the arguments have names of their members.
                question.redacted = Cow::default();
            }
            Line::Turn(turn) => {
                for round in turn.tool_trace.to_mut() {
                    round.tool_calls.iter_mut().for_each(remove_of_call);
                }
            }
            Line::Rules(line) => line.rules = Cow::Owned(without_pins(line)),
            Line::Start(_) | Line::ModelCall(_) | Line::Decision(_) | Line::Gap(_) => {}
        }
        self
    }
}

/// The rules without the values of pinned arguments; none if this release cannot read them.
fn without_pins(line: &RulesLine<'_>) -> RawJson {
    let mut rules = line.read().unwrap_or_default();
    for value in rules.iter_mut().flat_map(|rule| rule.pin.values_mut()) {
        *value = removed();
    }
    let text = serde_json::to_string(&rules).expect("texts and raw JSON always serialize");
    RawJson::from_text(text).expect("it is JSON")
}

fn remove_of_call(call: &mut TraceCall) {
    call.result = match call.error_code().filter(|code| is_code(code)) {
        Some(code) => RawJson::from_text(format!(r#"{{"ok":false,"error":{{"code":"{code}"}}}}"#))
            .expect("a code needs no escape"),
        None => removed(),
    };
    call.arguments = removed();
    call.display = None;
    call.would_deny = call
        .would_deny
        .take()
        .map(|text| code_alone(text.into()).into_owned());
}

fn removed() -> RawJson {
    RawJson::from_text(REMOVED).expect("the constant is JSON")
}

fn is_code(text: &str) -> bool {
    let is_letter = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_';
    text.len() <= MOST_CODE && text.bytes().all(is_letter)
}

/// The code of `CODE: MESSAGE`, since a message can quote an argument.
fn code_alone(text: Cow<'_, str>) -> Cow<'_, str> {
    match text.split_once(':').map_or(&*text, |(code, _)| code) {
        code if is_code(code) => Cow::Owned(code.to_owned()),
        _ => Cow::Borrowed("denied"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let line = Line::parse(line.as_bytes()).unwrap().without_arguments();
        assert_eq!(serde_json::to_string(&line).unwrap(), expected);
    }

    const WHO: &str = r#""agent_id":"otter","namespace":"pond","pod":"otter-0","timestamp":"2026-11-27T08:00:00Z""#;

    #[test]
    fn values_of_pinned_arguments_are_removed_from_rules() {
        let rules = |pin: &str| {
            format!(
                r#"{{"kind":"rules","namespace":"pond","agent":"otter","pod":"otter-0","timestamp":"2026-11-27T08:00:00Z","name":"bank.pay","rules":[{{"digest":"r1:a","grant":{{"name":"g","namespace":"pond"}},"pin":{{"iban":{pin}}}}}]}}"#
            )
        };
        check(&rules(r#""DE00""#), &rules(REMOVED));
    }

    #[test]
    fn arguments_and_results_are_removed_and_codes_remain() {
        check(
            &format!(
                r#"{{"kind":"intent","request_id":"r1",{WHO},"round":1,"name":"bank.pay","arguments":{{"iban":"DE00"}},"service":"bank","tier":"System","read_only":false,"would_deny":"condition_failed: iban is DE00","chain":"c","seq":3}}"#
            ),
            &format!(
                r#"{{"kind":"intent","request_id":"r1",{WHO},"round":1,"name":"bank.pay","arguments":"[not exported]","service":"bank","tier":"System","read_only":false,"would_deny":"condition_failed","chain":"c","seq":3}}"#
            ),
        );
        let turn = |calls: &str| {
            format!(
                r#"{{"kind":"turn","request_id":"r1",{WHO},"dialect":"openai_chat","token":"t1","http_status":200,"duration_ms":5,"status":"ok","usage":{{"prompt_tokens":1,"completion_tokens":2}},"tool_trace":[{{"round":1,"tool_calls":[{calls}],"round_usage":{{"prompt_tokens":1,"completion_tokens":2}}}}],"chain":"c","seq":4}}"#
            )
        };
        let call = |arguments: &str, result: &str, rest: &str| {
            format!(
                r#"{{"name":"bank.pay","arguments":{arguments},"result":{result},"latency_ms":7,"executed":true{rest}}}"#
            )
        };
        let removed = r#""[not exported]""#;
        for (result, rest, left) in [
            (
                r#"{"ok":true,"data":"DE00"}"#,
                r#","display":"paid DE00""#,
                removed,
            ),
            (
                r#"{"ok":false,"error":{"code":"http_503","message":"no DE00"}}"#,
                "",
                r#"{"ok":false,"error":{"code":"http_503"}}"#,
            ),
            (r#"{"error":{"code":"DE00 \" is no code"}}"#, "", removed),
        ] {
            check(
                &turn(&call(r#"{"iban":"DE00"}"#, result, rest)),
                &turn(&call(removed, left, "")),
            );
        }
    }

    #[test]
    fn a_question_keeps_its_rules_and_no_pointer_into_its_arguments() {
        let question = |arguments: &str, redacted: &str| {
            format!(
                r#"{{"kind":"question","request_id":"r1","call_id":"r1-1-0",{WHO},"question":"q1","call_digest":"d","name":"bank.pay","entry":"e","tier":"System","arguments":{arguments}{redacted},"policies":["p"],"expires_at":"2026-11-27T09:00:00Z","chain":"c","seq":2}}"#
            )
        };
        check(
            &question(r#"{"DE00":1}"#, r#","redacted":["/DE00"]"#),
            &question(r#""[not exported]""#, ""),
        );
    }
}
