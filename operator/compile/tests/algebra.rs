//! The algebra of objects, over generated worlds that use every feature of the API.
//!
//! A world is what an admin of two namespaces may write: each object is drawn from a few
//! variants, or is not there. Names meet often, and the mistakes are among the variants.
//! More of them: raise `with_cases`.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use toolcrib_compile::{
    Code, Compilation, Network, ObjectRef, Settings, check_grant, check_surface, compile_all, load,
};

/// Documents by the name of their object.
type World = BTreeMap<String, String>;

const SCHEMA: &str = "inputSchema: {type: object, properties: {n: {type: integer}}}";

/// `(kind, namespace, name, variants of spec)`; `$S` is the schema.
const OBJECTS: &[(&str, &str, &str, &[&str])] = &[
    (
        "Surface",
        "pond",
        "fish",
        &[
            "service: {name: fish, port: 80}, auth: {secretKeyRef: {name: fish, key: token}}, descriptor: {version: 2, description: Fish, skillText: How to fish, tools: [{name: list, $S, http: {method: GET, path: /l}, annotations: {readOnlyHint: true}}, {name: take, $S, http: {method: POST, path: '/t/{n}', body: json}}, {name: burn, $S, http: {method: DELETE, path: /b}, annotations: {destructive: true}}]}",
            "service: {name: fish, port: 80}, auth: {fallback: Deny, perAgent: [{agent: {name: otter}, secretKeyRef: {name: fish, key: token}}]}, tiers: {take: Workspace, gone: ReadOnly}, descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: /l}}, {name: take, $S, http: {method: POST, path: /t}}, {name: bad, inputSchema: {type: 7}, http: {method: GET, path: /x}}]}",
            "service: {name: fish, port: 81}, descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: /l}}]}",
            "service: {name: fish, port: 80}, descriptor: {version: 1, tools: [{name: list, $S}]}",
            "service: {name: fish, port: 80}, descriptor: {version: 2, endpoints: [{method: GET, path: /by-hand}]}",
        ],
    ),
    (
        "Surface",
        "pond",
        "reed",
        &[
            "url: 'https://reed.test/api', tls: {caFrom: {configMapKeyRef: {name: ca, key: ca.crt}}}, descriptorFrom: {configMapKeyRef: {name: reed, key: describe.json}}",
            "url: 'https://reed.test', auth: {type: Basic, secretKeyRef: {name: fish}}, descriptorFrom: {configMapKeyRef: {name: reed, key: describe.json}}",
            "url: 'http://127.0.0.1', descriptorFrom: {configMapKeyRef: {name: reed, key: describe.json}}",
        ],
    ),
    (
        "Surface",
        "lake",
        "news",
        &[
            "service: {name: news, port: 443, scheme: https}, consumers: {namespaces: {from: Selector, selector: {matchLabels: {team: otters}}}, credentials: Share}, auth: {secretKeyRef: {name: news, key: token}}, descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: '/{claw_id}'}}]}",
            "service: {name: news, port: 443}, consumers: {namespaces: {from: All}, credentials: PerAgent}, auth: {perAgent: [{agent: {name: otter, namespace: pond}, secretKeyRef: {name: news, key: token}}]}, descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: /l}}]}",
            "service: {name: news, port: 443}, auth: {secretKeyRef: {name: news, key: token}}, descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: /l}}]}",
        ],
    ),
    (
        "Agent",
        "pond",
        "otter",
        &[
            "toolDefaults: Include, surfaces: [{name: fish}, {name: reed}, {name: news, namespace: lake}], egress: Declared",
            "toolDefaults: Include, identity: Pod, surfaces: [{name: fish, as: market}, {name: news, namespace: lake, secretKeyRef: {name: own, key: token}}], policy: {maxTier: System}, context: None",
            "toolDefaults: Exclude, surfaces: [{name: fish}, {name: reed, as: fish}], models: {default: reef/trout, fallbacks: [coral/pike], unknown: Default}",
        ],
    ),
    (
        "Agent",
        "pond",
        "heron",
        &[
            "surfaces: [{name: fish}, {name: reed}, {name: lost}]",
            "surfaces: [{name: fish}], policy: {maxTier: ReadOnly}, egress: Declared, extraEgress: [{to: [{ipBlock: {cidr: nonsense}}]}]",
        ],
    ),
    (
        "ToolGrant",
        "pond",
        "by-name",
        &[
            "agents: [otter, heron], tools: [{surface: {name: fish}, allow: [list, take, lost]}, {surface: {name: reed}, allow: [list]}]",
            "agents: [otter, nobody], tools: [{surface: {name: news, namespace: lake}, allow: [list]}]",
        ],
    ),
    (
        "ToolGrant",
        "pond",
        "all",
        &[
            "agents: [otter], tools: [{surface: {name: fish}, allow: ['*']}, {surface: {name: news, namespace: lake}, allow: ['*']}]",
            "agents: [heron], tools: [{surface: {name: fish}, allow: ['*'], descriptorDigest: 'sha256:0000000000000000000000000000000000000000000000000000000000000000'}, {surface: {name: lost}, allow: ['*']}]",
        ],
    ),
    (
        "ToolDefaults",
        "pond",
        "default",
        &[
            "tools: [{surface: {name: reed}, allow: ['*']}], policy: {maxTier: ReadOnly}",
            "tools: [{surface: {name: fish}, allow: [burn]}], policy: {maxTier: Workspace, maxRounds: 2}, egress: Declared, models: {allowed: [reef/trout]}",
            "tools: [{surface: {name: news, namespace: lake}, allow: [list]}]",
        ],
    ),
    (
        "ModelProvider",
        "pond",
        "reef",
        &[
            "endpoints: [{dialect: OpenAI, url: 'http://model.pond.svc/v1'}], auth: None",
            "endpoints: [{dialect: OpenAI, url: 'https://reef.test/v1', responses: true}], apiKeys: [{secretKeyRef: {name: own, key: token}}]",
        ],
    ),
    (
        "ModelProvider",
        "pond",
        "coral",
        &[
            "endpoints: [{dialect: Anthropic, url: 'https://coral.test/v1'}], auth: None, proxy: 'http://proxy.test:3128'",
        ],
    ),
];

