//! The grant that allowed a call, as it is now.

use serde::{Serialize, Serializer};
use serde_json::Value;
use toolcrib_compile::{Compilation, GivenRule, GivenTool, Inputs, Kind, ObjectRef, given_tools};

use crate::record::{Call, Outcome};

/// A grant that the record names, compared with the objects of now.
#[derive(Debug, Serialize)]
pub(super) struct GrantFacts {
    /// Missing if the object is gone, or was not read: the record has no kinds.
    #[serde(serialize_with = "kind_name", skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    #[serde(rename = "object")]
    pub key: ObjectRef,
    pub state: GrantState,
    /// Digest of the rule that allowed the call. Missing if the call met no conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The conditions of that rule. Missing if neither the record nor the grant has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum GrantState {
    /// The grant gives the tool now by the rule of the record.
    Unchanged,
    /// The grant exists, and that rule does not, or the agent is not given the tool by it.
    Changed,
    /// The object does not exist.
    Gone,
    /// The objects of now are not known, or no rule allowed the call.
    NotCompared,
}

fn kind_name<S: Serializer>(kind: &Option<Kind>, to: S) -> Result<S::Ok, S::Error> {
    kind.map(Kind::name).serialize(to)
}

impl GrantFacts {
    /// Such as `ToolGrant pond/readers`.
    pub fn name(&self) -> String {
        match self.kind {
            Some(kind) => format!("{} {}", kind.name(), self.key),
            None => format!(
                "{} or {} {}",
                Kind::ToolGrant.name(),
                Kind::ToolDefaults.name(),
                self.key
            ),
        }
    }
}

/// `recorded`: the conditions of the rule, by the record. `None`: the record names no grant.
pub(super) fn facts(
    call: &Call,
    recorded: Option<String>,
    inputs: Option<&Inputs>,
    compilation: Option<&Compilation>,
) -> Option<GrantFacts> {
    let (namespace, name) = call.grant.as_ref()?.split_once('/')?;
    let key = ObjectRef::new(namespace, name);
    let Some(inputs) = inputs else {
        return Some(GrantFacts {
            kind: None,
            key,
            state: GrantState::NotCompared,
            rule: call.rule.clone(),
            limits: recorded,
        });
    };
    let tool = compilation.and_then(|it| given_tools(it).find(|tool| tool.name == call.tool));
    let by = tool.as_ref().and_then(|tool| by(tool, call, &key));
    let exists = [
        (Kind::ToolGrant, inputs.grants().any(|(it, _)| *it == key)),
        (
            Kind::ToolDefaults,
            inputs.defaults().any(|(it, _)| *it == key),
        ),
    ];
    let existing = exists
        .iter()
        .find(|(_, exists)| *exists)
        .map(|(kind, _)| *kind);
    let kind = by.as_ref().map(|it| it.kind).or(existing);
    Some(GrantFacts {
        state: match (&by, existing) {
            (Some(_), _) => GrantState::Unchanged,
            // A denied call met no rule, so there is none to compare.
            (None, Some(_)) if call.outcome == Outcome::Denied => GrantState::NotCompared,
            (None, Some(_)) => GrantState::Changed,
            (None, None) => GrantState::Gone,
        },
        kind,
        key,
        rule: call.rule.clone(),
        limits: recorded.or(by.and_then(|it| it.limits)),
    })
}

/// The rule of now that is the rule of the record.
struct SameRule {
    kind: Kind,
    limits: Option<String>,
}

fn by(tool: &GivenTool, call: &Call, key: &ObjectRef) -> Option<SameRule> {
    let kind_of = |by: &str| {
        let kinds = [Kind::ToolGrant, Kind::ToolDefaults];
        let of = |kind: &Kind| by == format!("{} {key}", kind.name());
        kinds.into_iter().find(of)
    };
    match &call.rule {
        Some(digest) => tool.rules.iter().find_map(|rule: &GivenRule| {
            let kind = kind_of(&rule.by).filter(|_| rule.digest == *digest)?;
            Some(SameRule {
                kind,
                limits: Some(rule.limits.clone()),
            })
        }),
        // No rule of the tool had conditions, so the first grant in name order is named.
        None if tool.rules.is_empty() => Some(SameRule {
            kind: kind_of(&tool.by)?,
            limits: None,
        }),
        None => None,
    }
}

/// A write of some fields of an object.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Write {
    /// The name that the program gave itself.
    pub manager: String,
    pub operation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// Most writers of an object that are shown.
const MOST_WRITES: usize = 16;

/// The writes of the spec, in the form of `metadata.managedFields`; the latest is last.
pub(super) fn writes(managed_fields: &Value) -> Vec<Write> {
    let entries = managed_fields.as_array().into_iter().flatten();
    let of_spec = entries.filter(|entry| entry["fieldsV1"].get("f:spec").is_some());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut writes: Vec<Write> = of_spec
        .take(MOST_WRITES)
        .map(|entry| Write {
            manager: text(&entry["manager"]).unwrap_or_default(),
            operation: text(&entry["operation"]).unwrap_or_default(),
            time: text(&entry["time"]),
        })
        .collect();
    writes.sort_by(|one, other| one.time.cmp(&other.time));
    writes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_writes_of_the_spec_are_shown_the_latest_last() {
        let entry = |manager: &str, time: &str, fields: Value| json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields});
        let fields = json!([
            entry("helm", "2026-11-24T09:00:00Z", json!({"f:spec": {}})),
            entry("toolcrib", "2026-11-24T10:00:00Z", json!({"f:status": {}})),
            entry(
                "kubectl-edit",
                "2026-11-24T08:00:00Z",
                json!({"f:spec": {}, "f:metadata": {}})
            ),
        ]);
        let writes = writes(&fields);
        let managers: Vec<&str> = writes.iter().map(|it| &*it.manager).collect();
        assert_eq!(managers, ["kubectl-edit", "helm"]);
    }
}
