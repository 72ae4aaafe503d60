//! Prepares an image's descriptor for review, and compares it with the reviewed one. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::described::Skill;
use crate::authoring::import::{self, Findings};
use crate::authoring::mcp::tools::{Drift, clean, drift as drift_of_tools, is_plain, remark_on};
use crate::authoring::openapi::Remarks;

/// Returns the author's descriptor without invisible characters, without tools with misleading
/// names, and with the texts of the files that it names: a Surface holds texts.
pub fn for_review(
    mut descriptor: Value,
    skill: Skill,
    surface: &str,
    remarks: &mut Remarks,
) -> Value {
    let text = match skill {
        Skill::None => None,
        Skill::Text(text) => Some(text),
        Skill::Missing(path) => {
            let shown = path.escape_debug();
            remarks.left_out("skill", format!("{shown} is not a file of the image"));
            if let Some(members) = descriptor.as_object_mut() {
                members.remove("skill");
            }
            None
        }
    };
    let mut findings = Findings::default();
    import::describe::adapt(&mut descriptor, text, surface, &mut findings);
    for finding in findings.into_sorted() {
        remarks.look("feeds", finding.message);
    }
    if let Some(tools) = descriptor.get_mut("tools").and_then(Value::as_array_mut) {
        tools.retain(|tool| {
            let name = tool["name"].as_str().unwrap_or_default();
            if !is_plain(name) {
                remarks.left_out("", format!("a tool with the name {name:?}"));
            }
            is_plain(name)
        });
    }
    for (member, value) in descriptor.as_object_mut().into_iter().flatten() {
        if member == "tools"
            && let Value::Array(tools) = value
        {
            for tool in tools {
                let name = tool["name"].as_str().unwrap_or_default().to_owned();
                clean(tool, &name, remarks);
            }
        } else {
            clean(value, member, remarks);
        }
    }
    remark_on(&tools(&descriptor), remarks);
    descriptor
}

/// Returns the differences, tool by tool and member by member.
pub fn drift(before: &Value, now: &Value) -> Vec<Drift> {
    let members = |descriptor: &Value| -> BTreeSet<String> {
        let members = descriptor.as_object().into_iter().flatten();
        members.map(|(member, _)| member.clone()).collect()
    };
    let other = members(before)
        .into_iter()
        .chain(members(now))
        .collect::<BTreeSet<String>>()
        .into_iter()
        .filter(|member| member != "tools" && before[member] != now[member])
        .map(|member| Drift::Changed(member, vec!["descriptor"]));
    drift_of_tools(&tools(before), &tools(now))
        .into_iter()
        .chain(other)
        .collect()
}

/// Returns the tools by name.
fn tools(descriptor: &Value) -> BTreeMap<String, Value> {
    let tools = descriptor["tools"].as_array().into_iter().flatten();
    tools
        .filter_map(|tool| Some((tool["name"].as_str()?.to_owned(), tool.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reviewed(descriptor: Value, skill: Skill) -> (Value, Vec<String>) {
        let mut remarks = Remarks::default();
        let descriptor = for_review(descriptor, skill, "fish", &mut remarks);
        (
            descriptor,
            remarks.0.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn texts_stay_and_invisible_characters_are_removed() {
        let written = json!({
            "version": 2,
            "x-team": "pond",
            "skill": "skills/dive.md",
            "feeds": [{"name": "depth", "path": "/depth", "ttl": "5m"}],
            "tools": [
                {"name": "swim", "description": "Swims.\u{200b}", "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
                 "http": {"method": "GET", "path": "/swim"}, "annotations": {"readOnly": true}},
                {"name": "d\u{456}ve"},
            ],
        });
        let (descriptor, remarks) = reviewed(written, Skill::Text("Dive at noon.".into()));
        let expected = json!({
            "version": 2,
            "x-team": "pond",
            "skillText": "Dive at noon.",
            "feeds": [{"name": "depth", "path": "/depth", "ttl": 300}],
            "tools": [
                {"name": "swim", "description": "Swims.", "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
                 "http": {"method": "GET", "path": "/swim"}, "annotations": {"readOnly": true}},
            ],
        });
        assert_eq!(descriptor, expected);
        assert_eq!(
            remarks,
            [
                "left out: a tool with the name \"d\u{456}ve\"",
                "look: swim: a text held 1 hidden characters, which are gone: read what is left",
                "look: swim: says that it only reads, so its tier is ReadOnly: is that so?",
            ]
        );
    }

    #[test]
    fn a_missing_skill_is_reported() {
        let written = json!({"version": 2, "skill": "dive.md"});
        let (descriptor, remarks) = reviewed(written, Skill::Missing("dive.md".into()));
        assert_eq!(descriptor, json!({"version": 2}));
        assert_eq!(
            remarks,
            ["left out: skill: dive.md is not a file of the image"]
        );
    }

    #[test]
    fn each_member_and_each_part_of_a_tool_is_compared() {
        let tool = |path: &str| json!({"name": "swim", "http": {"method": "GET", "path": path}});
        let before =
            json!({"version": 2, "description": "Fish", "tools": [tool("/a")], "auth": {}});
        let now =
            json!({"version": 2, "description": "Fishes", "tools": [tool("/b")], "feeds": []});
        let drift: Vec<String> = drift(&before, &now).iter().map(Drift::to_string).collect();
        let expected = [
            "changed: swim: http",
            "changed: auth: descriptor",
            "changed: description: descriptor",
            "changed: feeds: descriptor",
        ];
        assert_eq!(drift, expected);
    }
}