/// Documents that are there or not.
const OTHERS: &[(&str, &str)] = &[
    (
        "Service fish",
        "apiVersion: v1\nkind: Service\nmetadata: {name: fish, namespace: pond}\nspec: {selector: {app: fish}, ports: [{port: 80, targetPort: 8080}]}\n",
    ),
    (
        "Service news",
        "apiVersion: v1\nkind: Service\nmetadata: {name: news, namespace: lake}\nspec: {ports: [{port: 443}]}\n",
    ),
    (
        "Service model",
        "apiVersion: v1\nkind: Service\nmetadata: {name: model, namespace: pond}\nspec: {selector: {app: model}, ports: [{port: 80}]}\n",
    ),
    (
        "Secret fish",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: fish, namespace: pond, labels: {toolcrib.dev/credential: 'true'}, annotations: {toolcrib.dev/hosts: 'fish.pond.svc, reed.test'}}\nstringData: {token: t, username: u, password: p}\n",
    ),
    (
        "Secret news",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: news, namespace: lake, labels: {toolcrib.dev/credential: 'true'}, annotations: {toolcrib.dev/hosts: news.lake.svc}}\nstringData: {token: t}\n",
    ),
    (
        "Secret own",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: own, namespace: pond, labels: {toolcrib.dev/credential: 'true'}, annotations: {toolcrib.dev/hosts: 'news.lake.svc,reef.test'}}\nstringData: {token: t}\n",
    ),
    (
        "ConfigMap ca",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca, namespace: pond}\ndata: {ca.crt: '-----BEGIN CERTIFICATE-----'}\n",
    ),
    (
        "ConfigMap reed",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: reed, namespace: pond}\ndata: {describe.json: '{\"version\": 2, \"skill\": \"s/reed.md\", \"tools\": [{\"name\": \"list\", \"inputSchema\": {\"type\": \"object\"}, \"http\": {\"method\": \"GET\", \"path\": \"/l\"}}]}', reed.md: How to cut}\n",
    ),
    (
        "Namespace pond",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: pond, labels: {team: otters}}\n",
    ),
];

