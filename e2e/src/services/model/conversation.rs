//! The few facts of a request that scripts test, read from each dialect.
//!
//! A *turn* here is everything after the user's last message. Its rounds are the replies with
//! tool calls in it, whether the runner or the mediator executed the calls.

use std::collections::BTreeMap;

use serde_json::Value;

/// The wire formats that are served, by route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    Anthropic,
    Responses,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    pub model: String,
    pub stream: bool,
    /// The text of the user's last message.
    pub user: String,
    /// Names of the offered tools, in order.
    pub tools: Vec<String>,
    /// The namespaces of the tools that are offered in one.
    pub namespaces: BTreeMap<String, String>,
    /// Tool results since that message, in order.
    pub results: Vec<String>,
    /// Replies with tool calls since that message.
    pub round: u32,
}

/// One item of the history, by its role in a turn.
enum Item {
    User(String),
    Calls,
    Results(Vec<String>),
    Other,
}

impl Conversation {
    /// Reads a parsed request body; missing fields are empty.
    pub fn read(dialect: Dialect, body: &Value) -> Self {
        let mut conversation = Self {
            model: text_at(body, "model"),
            stream: body["stream"].as_bool().unwrap_or(false),
            ..Self::default()
        };
        conversation.offer(dialect, list(body, "tools"), None);
        for item in items(dialect, body) {
            match item {
                Item::User(text) => {
                    conversation.user = text;
                    conversation.results.clear();
                    conversation.round = 0;
                }
                Item::Calls => conversation.round += 1,
                Item::Results(results) => conversation.results.extend(results),
                Item::Other => {}
            }
        }
        conversation
    }

    /// Adds the tools of a list; those of its namespaces by their own names.
    fn offer(&mut self, dialect: Dialect, tools: &[Value], namespace: Option<&str>) {
        for tool in tools {
            let name = match dialect {
                Dialect::OpenAi => text_at(&tool["function"], "name"),
                Dialect::Anthropic | Dialect::Responses => text_at(tool, "name"),
            };
            if tool["type"] == "namespace" {
                self.offer(dialect, list(tool, "tools"), Some(&name));
            } else if !name.is_empty() {
                if let Some(namespace) = namespace {
                    self.namespaces.insert(name.clone(), namespace.to_owned());
                }
                self.tools.push(name);
            }
        }
    }

    pub fn tool_containing(&self, part: &str) -> Option<&str> {
        self.tools
            .iter()
            .map(String::as_str)
            .find(|name| name.contains(part))
    }
}

