//! The format of a policy test: a document of a client-side kind that no cluster knows.
//!
//! Its group differs from that of the objects, so a test is never mistaken for an object.

use anyhow::{anyhow, bail};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use toolcrib_compile::{Code, CredentialKind, LoadResult, Origin, near};
use toolcrib_crds::decode_own;
use toolcrib_manifest::Tier;
use toolcrib_mediation::{ResultCode, RunnerCode};

pub const API_VERSION: &str = "cli.toolcrib.dev/v1alpha1";
pub const KIND: &str = "ToolTest";
/// Limits `previous`: each of these calls is decided.
const MAX_PREVIOUS: u32 = 10_000;
const HELP: &str = "`kubectl toolcrib test --help` shows one";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ToolTest {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    pub metadata: Metadata,
    pub spec: Spec,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    pub name: String,
    /// The namespace of the agent.
    pub namespace: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub agent: String,
    /// The calling pod, for an agent with `identity: Pod`.
    pub pod: Option<String>,
    pub cases: Vec<Case>,
}

/// One call of a model, with the expected outcome.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Case {
    name: Option<String>,
    /// `SURFACE.TOOL`, with the agent's alias of the surface.
    pub call: String,
    /// The arguments as the model writes them. Missing: `{}`.
    arguments: Option<Value>,
    /// The arguments as text, for text that is not JSON, or JSON with repeated keys.
    arguments_text: Option<String>,
    /// Number of equal calls of the agent that came just before, at most 10,000: for the `rate` of
    /// a grant.
    #[serde(default)]
    pub previous_calls: u32,
    pub expect: Expect,
}

/// The expected outcome. Only the fields that are set are compared.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Expect {
    pub result: Verdict,
    /// The code in the result that the model reads: `permission_denied`, `schema_validation`,
    /// `condition_failed`, `ambiguous_arguments`, `rate_limited`.
    pub code: Option<String>,
    /// The code that the model would read if the grant's limits were not tried out.
    pub would_deny: Option<String>,
    /// The object that gives the tool: `ToolGrant/analyst-reads`, `ToolDefaults/default`.
    pub by: Option<String>,
    /// The diagnostic's code for which compile withholds the tool.
    pub withheld: Option<String>,
    pub tier: Option<String>,
    /// The owner of the credential: `PerAgent`, `Surface`, `None`.
    pub credential: Option<String>,
    /// The arguments as executed, with the agent's own `claw_id`.
    pub arguments: Option<Value>,
    pub request: Option<ExpectedRequest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, serde::Serialize)]
pub enum Verdict {
    /// The call would be sent.
    Allowed,
    /// The call would be sent if a person approved it.
    NeedsApproval,
    /// The model would read an error, and nothing would be sent.
    Denied,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRequest {
    pub method: Option<String>,
    pub url: Option<String>,
    /// `null`: no body.
    #[serde(default, deserialize_with = "written")]
    pub body: Option<Value>,
}

/// Keeps an explicit `null` apart from a missing field.
fn written<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Expect {
    /// Refuses words that no outcome has: such a case could only fail. The error begins with the field.
    fn check(&self) -> anyhow::Result<()> {
        let codes = ResultCode::NAMED.map(|code| code.to_string());
        let suspended = RunnerCode::AgentSuspended.name();
        let codes: Vec<&str> = codes
            .iter()
            .map(String::as_str)
            .chain([suspended])
            .collect();
        known("code", self.code.as_deref(), &codes)?;
        known("wouldDeny", self.would_deny.as_deref(), &codes)?;
        let withheld: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        known("withheld", self.withheld.as_deref(), &withheld)?;
        known("tier", self.tier.as_deref(), &Tier::ALL.map(Tier::name))?;
        let credentials = CredentialKind::ALL.map(CredentialKind::name);
        known("credential", self.credential.as_deref(), &credentials)
    }
}

fn known(field: &str, word: Option<&str>, words: &[&str]) -> anyhow::Result<()> {
    match word {
        Some(word) if !words.contains(&word) => {
            let known = near::meant_or_known(word, words.iter().copied());
            bail!("{field}: there is no {word:?}; {known}")
        }
        Some(_) | None => Ok(()),
    }
}

impl Case {
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.call.clone())
    }

    /// The arguments as the model writes them, as text.
    pub fn arguments_text(&self) -> anyhow::Result<String> {
        match (&self.arguments, &self.arguments_text) {
            (Some(_), Some(_)) => bail!("has arguments and argumentsText: keep one"),
            (Some(value), None) => Ok(value.to_string()),
            (None, Some(text)) => Ok(text.clone()),
            (None, None) => Ok("{}".to_owned()),
        }
    }
}

