//! `rules/<case>.yaml` is an object. Its first line says whether the definitions' own schema and
//! rules (CEL) accept it, or the message of the refusal. The operator's `apiserver` tests send the
//! same objects to a real API server.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;
use toolcrib_crds::{
    Agent, ClusterToolPolicy, ModelProvider, Surface, ToolApproval, ToolDecision, ToolDefaults,
    ToolGrant, refusals,
};
use toolcrib_golden::{Suite, cases};

/// Decodes an object with our own types: every admitted object must be decodable.
fn decodes(kind: &str, text: &str) -> Result<(), String> {
    fn as_kind<K: serde::de::DeserializeOwned>(text: &str) -> Result<(), String> {
        serde_json::from_str::<K>(text)
            .map(drop)
            .map_err(|error| error.to_string())
    }
    match kind {
        "Agent" => as_kind::<Agent>(text),
        "ClusterToolPolicy" => as_kind::<ClusterToolPolicy>(text),
        "ModelProvider" => as_kind::<ModelProvider>(text),
        "Surface" => as_kind::<Surface>(text),
        "ToolApproval" => as_kind::<ToolApproval>(text),
        "ToolDecision" => as_kind::<ToolDecision>(text),
        "ToolDefaults" => as_kind::<ToolDefaults>(text),
        "ToolGrant" => as_kind::<ToolGrant>(text),
        other => Err(format!("kind {other}")),
    }
}

#[track_caller]
fn check(case: &Path) {
    let text = fs::read_to_string(case).expect("case");
    let expected = text.lines().next().expect("a first line");
    let object: Value = serde_yaml::from_str(&text).expect("YAML");
    let kind = object["kind"].as_str().expect("kind");
    decodes(kind, &object.to_string())
        .unwrap_or_else(|error| panic!("{}: {error}", case.display()));
    let refused: Vec<String> = refusals(kind, &object)
        .into_iter()
        .map(|refusal| format!("{}: {}", refusal.field, refusal.message))
        .collect();
    let name = case.display();
    match expected.strip_prefix("# refused: ") {
        None => {
            assert_eq!(expected, "# accepted", "{name}");
            assert_eq!(refused, Vec::<String>::new(), "{name}");
        }
        Some(words) => {
            let found = refused.iter().any(|refusal| refusal.contains(words));
            assert!(found, "{name}: {refused:?}");
        }
    }
}

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules");
    Suite::default()
        .cases(cases(&folder, Some("yaml")), check)
        .run()
}
