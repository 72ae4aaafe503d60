//! The contract's fixtures: complete directories that compile must produce byte for byte and the
//! mediator must load. Values and tokens in them are made up.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use toolcrib_compile::{
    LastGood, ObjectRef, SecretKeyRef, Settings, compile, identity, load, materialize, names,
};
use toolcrib_golden::{expect, here};
use toolcrib_manifest::{ClusterDomain, Dns, LinkConfig, SecretText};

/// Name of the fixture, its case, and namespace and name of the agent.
const FIXTURES: [(&str, &str, &str, &str); 6] = [
    ("analyst", "trading-desk", "trading", "analyst"),
    ("executor", "trading-desk", "trading", "executor"),
    ("everything", "everything", "pond", "otter"),
    ("no-tools", "no-tools", "pond", "newt"),
    ("native", "native", "pond", "otter"),
    ("rules", "grant-conditions", "pond", "otter"),
];

#[test]
fn fixtures_equal_the_output_of_compile() {
    for (fixture, case, namespace, name) in FIXTURES {
        check(fixture, case, &ObjectRef::new(namespace, name));
    }
}

fn check(fixture: &str, case: &str, agent: &ObjectRef) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let settings = Settings {
        link: Some(LinkConfig {
            url: "https://toolcrib-link.toolcrib-system.svc:8443".to_owned(),
            ca: "-----BEGIN CERTIFICATE-----\nMIIBlink\n-----END CERTIFICATE-----\n".to_owned(),
            audience: names::LINK_AUDIENCE.to_owned(),
        }),
        dns: Some(Dns {
            cluster_domain: ClusterDomain::default(),
            name_servers: vec!["10.96.0.10".parse().expect("an address")],
        }),
        ..Settings::default()
    };
    let documents = common::documents(&root.join("tests/cases").join(case));
    let loaded = load(documents, settings);
    let compilation = compile(&loaded.inputs, agent).expect("the agent exists");
    let tokens = identity::runner_tokens(&BTreeMap::from([
        ("token".to_owned(), identity::token(&agent.name, [1; 32])),
        (
            "previous-1".to_owned(),
            identity::token(&agent.name, [2; 32]),
        ),
    ]));
    let values =
        |reference: &SecretKeyRef| -> Option<SecretText> { loaded.secrets.get(reference).cloned() };
    let done = materialize(&compilation, &values, &LastGood::default(), &tokens);
    assert!(done.missing.is_empty(), "{fixture}: {:?}", done.missing);

    let directory = root.join("../../crds/manifest/fixtures").join(fixture);
    for (name, bytes) in &done.files {
        let text = std::str::from_utf8(bytes).expect("JSON is UTF-8");
        expect(here!(), &directory.join(name), text);
    }
}