fn world() -> impl Strategy<Value = World> {
    let ours: Vec<_> = OBJECTS
        .iter()
        .map(|(kind, namespace, name, variants)| {
            let document = move |spec: &str| {
                let spec = spec.replace("$S", SCHEMA);
                let text = format!(
                    "apiVersion: toolcrib.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{spec}}}\n"
                );
                (format!("{kind} {namespace}/{name}"), text)
            };
            prop::option::weighted(0.9, select(variants.to_vec()).prop_map(document))
        })
        .collect();
    let others: Vec<_> = OTHERS
        .iter()
        .map(|(name, text)| {
            let one = Just(((*name).to_owned(), (*text).to_owned()));
            prop::option::weighted(0.9, one)
        })
        .collect();
    (ours, others).prop_map(|(ours, others)| ours.into_iter().chain(others).flatten().collect())
}

fn compile(world: &World) -> BTreeMap<ObjectRef, Compilation> {
    compiled(
        world
            .iter()
            .map(|(name, text)| (name.clone(), text.clone())),
    )
}

fn compiled(
    documents: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<ObjectRef, Compilation> {
    let loaded = load(documents, Settings::default());
    assert_eq!(loaded.errors, []);
    compile_all(&loaded.inputs)
}

/// What a tool is, apart from what calls it.
fn given(compilation: &Compilation) -> BTreeSet<(String, String)> {
    compilation
        .tools
        .iter()
        .map(|tool| (tool.name.clone(), tool.entry_digest.clone()))
        .collect()
}

/// Names that the agent may be given: with what only a restriction keeps from it.
fn may(compilation: &Compilation) -> BTreeSet<String> {
    let restricted = compilation
        .withheld
        .iter()
        .filter(|withheld| withheld.code == Code::TierAboveMaximum)
        .map(|withheld| withheld.what.clone());
    let given = compilation.tools.iter().map(|tool| tool.name.clone());
    given.chain(restricted).collect()
}

fn without(world: &World, which: &Index) -> (String, World) {
    let names: Vec<&String> = world.keys().collect();
    let mut less = world.clone();
    let removed = which.get(&names).to_string();
    less.remove(&removed);
    (removed, less)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn the_order_of_objects_does_not_matter(
        (world, documents) in world().prop_flat_map(|world| {
            let documents: Vec<(String, String)> = world.clone().into_iter().collect();
            (Just(world), Just(documents).prop_shuffle())
        })
    ) {
        prop_assert_eq!(compiled(documents), compile(&world));
    }

    #[test]
    fn compiling_again_gives_the_same(world in world()) {
        prop_assert_eq!(compile(&world), compile(&world));
    }

    #[test]
    fn objects_of_a_namespace_that_nobody_names_change_nothing(world in world(), which in any::<Index>()) {
        let before = compile(&world);
        let mut more = world.clone();
        let elsewhere = |text: &str| text.replace("namespace: pond", "namespace: marsh");
        let names: Vec<&String> = world.keys().filter(|name| name.contains(" pond/")).collect();
        prop_assume!(!names.is_empty());
        let name = which.get(&names).to_string();
        more.insert(format!("{name} of marsh"), elsewhere(&world[&name]));
        let after = compile(&more);
        for (agent, compilation) in &before {
            prop_assert_eq!(&after[agent], compilation, "{} of marsh", name);
        }
    }

    /// Of agents that say whether they rely on the defaults, within bounds: nothing at all.
    /// Of the others: nothing that they could not have had.
    #[test]
    fn removing_an_object_never_adds_a_tool(world in world(), which in any::<Index>()) {
        let before = compile(&world);
        let (removed, less) = without(&world, &which);
        for (agent, after) in compile(&less) {
            let Some(before) = before.get(&agent) else {
                prop_assert!(false, "{agent} came by removing {removed}");
                continue;
            };
            let gained: Vec<String> = may(&after).difference(&may(before)).cloned().collect();
            prop_assert!(gained.is_empty(), "without {removed}, {agent} may have {gained:?}");
            if agent.name == "otter" {
                let gained: Vec<_> = given(&after).difference(&given(before)).cloned().collect();
                prop_assert!(gained.is_empty(), "without {removed}, {agent} has {gained:?}");
            }
        }
    }

    /// And a network that the defaults restrict is not opened by deleting them.
    #[test]
    fn removing_named_defaults_opens_no_network(world in world()) {
        let before = compile(&world);
        let mut less = world.clone();
        less.remove("ToolDefaults pond/default");
        let otter = ObjectRef::new("pond", "otter");
        if let (Some(before), Some(after)) = (before.get(&otter), compile(&less).get(&otter))
            && matches!(before.network, Network::Declared(_))
        {
            prop_assert!(!matches!(after.network, Network::Unrestricted));
        }
    }

    /// Nothing is withheld without a reason that a person can read and a diagnostic that
    /// carries the same code; nothing that is named and missing goes unsaid.
    #[test]
    fn what_is_asked_for_is_given_or_withheld_and_said(world in world()) {
        let loaded = load(world.clone(), Settings::default());
        let compiled = compile_all(&loaded.inputs);
        for (agent, compilation) in &compiled {
            for withheld in &compilation.withheld {
                prop_assert!(withheld.message.len() > 20, "{withheld:?}");
                let said = compilation.diagnostics.iter().any(|found| found.code == withheld.code);
                prop_assert!(said, "{agent}: {withheld:?} is withheld, and no diagnostic says so");
            }
        }
        for (grant_key, grant) in loaded.inputs.grants() {
            let report = check_grant(&loaded.inputs, grant_key).expect("is there");
            for name in &grant.spec.agents {
                let key = ObjectRef::new(grant_key.namespace.clone(), name.clone());
                let Some(compilation) = compiled.get(&key) else {
                    prop_assert!(report.diagnostics.iter().any(|found| found.code == Code::AgentNotFound));
                    continue;
                };
                let (_, agent) = loaded.inputs.agents().find(|(other, _)| **other == key).expect("is there");
                for rule in &grant.spec.tools {
                    let entry = agent.spec.surfaces.iter().find(|entry| entry.name == rule.surface.name);
                    let Some(entry) = entry else {
                        let said = report.diagnostics.iter().any(|found| found.code == Code::SurfaceNotDeclared);
                        prop_assert!(said, "{grant_key} names {} for {key}", rule.surface.name);
                        continue;
                    };
                    let alias = entry.alias.as_deref().unwrap_or(&entry.name);
                    let whole = format!("{alias}.*");
                    for tool in rule.allow.iter().filter(|tool| *tool != "*") {
                        let name = format!("{alias}.{tool}");
                        let known = compilation.tools.iter().any(|given| given.name == name)
                            || compilation.withheld.iter().any(|kept| kept.what == name || kept.what == whole);
                        prop_assert!(known, "{key}: {name} is neither given nor withheld");
                    }
                }
            }
        }
        // A surface that cannot be used says so itself.
        for (key, _) in loaded.inputs.surfaces() {
            let report = check_surface(&loaded.inputs, key).expect("is there");
            let usable = report.tools > 0 || report.descriptor_digest.is_some();
            prop_assert!(usable || !report.diagnostics.is_empty(), "{key} is silent");
        }
    }
}
