//! Values in place of references: missing values, kept values, and revisions.

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_compile::{
    Allowlist, Compilation, CompiledSecret, Inputs, LastGood, LoadResult, ObjectRef, Presence,
    SecretFacts, SecretKeyRef, Settings, WithheldItem, compile, load, materialize,
};
use toolcrib_manifest::{AgentFile, ProvidersFile, SecretText, ToolsFile};

const WORLD: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: fish-api, namespace: pond}
spec: {ports: [{port: 4000}]}
---
apiVersion: v1
kind: Secret
metadata: {name: creds, namespace: pond, uid: uid-1, resourceVersion: "1", labels: {toolcrib.dev/credential: "true"}, annotations: {toolcrib.dev/hosts: "fish-api.pond.svc,other-api.pond.svc,reef.test"}}
stringData: {token: first-value, key: model-key}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ModelProvider
metadata: {name: reef, namespace: pond}
spec: {endpoints: [{dialect: OpenAI, url: "https://reef.test/v1"}], apiKeys: [{secretKeyRef: {name: creds, key: key}}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: fish-api, namespace: pond}
spec:
  service: {name: fish-api, port: 4000}
  auth: {secretKeyRef: {name: creds, key: token}}
  descriptor: {version: 2, tools: [{name: list, inputSchema: {type: object}, http: {method: GET, path: /fish}}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: otter, namespace: pond}
spec: {surfaces: [{name: fish-api}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {name: g, namespace: pond}
spec: {agents: [otter], tools: [{surface: {name: fish-api}, allow: [list]}]}
"#;

fn world() -> LoadResult {
    load(
        [("world.yaml".to_owned(), WORLD.to_owned())],
        Settings::default(),
    )
}

fn otter(inputs: &Inputs) -> Compilation {
    compile(inputs, &ObjectRef::new("pond", "otter")).expect("the agent is there")
}

fn creds() -> ObjectRef {
    ObjectRef::new("pond", "creds")
}

fn facts(uid: &str, resource_version: &str, keys: Option<&[&str]>) -> Presence<SecretFacts> {
    Presence::Present(SecretFacts {
        labelled: true,
        allowlist: Allowlist::parse("fish-api.pond.svc,other-api.pond.svc,reef.test", ""),
        keys: keys.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()),
        uid: uid.to_owned(),
        resource_version: resource_version.to_owned(),
    })
}

fn withheld(done: &CompiledSecret) -> Vec<String> {
    let line = |late: &WithheldItem| format!("{}: {}", late.what, late.code);
    done.withheld.iter().map(line).collect()
}

fn nothing(_: &SecretKeyRef) -> Option<SecretText> {
    None
}

#[test]
fn the_files_contain_each_others_names_and_hashes() {
    let world = world();
    let compilation = otter(&world.inputs);
    let values = |reference: &SecretKeyRef| world.secrets.get(reference).cloned();
    let done = materialize(&compilation, &values, &LastGood::default(), &[]);
    let agent: AgentFile = serde_json::from_slice(&done.files["agent.json"]).expect("reads");
    let hashes: BTreeMap<String, String> = ["feeds.json", "providers.json", "tools.json"]
        .map(|name| {
            (
                name.to_owned(),
                toolcrib_compile::digest::sha256(&done.files[name]),
            )
        })
        .into();
    assert_eq!(agent.files, Some(hashes));
    assert_eq!(agent.digest, Some(done.digests.clone()));
    assert_eq!(done.digests.manifest, compilation.manifest_digest);
    let tools = String::from_utf8(done.files["tools.json"].clone()).expect("text");
    assert!(
        tools.contains(r#""auth":{"token":"first-value","type":"bearer"}"#),
        "{tools}"
    );
    for text in done.annotations.values() {
        assert!(
            !text.contains("first-value") && !text.contains("model-key"),
            "{text}"
        );
    }
}

#[test]
fn a_missing_value_withholds_only_its_own_tool() {
    let world = world();
    let compilation = otter(&world.inputs);
    let only_key =
        |reference: &SecretKeyRef| (reference.key == "key").then(|| SecretText::new("model-key"));
    let done = materialize(&compilation, &only_key, &LastGood::default(), &[]);
    assert_eq!(withheld(&done), ["fish-api.list: SecretUnknown"]);
    assert_eq!(
        done.missing,
        BTreeSet::from([SecretKeyRef::new(creds(), "token")])
    );
    let tools: ToolsFile = serde_json::from_slice(&done.files["tools.json"]).expect("reads");
    assert!(tools.tools.is_empty());
    let providers: ProvidersFile =
        serde_json::from_slice(&done.files["providers.json"]).expect("reads");
    assert!(providers.providers.contains_key("reef"));
    assert_ne!(done.digests.manifest, compilation.manifest_digest);
}

#[test]
fn a_rotation_changes_the_revision_and_not_the_manifest() {
    let mut world = world();
    let value = |text: &'static str| move |_: &SecretKeyRef| Some(SecretText::new(text));
    let before = materialize(
        &otter(&world.inputs),
        &value("a"),
        &LastGood::default(),
        &[],
    );
    world.inputs.set_secret(creds(), facts("uid-1", "2", None));
    let after = materialize(
        &otter(&world.inputs),
        &value("b"),
        &LastGood::default(),
        &[],
    );
    assert_eq!(after.digests.manifest, before.digests.manifest);
    assert_ne!(after.digests.credentials, before.digests.credentials);
}

#[test]
fn a_last_good_value_is_used_only_on_its_route() {
    let mut world = world();
    let values = |reference: &SecretKeyRef| world.secrets.get(reference).cloned();
    let before = materialize(&otter(&world.inputs), &values, &LastGood::default(), &[]);
    let last_good = LastGood::read(&before.annotations, &before.files);
    world
        .inputs
        .set_secret(creds(), Presence::Unknown("timed out".to_owned()));

    let compilation = otter(&world.inputs);
    assert_eq!(
        compilation.unknown,
        BTreeSet::from([(toolcrib_compile::Kind::Secret, creds())])
    );
    let same = materialize(&compilation, &nothing, &last_good, &[]);
    assert_eq!(same.files["tools.json"], before.files["tools.json"]);
    assert_eq!(same.digests, before.digests);

    // The surface moves to a Service to which the value was never sent.
    let moved = WORLD
        .replace("name: fish-api, port: 4000", "name: other-api, port: 4000")
        .replace(
            "metadata: {name: fish-api, namespace: pond}\nspec: {ports",
            "metadata: {name: other-api, namespace: pond}\nspec: {ports",
        );
    let mut moved = load([("world.yaml".to_owned(), moved)], Settings::default());
    moved
        .inputs
        .set_secret(creds(), Presence::Unknown("timed out".to_owned()));
    let elsewhere = materialize(&otter(&moved.inputs), &nothing, &last_good, &[]);
    assert_eq!(withheld(&elsewhere), ["fish-api.list: SecretUnknown"]);
}

#[test]
fn an_absent_secret_keeps_nothing() {
    let mut world = world();
    let values = |reference: &SecretKeyRef| world.secrets.get(reference).cloned();
    let before = materialize(&otter(&world.inputs), &values, &LastGood::default(), &[]);
    let last_good = LastGood::read(&before.annotations, &before.files);
    world.inputs.set_secret(creds(), Presence::Absent);
    let after = materialize(&otter(&world.inputs), &values, &last_good, &[]);
    let tools: ToolsFile = serde_json::from_slice(&after.files["tools.json"]).expect("reads");
    assert!(tools.tools.is_empty());
}

#[test]
fn a_missing_key_is_found_before_and_after_the_values_are_read() {
    let mut world = world();
    world
        .inputs
        .set_secret(creds(), facts("uid-1", "1", Some(&["key"])));
    let compilation = otter(&world.inputs);
    assert_eq!(
        compilation.references(),
        BTreeSet::from([SecretKeyRef::new(creds(), "key")])
    );
    assert_eq!(
        compilation.withheld[0].code,
        toolcrib_compile::Code::SecretKeyMissing
    );
}

#[test]
fn a_foreign_secret_is_not_used_as_last_good() {
    let annotations = BTreeMap::from([(
        toolcrib_compile::names::REFERENCES_ANNOTATION.to_owned(),
        "{\"pond/creds/token\": 7}".to_owned(),
    )]);
    let read = LastGood::read(&annotations, &BTreeMap::new());
    assert_eq!(format!("{read:?}"), "LastGood({})");
}

/// The API server would refuse a Secret over 1 MiB, and the stored one would stay, with revoked
/// tools too.
#[test]
fn values_that_leave_no_room_withhold_their_tools() {
    const MOST: usize = 1024 * 1024;
    let world = world();
    let compilation = otter(&world.inputs);
    let check = |token: usize, key: usize, expected: &[&str]| {
        let values = |reference: &SecretKeyRef| {
            let length = if reference.key == "key" { key } else { token };
            Some(SecretText::new("\n".repeat(length)))
        };
        let done = materialize(&compilation, &values, &LastGood::default(), &[]);
        assert_eq!(withheld(&done), expected, "{token} {key}");
        let bytes: usize = done.files.values().map(Vec::len).sum();
        assert!(bytes < MOST - 32 * 1024, "{bytes}");
        let reads = serde_json::from_slice::<ToolsFile>(&done.files["tools.json"]);
        let given = reads.expect("reads").tools.len() + done.withheld.len();
        assert!(given > 0, "missing tools have a diagnostic");
        let agent: AgentFile = serde_json::from_slice(&done.files["agent.json"]).expect("reads");
        assert_eq!(agent.digest, Some(done.digests));
    };
    check(100_000, 100_000, &[]);
    check(600_000, 10, &["fish-api.list: ManifestTooLarge"]);
    check(10, 600_000, &["provider reef: ManifestTooLarge"]);
    check(300_000, 300_000, &["fish-api.list: ManifestTooLarge"]);
}
