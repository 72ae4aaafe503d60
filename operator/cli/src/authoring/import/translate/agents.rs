//! Agents, their grants, and the namespace's ToolDefaults.

use std::collections::BTreeMap;

use indexmap::IndexSet;
use serde_json::{Value, json};

use super::Translation;
use super::providers::refs;
use super::requests::AgentRequest;
use crate::authoring::import::pod::{Allow, Models, ToolPolicy};
use crate::print::Document;

impl Translation<'_> {
    pub(super) fn tool_defaults(&self, defaults: &[(String, Allow, usize)]) -> Document {
        let tools: Vec<Value> = defaults
            .iter()
            .map(|(surface, allow, _)| rule(surface, allow))
            .collect();
        Document::new(self.object("ToolDefaults", "default", json!({"tools": tools})))
            .with_comment("tools-defaults: for every agent here that does not exclude them.")
    }

    pub(super) fn agent(&self, request: &AgentRequest<'_>) -> Document {
        let surfaces: Vec<Value> = request
            .reach
            .iter()
            .map(|name| json!({"name": name}))
            .collect();
        let mut spec = json!({});
        if !surfaces.is_empty() {
            spec["surfaces"] = surfaces.into();
        }
        if !request.takes_defaults && self.pod.defaults.tools.is_some() {
            spec["toolDefaults"] = "Exclude".into();
        }
        if let Some(models) = &request.models {
            spec["models"] = models_of(models);
        }
        if let Some(policy) = &request.policy {
            spec["policy"] = policy_of(policy);
        }
        Document::new(self.object("Agent", &request.name, spec))
    }

    pub(super) fn grant(&self, request: &AgentRequest<'_>) -> Option<Document> {
        if request.tools.is_empty() && request.feeds.is_empty() {
            return None;
        }
        let tools: Vec<Value> = request
            .tools
            .iter()
            .map(|(surface, allow)| rule(surface, allow))
            .collect();
        let mut feeds: BTreeMap<&String, IndexSet<&str>> = BTreeMap::new();
        for (surface, feed) in &request.feeds {
            feeds.entry(surface).or_default().insert(feed);
        }
        let feeds: Vec<Value> = feeds
            .into_iter()
            .map(|(surface, allow)| {
                let allow: Value = allow.into_iter().collect();
                json!({"surface": {"name": surface}, "allow": allow})
            })
            .collect();
        let mut spec = json!({"agents": [request.name]});
        for (field, rules) in [("tools", tools), ("feeds", feeds)] {
            if !rules.is_empty() {
                spec[field] = rules.into();
            }
        }
        Some(Document::new(self.object("ToolGrant", &request.name, spec)))
    }
}

fn rule(surface: &str, allow: &Allow) -> Value {
    let allow = match allow {
        Allow::All => json!(["*"]),
        Allow::Named(names) => json!(names),
    };
    json!({"surface": {"name": surface}, "allow": allow})
}

/// Returns `spec.models`. The agent may use the model of every slot in the pod file.
fn models_of(models: &Models) -> Value {
    let allowed: IndexSet<&str> = refs(models).map(String::as_str).collect();
    let allowed: Value = allowed.into_iter().collect();
    let mut spec = json!({"allowed": allowed});
    if let Some(primary) = &models.primary {
        spec["default"] = primary.as_str().into();
    }
    if !models.fallbacks.is_empty() {
        spec["fallbacks"] = json!(models.fallbacks);
    }
    spec
}

fn policy_of(policy: &ToolPolicy) -> Value {
    let mut spec = json!({});
    let milliseconds = |number: u64| match number % 1000 {
        0 => format!("{}s", number / 1000),
        _ => format!("{number}ms"),
    };
    if let Some(rounds) = policy.max_rounds {
        spec["maxRounds"] = rounds.into();
    }
    if let Some(timeout) = policy.tool_timeout_ms {
        spec["toolTimeout"] = milliseconds(timeout).into();
    }
    if let Some(timeout) = policy.total_timeout_ms {
        spec["totalTimeout"] = milliseconds(timeout).into();
    }
    if let Some(bytes) = policy.max_tool_result_bytes {
        spec["maxToolResultBytes"] = bytes.into();
    }
    spec
}
