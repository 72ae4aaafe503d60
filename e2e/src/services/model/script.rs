//! The format of a script, and the choice of a step for a request.
//!
//! A script is a list of steps; the first whose `when` matches the request is played. A step
//! depends only on the request, so conversations need no state here. `times` limits how often a
//! step may be played in all.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::services::model::Conversation;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The condition; missing: every request matches.
    #[serde(default)]
    pub when: StepCondition,
    /// How often this step may be played, over all conversations; missing: always.
    #[serde(default)]
    pub times: Option<u32>,
    pub reply: Reply,
}

/// The condition of a step: all fields that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepCondition {
    /// The last message of the user contains this text, ignoring case.
    pub user_contains: Option<String>,
    /// Number of replies with tool calls since that message.
    pub round: Option<u32>,
    pub round_at_least: Option<u32>,
    /// A tool whose name contains this text is offered.
    pub offers: Option<String>,
    /// No tool whose name contains this text is offered.
    pub lacks: Option<String>,
    /// The last tool result of this turn contains this text.
    pub result_contains: Option<String>,
    /// The model name of the request, exactly.
    pub model: Option<String>,
    pub stream: Option<bool>,
}

/// The reply: text, then calls, in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reply {
    /// `{tool_result}` is the last tool result of the turn, `{tool_results}` all of them,
    /// `{tools}` the names of the offered tools, `{user}` the user's last message.
    pub text: Option<String>,
    /// Thinking that comes before the text, in the dialects that have it.
    pub reasoning: Option<String>,
    pub calls: Vec<CallSpec>,
    /// Finish reason in the dialect's own words; replaces the one that the content implies.
    pub finish: Option<String>,
    pub usage: UsageSpec,
    /// Milliseconds before the first byte.
    pub delay_ms: u64,
    /// Milliseconds between two events of a stream.
    pub between_ms: u64,
    /// A fault that replaces the reply or interrupts it.
    pub fault: Option<Fault>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallSpec {
    pub tool: ToolRef,
    #[serde(default)]
    pub arguments: ArgumentsSpec,
    /// The call's id; missing: a fresh one, as from real models.
    #[serde(default)]
    pub id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolRef {
    /// A tool of exactly this name, offered or not.
    Named(String),
    /// The first offered tool whose name contains this text.
    Containing(String),
}

/// Arguments as a JSON value, or as the exact text to send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ArgumentsSpec {
    /// Sent unchanged, valid JSON or not.
    Text {
        raw: String,
    },
    Value(Value),
}

