//! Over a bound, surfaces and then tools are withheld from the end; the rest stays.

use toolcrib_compile::{Code, Compilation, ObjectRef, Settings, check_surface, compile, load};

/// Compiles an agent with `counts` tools on surfaces `s0`, `s1`, …, each with a schema of about
/// `padding` bytes.
fn check(counts: &[usize], padding: usize, kept: &[usize], code: Option<Code>) {
    check_in("Mediated", counts, padding, kept, code);
}

fn check_in(mode: &str, counts: &[usize], padding: usize, kept: &[usize], code: Option<Code>) {
    let mut text = String::from(
        "apiVersion: toolcrib.dev/v1alpha1\nkind: ModelProvider\nmetadata: {name: reef, namespace: pond}\nspec: {endpoints: [{dialect: OpenAI, url: \"https://reef.test/v1\"}], auth: None}\n",
    );
    let mut names = Vec::new();
    for (surface, count) in counts.iter().enumerate() {
        let tools: Vec<String> = (0..*count)
            .map(|tool| {
                format!(
                    "{{name: t{tool:03}, inputSchema: {{type: object, description: {}}}, http: {{method: GET, path: /x}}}}",
                    "x".repeat(padding)
                )
            })
            .collect();
        text.push_str(&format!(
            "---\napiVersion: toolcrib.dev/v1alpha1\nkind: Surface\nmetadata: {{name: s{surface}, namespace: pond}}\nspec: {{url: \"https://fish.test\", descriptor: {{version: 2, tools: [{}]}}}}\n",
            tools.join(", ")
        ));
        names.push((
            format!("{{name: s{surface}}}"),
            format!("{{surface: {{name: s{surface}}}, allow: [\"*\"]}}"),
        ));
    }
    let (surfaces, rules): (Vec<String>, Vec<String>) = names.into_iter().unzip();
    text.push_str(&format!(
        "---\napiVersion: toolcrib.dev/v1alpha1\nkind: Agent\nmetadata: {{name: otter, namespace: pond}}\nspec: {{mode: {mode}, surfaces: [{}]}}\n---\napiVersion: toolcrib.dev/v1alpha1\nkind: ToolGrant\nmetadata: {{name: g, namespace: pond}}\nspec: {{agents: [otter], tools: [{}]}}\n",
        surfaces.join(", "),
        rules.join(", ")
    ));
    let loaded = load([("world.yaml".to_owned(), text)], Settings::default());
    assert_eq!(loaded.errors, []);
    let compilation: Compilation =
        compile(&loaded.inputs, &ObjectRef::new("pond", "otter")).expect("is there");
    let per_surface: Vec<usize> = (0..counts.len())
        .map(|surface| {
            let prefix = format!("s{surface}.");
            let tools = &compilation.files.tools.tools;
            tools
                .iter()
                .filter(|tool| tool.name.starts_with(&prefix))
                .count()
        })
        .collect();
    assert_eq!(per_surface, kept);
    assert_eq!(compilation.tools.len(), kept.iter().sum::<usize>());
    let withheld = counts.iter().sum::<usize>() - kept.iter().sum::<usize>();
    assert_eq!(compilation.withheld.len(), withheld);
    assert!(
        compilation
            .withheld
            .iter()
            .all(|withheld| Some(withheld.code) == code)
    );
}

#[test]
fn tools_within_the_bounds_stay() {
    check(&[60, 60], 10, &[60, 60], None);
}

#[test]
fn the_largest_surfaces_lose_tools_and_displace_no_smaller_one() {
    let check = |counts: &[usize], kept: &[usize]| {
        check(counts, 10, kept, Some(Code::TooManyTools));
    };
    check(&[125], &[120]);
    check(&[150, 2], &[118, 2]);
    check(&[2, 150], &[2, 118]);
    // Of equal surfaces the first in name order keeps one more.
    check(&[60, 60, 1], &[60, 59, 1]);
    check(&[100, 50, 30], &[45, 45, 30]);
}

#[test]
fn the_bound_on_a_request_does_not_apply_to_native_runners() {
    check_in("Native", &[60, 90], 10, &[60, 90], None);
    check_in("Native", &[20], 50_000, &[14], Some(Code::ManifestTooLarge));
}

#[test]
fn bytes_are_bounded_too() {
    check(&[5, 20], 50_000, &[5, 0], Some(Code::ManifestTooLarge));
    check(&[20], 50_000, &[14], Some(Code::ManifestTooLarge));
}

