//! Cases as files: YAML in, the whole result of compile out.
//!
//! `cases/NAME/*.yaml` is the input, with the files and directories that `cases/NAME/include`
//! lists. `cases/NAME/unknown` lists objects that cannot be read (a ConfigMap in the files was
//! read before), and `cases/NAME/selectors-off` the reason why grants select no agents.
//! `cases/NAME/expected.txt` is the output. To add a case, add a directory.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use k8s_openapi::api::networking::v1::NetworkPolicySpec;
use serde::Deserialize as _;
use serde_json::value::RawValue;
use toolcrib_compile::{
    Compilation, ConfigMapFacts, Diagnostic, Files, Inputs, Kind, LastGood, LoadResult, Network,
    NetworkSettings, ObjectRef, Presence, Role, SecretKeyRef, Settings, check_defaults,
    check_grant, check_policy, check_provider, check_surface, compile_all, digest, load,
    materialize, render,
};
use toolcrib_golden::{Suite, cases, expect, here, says_what_to_do};

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    Suite::default()
        .cases(cases(&root, None), check)
        .test("each_message_says_what_to_do", each_message_says_what_to_do)
        .run()
}

/// Reads the diagnostics in the files of all cases.
#[expect(
    clippy::disallowed_methods,
    reason = "the lint is for the crate, and its tests read files"
)]
fn each_message_says_what_to_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut without = BTreeSet::new();
    for case in cases(&root, None) {
        let text = std::fs::read_to_string(case.join("expected.txt")).expect("its expectation");
        let (_, found) = text.split_once("=== diagnostics\n").unwrap_or_default();
        let lines = found.lines().filter(|line| !says_what_to_do(line));
        without.extend(lines.map(|line| format!("{}: {line}", case.display())));
    }
    let lines = Vec::from_iter(without).join("\n");
    assert!(lines.is_empty(), "say what to do:\n{lines}");
}

/// The content of a ConfigMap in the case's files.
fn config_map(case: &Path, key: &ObjectRef) -> Option<BTreeMap<String, String>> {
    let documents = common::documents(case);
    let texts: Vec<String> = documents.into_iter().map(|(_, text)| text).collect();
    texts
        .iter()
        .flat_map(|text| serde_yaml::Deserializer::from_str(text))
        .map(|document| serde_json::Value::deserialize(document).expect("YAML"))
        .find(|object| {
            object["kind"] == "ConfigMap"
                && object["metadata"]["namespace"] == *key.namespace
                && object["metadata"]["name"] == *key.name
        })
        .map(|object| serde_json::from_value(object["data"].clone()).expect("texts"))
}

/// Compiles one case and compares it with `expected.txt`.
fn check(case: &Path) {
    let settings = Settings {
        agent_selectors: common::agent_selectors(case),
        network: NetworkSettings {
            collector: common::collector(case),
            ..NetworkSettings::default()
        },
        ..Settings::default()
    };
    let mut loaded = load(common::documents(case), settings);
    for (kind, key, why) in common::unknown(case) {
        match kind.as_str() {
            "Secret" => loaded.inputs.set_secret(key, Presence::Unknown(why)),
            "ConfigMap" => {
                let facts = match config_map(case, &key) {
                    Some(data) => ConfigMapFacts::LastGood {
                        data: Arc::new(data),
                        why,
                    },
                    None => ConfigMapFacts::Unknown(why),
                };
                loaded.inputs.set_config_map(key, facts);
            }
            other => panic!("{}: kind {other}", case.display()),
        }
    }
    let actual = describe(&loaded);
    for secret in loaded.secrets.values() {
        assert!(
            !actual.contains(secret.expose()),
            "{}: shows a secret value",
            case.display()
        );
    }
    expect(here!(), &case.join("expected.txt"), &actual);
}

fn describe(loaded: &LoadResult) -> String {
    let mut out = String::new();
    for error in &loaded.errors {
        writeln!(out, "{}: {}", error.origin, error.message).expect("text grows");
    }
    let compiled = compile_all(&loaded.inputs);
    let mut diagnostics: Vec<Diagnostic> = loaded.diagnostics.clone();
    for compilation in compiled.values() {
        describe_agent(&mut out, compilation);
        describe_late(&mut out, loaded, compilation);
        diagnostics.extend(compilation.diagnostics.iter().cloned());
    }
    describe_others(&mut out, &loaded.inputs, &mut diagnostics);
    diagnostics.sort();
    diagnostics.dedup();
    out.push_str("\n=== diagnostics\n");
    for diagnostic in diagnostics {
        writeln!(out, "{diagnostic}").expect("text grows");
    }
    out
}