impl Default for ArgumentsSpec {
    fn default() -> Self {
        Self::Value(Value::Object(serde_json::Map::new()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UsageSpec {
    pub prompt: u64,
    pub completion: u64,
}

impl Default for UsageSpec {
    fn default() -> Self {
        Self {
            prompt: 11,
            completion: 7,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The connection is reset before the first byte of an answer.
    Reset,
    /// An error of the dialect with this status.
    Status {
        code: u16,
        /// In seconds.
        #[serde(default)]
        retry_after: Option<u32>,
        /// Default: `scripted fault`.
        #[serde(default)]
        message: Option<String>,
    },
    /// The answer ends early: after half of the JSON body or of the events.
    Truncated,
    /// A JSON body, or an event's data, that cannot be parsed.
    Malformed,
}

/// One call of a reply, with its name resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// The namespace in which the tool is offered. Only the Responses API has them.
    pub namespace: Option<String>,
    /// The arguments' text as sent.
    pub arguments: String,
}

/// A text that is not a script.
#[derive(Debug, thiserror::Error)]
pub enum NoScript {
    #[error("not YAML: {0}")]
    Yaml(#[from] serde_yaml::Error),
    #[error("not a script: {0}")]
    Shape(#[from] serde_json::Error),
}

/// A step that cannot be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    #[error("the script has no step for this request")]
    NoStep,
    #[error("the script calls a tool whose name contains {0:?}, and none is offered")]
    NotOffered(String),
}

impl Script {
    /// The script that the binary plays without `--script`.
    pub fn default_script() -> Self {
        Self::parse(include_str!("default.yaml")).expect("a test parses it")
    }

    /// Parses YAML, and so JSON too.
    pub fn parse(text: &str) -> Result<Self, NoScript> {
        let mut value: serde_yaml::Value = serde_yaml::from_str(text)?;
        value.apply_merge()?;
        // Converted to JSON first, since serde_yaml would want enums as `!tags`.
        Ok(serde_json::from_value(serde_json::to_value(value)?)?)
    }

    /// The first matching step that is not used up; `played` counts plays per step.
    pub fn select(&self, conversation: &Conversation, played: &[u32]) -> Option<usize> {
        self.steps.iter().enumerate().position(|(index, step)| {
            let left = step
                .times
                .is_none_or(|times| played.get(index).copied().unwrap_or(0) < times);
            left && step.when.holds(conversation)
        })
    }
}

impl StepCondition {
    fn holds(&self, conversation: &Conversation) -> bool {
        let contains = |text: &str, part: &str| text.to_lowercase().contains(&part.to_lowercase());
        let offered = |part: &String| conversation.tool_containing(part).is_some();
        self.user_contains
            .as_ref()
            .is_none_or(|part| contains(&conversation.user, part))
            && self.round.is_none_or(|round| conversation.round == round)
            && self
                .round_at_least
                .is_none_or(|round| conversation.round >= round)
            && self.offers.as_ref().is_none_or(offered)
            && !self.lacks.as_ref().is_some_and(offered)
            && self.result_contains.as_ref().is_none_or(|part| {
                conversation
                    .results
                    .last()
                    .is_some_and(|result| contains(result, part))
            })
            && self
                .model
                .as_ref()
                .is_none_or(|model| conversation.model == *model)
            && self
                .stream
                .is_none_or(|stream| conversation.stream == stream)
    }
}

impl Reply {
    /// The text with its placeholders filled in from the request.
    pub fn text_for(&self, conversation: &Conversation) -> Option<String> {
        let last = conversation
            .results
            .last()
            .map_or("(no tool result)", String::as_str);
        let template = self.text.as_deref()?;
        // One pass: a placeholder inside a tool result is not expanded.
        let mut text = String::new();
        let mut rest = template;
        while let Some(start) = rest.find('{') {
            text.push_str(&rest[..start]);
            rest = &rest[start..];
            let known = [
                ("{tool_result}", last.to_string()),
                ("{tool_results}", conversation.results.join("\n")),
                ("{tools}", conversation.tools.join(", ")),
                ("{user}", conversation.user.clone()),
            ];
            match known.iter().find(|(name, _)| rest.starts_with(name)) {
                Some((name, value)) => {
                    text.push_str(value);
                    rest = &rest[name.len()..];
                }
                None => {
                    text.push('{');
                    rest = &rest[1..];
                }
            }
        }
        text.push_str(rest);
        Some(text)
    }

    /// The calls with their names resolved; `fresh_id` gives ids to those that have none.
    pub fn calls_for(
        &self,
        conversation: &Conversation,
        mut fresh_id: impl FnMut() -> String,
    ) -> Result<Vec<Call>, ScriptError> {
        let resolve = |call: &CallSpec| {
            let name = match &call.tool {
                ToolRef::Named(name) => name.clone(),
                ToolRef::Containing(part) => conversation
                    .tool_containing(part)
                    .ok_or_else(|| ScriptError::NotOffered(part.clone()))?
                    .to_string(),
            };
            let arguments = match &call.arguments {
                ArgumentsSpec::Text { raw } => raw.clone(),
                ArgumentsSpec::Value(value) => value.to_string(),
            };
            Ok(Call {
                id: call.id.clone().unwrap_or_else(&mut fresh_id),
                namespace: conversation.namespaces.get(&name).cloned(),
                name,
                arguments,
            })
        };
        self.calls.iter().map(resolve).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn conversation(user: &str, tools: &[&str], results: &[&str]) -> Conversation {
        Conversation {
            model: "otter-1".into(),
            stream: false,
            user: user.into(),
            tools: tools.iter().map(ToString::to_string).collect(),
            namespaces: BTreeMap::new(),
            results: results.iter().map(ToString::to_string).collect(),
            round: results.len().try_into().unwrap(),
        }
    }

    /// Plays the default script and compares the called tool's name, or the text.
    fn check(user: &str, tools: &[&str], results: &[&str], expected: &str) {
        let script = Script::default_script();
        let conversation = conversation(user, tools, results);
        let step = &script.steps[script.select(&conversation, &[]).unwrap()];
        let calls = step
            .reply
            .calls_for(&conversation, || "call_1".into())
            .unwrap();
        let played = calls.first().map(|call| call.name.clone());
        let played = played
            .or_else(|| step.reply.text_for(&conversation))
            .unwrap();
        assert_eq!(played, expected);
    }

    #[test]
    fn the_default_script_plays_the_demo() {
        let both = ["local_clock", "trading-api__get_market_context"];
        check(
            "How is the market?",
            &both,
            &[],
            "trading-api__get_market_context",
        );
        check("What does the CLOCK say?", &both, &[], "local_clock");
        check("Please trade.", &both, &[], "trading-api__execute_trade");
        check(
            "How is the market?",
            &both,
            &["{\"ok\":true}"],
            "The tool answered: {\"ok\":true}",
        );
        check(
            "Hello",
            &["local_clock"],
            &[],
            "I was offered these tools: local_clock",
        );
    }

    #[test]
    fn a_placeholder_in_a_tool_result_is_not_expanded() {
        check(
            "x",
            &[],
            &["{tools} {tool_result} {"],
            "The tool answered: {tools} {tool_result} {",
        );
    }

    #[test]
    fn after_its_limit_a_step_yields_to_the_next() {
        let script = Script::parse(
            "steps: [{times: 1, reply: {fault: {status: {code: 429, retry_after: 2}}}}, \
             {reply: {text: later}}]",
        )
        .unwrap();
        let conversation = conversation("x", &[], &[]);
        assert_eq!(script.select(&conversation, &[0, 0]), Some(0));
        assert_eq!(script.select(&conversation, &[1, 0]), Some(1));
    }

    #[test]
    fn arguments_are_a_value_or_raw_text() {
        let script = Script::parse(
            "steps: [{reply: {calls: [{tool: {named: a}, arguments: {raw: '{broken'}}, \
             {tool: {named: b}, arguments: {x: 1}}, {tool: {named: c}}]}}]",
        )
        .unwrap();
        let calls = script.steps[0]
            .reply
            .calls_for(&conversation("x", &[], &[]), || "i".into())
            .unwrap();
        let texts: Vec<_> = calls.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!(texts, ["{broken", "{\"x\":1}", "{}"]);
    }

    #[test]
    fn a_misspelt_script_is_refused() {
        assert!(Script::parse("steps: [{wen: {}, reply: {text: x}}]").is_err());
    }
}
