//! The descriptor of claw-api's Surface, which describes the verbs to agents. The chart has a copy
//! (`charts/toolcrib/claw-api.json`), which a test compares.

use serde_json::{Map, Value, json};

use super::verbs::{MOST, Verb};

/// Version 2 of `claw.describe`.
pub fn descriptor() -> Value {
    json!({
        "version": 2,
        "description": "What the agents of this cluster may do, and what they did, as Toolcrib's operator knows it. It only reads.",
        "auth": {"type": "bearer", "env": "token"},
        "tools": Verb::ALL.map(tool),
    })
}

fn tool(verb: Verb) -> Value {
    let names = placeholders(verb).chain(verb.arguments().iter().copied());
    let properties: Map<String, Value> = names
        .map(|name| (name.to_owned(), argument(verb, name)))
        .collect();
    let required: Vec<&str> = match verb {
        Verb::ListAgents | Verb::RecentCalls => Vec::new(),
        Verb::GetAgent => vec!["agent"],
        Verb::ExplainTool => vec!["agent", "tool"],
        Verb::ExplainCall => vec!["agent", "call"],
    };
    json!({
        "name": verb.name(),
        "description": description(verb),
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        },
        "http": {"method": "GET", "path": verb.path()},
        "annotations": {"readOnly": true, "idempotent": true},
    })
}

fn placeholders(verb: Verb) -> impl Iterator<Item = &'static str> {
    verb.path()
        .contains("{agent}")
        .then_some("agent")
        .into_iter()
}

fn description(verb: Verb) -> &'static str {
    match verb {
        Verb::ListAgents => {
            "List agents by name: how many tools each has, how many of them only read, how many are withheld, whether it is ready, and when it called a tool last."
        }
        Verb::GetAgent => {
            "One agent: which surfaces it may reach, which tools and feeds it has and by which grant, what is withheld and for which reason, what its pods have loaded, what it has used, and its conditions."
        }
        Verb::ExplainTool => {
            "Whether an agent has a tool: the grant that gives it, its tier, credential and schema; or why the agent lacks it."
        }
        Verb::RecentCalls => {
            "Agents by the time of their last tool call, latest first, with counts of requests, calls, failed and denied calls and tokens. With agent, also its last 100 calls: id, time, tool, outcome, grant. Arguments and results are in the record of the agent's pod."
        }
        Verb::ExplainCall => {
            "One of the last 100 calls of an agent: its outcome, the grant and the rule that allowed it, and whether the agent has the tool by that rule now."
        }
    }
}

fn argument(verb: Verb, name: &str) -> Value {
    match (name, verb) {
        ("agent", Verb::RecentCalls) => {
            json!({"type": "string", "description": "Only this agent"})
        }
        ("agent", _) => json!({
            "type": "string", "minLength": 1, "maxLength": 63, "description": "The agent's name",
        }),
        ("namespace", _) => json!({
            "type": "string", "description": "The agent's namespace; your own if left out",
        }),
        ("call", _) => json!({
            "type": "string", "minLength": 1, "maxLength": 256, "description": "The id of a call, as recent_calls lists it",
        }),
        ("tool", _) => json!({
            "type": "string", "description": "SURFACE.TOOL, with the agent's name for the surface",
        }),
        ("limit", _) => json!({
            "type": "integer", "minimum": 1, "maximum": MOST, "description": "Most agents in the answer; 20 if left out",
        }),
        _ => json!({
            "type": "string", "description": "The value of continue in the previous answer",
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_chart_s_copy_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/toolcrib/claw-api.json");
        let expected = serde_json::to_string_pretty(&descriptor()).unwrap() + "\n";
        toolcrib_golden::expect(toolcrib_golden::here!(), &path, &expected);
    }
}
