//! The objects of the README are complete: with the Service and the Secrets that it mentions,
//! they compile to the documented result, without a diagnostic.

#![expect(clippy::disallowed_methods, reason = "the README is a file")]

use std::path::Path;

use toolcrib_compile::{ObjectRef, Settings, compile, load};

const MENTIONED_OBJECTS: &str = r#"
{apiVersion: v1, kind: Service, metadata: {name: trading-api, namespace: trading}, spec: {ports: [{port: 4000}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: trading-api-reader, namespace: trading, labels: {toolcrib.dev/credential: "true"}, annotations: {toolcrib.dev/hosts: trading-api.trading.svc}}
stringData: {token: t}
---
apiVersion: v1
kind: Secret
metadata: {name: anthropic, namespace: trading, labels: {toolcrib.dev/credential: "true"}, annotations: {toolcrib.dev/hosts: api.anthropic.com}}
stringData: {key: k}
"#;

#[test]
fn the_objects_of_the_readme_compile_to_its_result() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).expect("the README");
    let blocks = readme.split("```yaml\n").skip(1);
    let objects: Vec<&str> = blocks
        .filter_map(|block| block.split("```").next())
        .filter(|block| block.starts_with("apiVersion"))
        .chain([MENTIONED_OBJECTS])
        .collect();
    let loaded = load(
        [("README.md".to_owned(), objects.join("---\n"))],
        Settings::default(),
    );
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    assert_eq!(loaded.diagnostics, []);
    let analyst = ObjectRef::new("trading", "analyst");
    let compiled = compile(&loaded.inputs, &analyst).expect("the agent");
    assert_eq!(compiled.diagnostics, []);
    let tools: Vec<&str> = compiled.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(tools, ["trading-api.get_market_context"]);
}
