//! Compiles the YAML objects of the pages as they are written.

use toolcrib_compile::{Compilation, LoadResult, ObjectRef, Settings, compile, load};

/// Objects that the pages assume: the Service, and a model.
const EXISTING: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: orders, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ModelProvider
metadata: {name: local, namespace: shop}
spec:
  endpoints: [{dialect: OpenAI, url: "https://models.example/v1"}]
  auth: None
"#;

/// Loads the objects of a page's YAML blocks, and the assumed ones.
pub fn load_page(page: &str, text: &str) -> LoadResult {
    let blocks = text.split("```yaml\n").skip(1);
    let objects: Vec<&str> = blocks
        .filter_map(|block| block.split("```").next())
        .filter(|block| block.starts_with("apiVersion"))
        .chain([EXISTING])
        .collect();
    assert!(objects.len() > 1, "{page} has no objects");
    load_text(page, objects.join("---\n"))
}

pub fn load_text(page: &str, text: String) -> LoadResult {
    let loaded = load([(page.to_owned(), text)], Settings::default());
    assert!(loaded.errors.is_empty(), "{page}: {:?}", loaded.errors);
    assert_eq!(loaded.diagnostics, [], "{page}");
    loaded
}

/// Compiles the agent, without any diagnostic.
pub fn compile_clean(loaded: &LoadResult, page: &str, agent: &ObjectRef) -> Compilation {
    let compiled = compile(&loaded.inputs, agent).expect("the agent");
    assert_eq!(compiled.diagnostics, [], "{page}");
    compiled
}

#[test]
fn the_objects_of_bring_your_own_service_compile_to_the_pages_result() {
    const PAGE: &str = "own-service.md";
    let loaded = load_page(PAGE, include_str!("../../own-service.md"));
    let compiled = compile_clean(&loaded, PAGE, &ObjectRef::new("shop", "clerk"));
    let tools: Vec<String> = compiled
        .tools
        .iter()
        .map(|tool| format!("{} {:?} {:?}", tool.name, tool.tier, tool.credential))
        .collect();
    assert_eq!(
        tools,
        [
            "orders.add_note System Surface",
            "orders.get_order ReadOnly Surface",
        ]
    );
    let pods: Vec<&str> = loaded
        .others
        .iter()
        .filter_map(|other| other.value.pointer("/spec/template/metadata/labels"))
        .filter_map(|labels| labels[toolcrib_compile::names::AGENT_LABEL].as_str())
        .collect();
    assert_eq!(pods, ["clerk"]);
}