fn describe_agent(out: &mut String, compilation: &Compilation) {
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!("\n=== agent {}", compilation.agent));
    line(format!("manifest digest {}", compilation.manifest_digest));
    if let Some(refusal) = &compilation.refusal {
        line(format!("not accepted: {}", refusal.code));
    }
    for tool in &compilation.tools {
        line(format!(
            "tool {} {} from {} {} credential {}",
            tool.name,
            tool.tier.name(),
            tool.grant.kind.name(),
            tool.grant.key,
            tool.credential.name()
        ));
    }
    for feed in &compilation.feeds {
        line(format!(
            "feed {} from {} {} credential {}",
            feed.name,
            feed.grant.kind.name(),
            feed.grant.key,
            feed.credential.name()
        ));
    }
    for withheld in &compilation.withheld {
        line(format!(
            "withheld {}: {}: {}",
            withheld.what, withheld.code, withheld.message
        ));
    }
    match &compilation.network {
        Network::Unrestricted => {}
        Network::Undecided => line("network undecided".to_owned()),
        Network::Declared(declared) => {
            for place in &declared.not_narrowed {
                line(format!("network not narrowed {place}"));
            }
            for policy in &declared.policies {
                line(format!("network declared by ClusterToolPolicy {policy}"));
            }
        }
    }
    for (reference, source) in &compilation.sources {
        line(format!("secret {reference} goes to {:?}", source.route));
    }
    let Files {
        agent,
        tools,
        providers,
        feeds,
    } = &compilation.files;
    let written = render(&compilation.files);
    for (name, text) in [
        ("agent.json", digest::canonical(agent)),
        ("tools.json", digest::canonical(tools)),
        ("providers.json", digest::canonical(providers)),
        ("feeds.json", digest::canonical(feeds)),
    ] {
        assert_eq!(written[name], text, "every field stands in its place");
        line(format!("--- {name}\n{}", pretty(&text)));
    }
    for object in compilation.objects() {
        match object.role {
            // Their data is printed above, or made by the controller.
            Role::Mediator | Role::Identity | Role::Manifest => {}
            Role::Network => line(format!(
                "--- NetworkPolicy\n{}",
                policy(&object.spec.expect("its spec"))
            )),
            Role::Context => {
                for (name, text) in object.data {
                    line(format!("--- context {name}\n{text}"));
                }
            }
        }
    }
}

/// One rule per line.
fn policy(spec: &NetworkPolicySpec) -> String {
    let head = digest::canonical(&(&spec.pod_selector, &spec.policy_types));
    let rules = spec.egress.iter().flatten().map(digest::canonical);
    std::iter::once(head)
        .chain(rules)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The result of putting the values in, which compile does not show.
fn describe_late(out: &mut String, loaded: &LoadResult, compilation: &Compilation) {
    let values = |reference: &SecretKeyRef| loaded.secrets.get(reference).cloned();
    let done = materialize(compilation, &values, &LastGood::default(), &[]);
    let (_, withheld) = done.given(compilation);
    for late in withheld
        .into_iter()
        .filter(|late| !compilation.withheld.contains(late))
    {
        writeln!(
            out,
            "withheld for want of a value {}: {}: {}",
            late.what, late.code, late.message
        )
        .expect("text grows");
    }
}

/// Formats JSON with one member per line, and one line per item of a list, so that a difference
/// shows. The text of each value is unchanged.
fn pretty(text: &str) -> String {
    let Ok(members) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(text) else {
        return text.to_owned();
    };
    let member = |(key, value): (String, Box<RawValue>)| {
        let items: Vec<Box<RawValue>> = serde_json::from_str(value.get()).unwrap_or_default();
        if items.is_empty() {
            format!("{key}: {value}")
        } else {
            format!("{key}:{}", listed(&items))
        }
    };
    members
        .into_iter()
        .map(member)
        .collect::<Vec<_>>()
        .join("\n")
}

/// One line per item; long lists and long items are cut.
fn listed(items: &[Box<RawValue>]) -> String {
    const ITEMS: usize = 16;
    const CHARACTERS: usize = 2000;
    let mut text = String::new();
    for item in items.iter().take(ITEMS) {
        let item = item.get();
        let shown: String = item.chars().take(CHARACTERS).collect();
        let rest = item.len() - shown.len();
        write!(text, "\n  - {shown}").expect("text grows");
        if rest > 0 {
            write!(text, " … {rest} bytes").expect("text grows");
        }
    }
    if items.len() > ITEMS {
        write!(text, "\n  … {} more", items.len() - ITEMS).expect("text grows");
    }
    text
}

fn describe_others(out: &mut String, inputs: &Inputs, diagnostics: &mut Vec<Diagnostic>) {
    out.push_str("\n=== others\n");
    let mut show = |kind: Kind, key: &toolcrib_compile::ObjectRef, facts: String| {
        writeln!(out, "{} {key}: {facts}", kind.name()).expect("text grows");
    };
    for (key, _) in inputs.surfaces() {
        let report = check_surface(inputs, key).expect("is there");
        show(
            Kind::Surface,
            key,
            format!(
                "tools {}, consumers {}, descriptor {}",
                report.tools,
                report.consumers,
                report.descriptor_digest.as_deref().unwrap_or("none")
            ),
        );
        diagnostics.extend(report.diagnostics);
    }
    for (key, _) in inputs.grants() {
        let report = check_grant(inputs, key).expect("is there");
        let facts = format!("agents {}, tools {}", report.agents, report.tools);
        show(Kind::ToolGrant, key, facts);
        diagnostics.extend(report.diagnostics);
    }
    for (key, _) in inputs.defaults() {
        let report = check_defaults(inputs, key).expect("is there");
        let facts = format!("agents {}, tools {}", report.agents, report.tools);
        show(Kind::ToolDefaults, key, facts);
        diagnostics.extend(report.diagnostics);
    }
    for (key, _) in inputs.providers() {
        let report = check_provider(inputs, key).expect("is there");
        let facts = format!("keys {}, consumers {}", report.keys, report.consumers);
        show(Kind::ModelProvider, key, facts);
        diagnostics.extend(report.diagnostics);
    }
    for (key, _) in inputs.policies() {
        let report = check_policy(inputs, key).expect("is there");
        show(
            Kind::ClusterToolPolicy,
            key,
            format!("agents {}", report.agents),
        );
        diagnostics.extend(report.diagnostics);
    }
}