fn list<'b>(body: &'b Value, key: &str) -> &'b [Value] {
    body[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn items(dialect: Dialect, body: &Value) -> Vec<Item> {
    match dialect {
        Dialect::OpenAi => list(body, "messages").iter().map(openai_item).collect(),
        Dialect::Anthropic => list(body, "messages").iter().map(anthropic_item).collect(),
        Dialect::Responses => match body["input"].as_str() {
            Some(text) => vec![Item::User(text.to_owned())],
            None => responses_items(list(body, "input")),
        },
    }
}

fn openai_item(message: &Value) -> Item {
    match message["role"].as_str() {
        Some("user") => Item::User(content_text(&message["content"])),
        Some("assistant") if calls_something(message) => Item::Calls,
        Some("tool" | "function") => Item::Results(vec![content_text(&message["content"])]),
        _ => Item::Other,
    }
}

fn calls_something(message: &Value) -> bool {
    message["tool_calls"]
        .as_array()
        .is_some_and(|calls| !calls.is_empty())
        || message["function_call"].is_object()
}

fn anthropic_item(message: &Value) -> Item {
    let blocks = message["content"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let of_type = |wanted: &'static str| {
        blocks
            .iter()
            .filter(move |block| block["type"].as_str() == Some(wanted))
    };
    match message["role"].as_str() {
        // A user message with tool results answers calls; text beside the results does not begin a
        // turn.
        Some("user") if of_type("tool_result").next().is_some() => Item::Results(
            of_type("tool_result")
                .map(|block| content_text(&block["content"]))
                .collect(),
        ),
        Some("user") => Item::User(content_text(&message["content"])),
        Some("assistant") if of_type("tool_use").next().is_some() => Item::Calls,
        _ => Item::Other,
    }
}

/// Reads the items of the responses API, where each call is an item of its own: a run of adjacent
/// calls is one reply.
fn responses_items(input: &[Value]) -> Vec<Item> {
    let mut in_calls = false;
    let mut items = Vec::new();
    for item in input {
        let kind = item["type"].as_str();
        let calls = kind == Some("function_call");
        items.push(match (kind, item["role"].as_str()) {
            (Some("function_call"), _) if in_calls => Item::Other,
            (Some("function_call"), _) => Item::Calls,
            (Some("function_call_output"), _) => Item::Results(vec![content_text(&item["output"])]),
            (None | Some("message"), Some("user")) => Item::User(content_text(&item["content"])),
            _ => Item::Other,
        });
        in_calls = calls;
    }
    items
}

/// The text of a string, or of content parts, joined.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| text_at(part, "text")).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn text_at(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(dialect: Dialect, body: Value) {
        let expected = Conversation {
            model: "otter-1".into(),
            stream: true,
            user: "swim".into(),
            tools: vec!["dive".into(), "float".into()],
            namespaces: BTreeMap::new(),
            results: vec!["wet".into(), "dry".into()],
            round: 1,
        };
        assert_eq!(Conversation::read(dialect, &body), expected);
    }

    #[test]
    fn tools_of_a_namespace_are_offered_by_their_own_names() {
        let function = |name: &str| json!({"type": "function", "name": name});
        let namespace = json!({"type": "namespace", "name": "pond", "tools": [function("dive")]});
        let body = json!({"tools": [namespace, function("float")], "input": "swim"});
        let read = Conversation::read(Dialect::Responses, &body);
        assert_eq!(read.tools, ["dive", "float"]);
        let of_pond = BTreeMap::from([("dive".to_string(), "pond".to_string())]);
        assert_eq!(read.namespaces, of_pond);
    }

    #[test]
    fn openai() {
        check(
            Dialect::OpenAi,
            json!({
                "model": "otter-1", "stream": true,
                "tools": [{"type": "function", "function": {"name": "dive"}},
                          {"type": "function", "function": {"name": "float"}}],
                "messages": [
                    {"role": "user", "content": "earlier"},
                    {"role": "assistant", "tool_calls": [{"id": "c0"}]},
                    {"role": "tool", "tool_call_id": "c0", "content": "old"},
                    {"role": "user", "content": [{"type": "text", "text": "swim"}]},
                    {"role": "assistant", "content": null, "tool_calls": [{"id": "c1"}, {"id": "c2"}]},
                    {"role": "tool", "tool_call_id": "c1", "content": "wet"},
                    {"role": "tool", "tool_call_id": "c2", "content": "dry"},
                ],
            }),
        );
    }

    #[test]
    fn anthropic() {
        check(
            Dialect::Anthropic,
            json!({
                "model": "otter-1", "stream": true,
                "tools": [{"name": "dive"}, {"name": "float"}],
                "messages": [
                    {"role": "user", "content": "swim"},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "dive", "input": {}},
                                                      {"type": "tool_use", "id": "c2", "name": "float", "input": {}}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "wet"},
                        {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "dry"}]},
                        {"type": "text", "text": "go on"}]},
                ],
            }),
        );
    }

    #[test]
    fn responses() {
        check(
            Dialect::Responses,
            json!({
                "model": "otter-1", "stream": true,
                "tools": [{"type": "function", "name": "dive"}, {"type": "function", "name": "float"}],
                "input": [
                    {"role": "user", "content": "swim"},
                    {"type": "function_call", "call_id": "c1", "name": "dive", "arguments": "{}"},
                    {"type": "function_call", "call_id": "c2", "name": "float", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c1", "output": "wet"},
                    {"type": "function_call_output", "call_id": "c2", "output": "dry"},
                ],
            }),
        );
    }
}