/// Returns the tests among the documents.
pub fn tests(loaded: &LoadResult) -> anyhow::Result<Vec<(Origin, ToolTest)>> {
    let group = API_VERSION.split('/').next().unwrap_or_default();
    loaded
        .others
        .iter()
        .filter_map(|document| {
            let version = document.value["apiVersion"].as_str()?;
            let ours = version.split('/').next() == Some(group);
            ours.then(|| read(version, document.origin.clone(), &document.value))
        })
        .collect()
}

fn read(version: &str, origin: Origin, value: &Value) -> anyhow::Result<(Origin, ToolTest)> {
    let kind = value["kind"].as_str().unwrap_or_default();
    if version != API_VERSION || kind != KIND {
        bail!("{origin}: is {kind} of {version}; this release knows {KIND} of {API_VERSION}");
    }
    let test: ToolTest =
        decode_own(KIND, HELP, &value.to_string()).map_err(|error| anyhow!("{origin}: {error}"))?;
    if test.spec.cases.is_empty() {
        bail!("{origin}: spec.cases: is empty, and would pass: write a case; {HELP}");
    }
    for (index, case) in test.spec.cases.iter().enumerate() {
        if case.previous_calls > MAX_PREVIOUS {
            bail!(
                "{origin}: spec.cases[{index}].previousCalls: is {}: write at most {MAX_PREVIOUS}",
                case.previous_calls
            );
        }
        case.expect
            .check()
            .map_err(|why| anyhow!("{origin}: spec.cases[{index}].expect.{why}"))?;
    }
    Ok((origin, test))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(edit: impl FnOnce(&mut Value), expected: &str) {
        let mut test = json!({
            "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "otter"},
            "spec": {"agent": "otter", "cases": [
                {"call": "fish.take", "expect": {"result": "Allowed"}},
            ]},
        });
        edit(&mut test);
        let origin = Origin {
            path: "pond.yaml".to_owned(),
            line: 2,
        };
        let error = read(API_VERSION, origin, &test).expect_err(expected);
        let said = error.to_string();
        assert_eq!(said, format!("pond.yaml:2: {expected}"));
    }

    #[test]
    fn a_decode_error_names_the_field_and_the_fix() {
        let case = |test: &mut Value| test["spec"]["cases"][0].take();
        check(
            |test| test["spec"]["cases"][0]["expect"]["result"] = json!("allowed"),
            r#"spec.cases[0].expect.result: is the text "allowed": write one of Allowed, NeedsApproval, Denied"#,
        );
        check(
            |test| test["spec"]["cases"][0]["expect"]["reslt"] = json!("Allowed"),
            "spec.cases[0].expect.reslt: is not a field: did you mean result?",
        );
        check(
            |test| test["spec"]["cases"][0]["tool"] = json!("fish.take"),
            "spec.cases[0].tool: is not a field: there is arguments, argumentsText, call, expect, name, previousCalls",
        );
        check(
            |test| test["spec"]["cases"][0]["call"] = json!(7),
            "spec.cases[0].call: is the number 7: write a text, in quotes",
        );
        check(
            |test| test["spec"]["cases"][0] = json!({"expect": {"result": "Denied"}}),
            "spec.cases[0].call: is missing: write a text",
        );
        check(
            |test| test["spec"]["cases"] = case(test),
            "spec.cases: is an object: write a list, each entry of it after a dash",
        );
        check(
            |test| test["spec"]["agent"] = Value::Null,
            "spec.agent: is empty: write a text",
        );
        check(
            |test| test["metadata"] = json!({}),
            "metadata.name: is missing: write a text",
        );
        check(
            |test| test["spec"] = json!("otter"),
            "spec: is a text: write {agent: …, cases: …}",
        );
    }
}