/// Other parts of the files count as well, and are withheld if no tool could make room for them.
#[test]
fn ca_bundles_are_counted() {
    let bundle = |bytes: usize| {
        let pem = include_str!("../../../crds/bounds/tests/pond.pem").replace('\n', "\\n");
        format!("{}\\n{pem}", "x".repeat(bytes))
    };
    let check = |surface: usize,
                 provider: usize,
                 tools: &[&str],
                 feeds: usize,
                 providers: usize| {
        let text = format!(
            r#"
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: cas, namespace: pond}}, data: {{surface: "{}", provider: "{}"}}}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ModelProvider
metadata: {{name: reef, namespace: pond}}
spec:
  endpoints: [{{dialect: Anthropic, url: "https://api.reef.test"}}]
  auth: None
  tls: {{caFrom: {{configMapKeyRef: {{name: cas, key: provider}}}}}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {{name: fish, namespace: pond}}
spec: {{url: "https://api.fish.test", descriptor: {{version: 2, tools: [{{name: list, inputSchema: {{type: object}}, http: {{method: GET, path: /x}}}}]}}}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {{name: reed, namespace: pond}}
spec:
  url: "https://api.reed.test"
  tls: {{caFrom: {{configMapKeyRef: {{name: cas, key: surface}}}}}}
  descriptor: {{version: 2, feeds: [{{name: height, path: /height}}], tools: [{{name: cut, inputSchema: {{type: object}}, http: {{method: GET, path: /x}}}}]}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {{name: otter, namespace: pond}}
spec: {{surfaces: [{{name: fish}}, {{name: reed}}]}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {{name: g, namespace: pond}}
spec:
  agents: [otter]
  tools: [{{surface: {{name: fish}}, allow: ["*"]}}, {{surface: {{name: reed}}, allow: ["*"]}}]
  feeds: [{{surface: {{name: reed}}, allow: ["*"]}}]
"#,
            bundle(surface),
            bundle(provider),
        );
        let loaded = load([("world.yaml".to_owned(), text)], Settings::default());
        assert_eq!(loaded.errors, []);
        let done = compile(&loaded.inputs, &ObjectRef::new("pond", "otter")).expect("is there");
        let given: Vec<&str> = done.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(given, tools);
        assert_eq!(done.feeds.len(), feeds);
        assert_eq!(done.files.feeds.0.len(), feeds);
        assert_eq!(done.files.providers.providers.len(), providers);
        let withheld = done
            .withheld
            .iter()
            .filter(|one| one.code == Code::ManifestTooLarge);
        let gone = 2 - tools.len() + 1 - feeds + 1 - providers;
        assert_eq!(withheld.count(), gone, "{:?}", done.withheld);
        let bytes: usize = toolcrib_compile::render(&done.files)
            .values()
            .map(String::len)
            .sum();
        assert!(bytes <= 700 * 1024, "{bytes}");
    };
    check(1_000, 1_000, &["fish.list", "reed.cut"], 1, 1);
    // Surfaces are withheld from the end, and then tools and feeds, until the bundle has no user.
    check(720_000, 1_000, &[], 0, 1);
    // No tool could make room for this bundle.
    check(1_000, 720_000, &["fish.list", "reed.cut"], 1, 0);
}

/// A pattern of twenty bytes can compile to megabytes.
#[test]
fn patterns_that_expand_withhold_their_tool_and_take_no_memory() {
    let patterns: Vec<String> = (0..400)
        .map(|at| format!(r#""p{at}": {{"type": "string", "pattern": "\\p{{L}}{{60}}k{at}"}}"#))
        .collect();
    let text = format!(
        r#"{{"apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
            "metadata": {{"name": "reef", "namespace": "pond"}},
            "spec": {{"url": "https://fish.test", "descriptor": {{"version": 2, "tools": [
                {{"name": "bomb", "inputSchema": {{"properties": {{{}}}}}, "http": {{"method": "GET", "path": "/"}}}},
                {{"name": "fish", "inputSchema": {{}}, "http": {{"method": "GET", "path": "/"}}}}]}}}}}}"#,
        patterns.join(", ")
    );
    let loaded = load([("world.yaml".to_owned(), text)], Settings::default());
    assert_eq!(loaded.errors, []);
    let mut report = None;
    let used = allocation_counter::measure(|| {
        report = check_surface(&loaded.inputs, &ObjectRef::new("pond", "reef"));
    });
    let report = report.expect("is there");
    let codes: Vec<Code> = report.diagnostics.iter().map(|found| found.code).collect();
    assert_eq!((report.tools, codes), (1, vec![Code::UnsupportedPattern]));
    assert!(used.bytes_max < 4 * 1024 * 1024, "{used:?}");
}
