//! Properties that hold for any set of objects.
//!
//! Objects are drawn from a small world in which names often match: three agents, three surfaces
//! (one of another namespace), grants, defaults, and Secrets that may be missing, unlabelled or
//! unreadable.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use toolcrib_compile::{
    Compilation, Effect, Inputs, LastGood, LoadResult, Network, ObjectRef, Presence, SecretKeyRef,
    Settings, comparable, compile, compile_all, link_allowlist, load, materialize, plan,
    takes_away,
};
use toolcrib_manifest::{ProviderTools, Rule, SecretText, names};
use toolcrib_rules::models::matches_each;

const AGENTS: [&str; 3] = ["otter", "beaver", "heron"];
const SURFACES: [&str; 3] = ["fish", "reed", "news"];
const TOOLS: [&str; 3] = ["list", "take", "burn"];

/// Documents, one object each: name of the object, YAML.
type World = BTreeMap<String, String>;

fn world() -> impl Strategy<Value = World> {
    (
        vec(agent(), 3),
        vec(surface(), 3),
        vec(grant(), 0..5),
        prop::option::of(rules()),
        vec(secret(), 3),
        any::<bool>(),
    )
        .prop_map(|(agents, surfaces, grants, defaults, secrets, provider)| {
            let mut world = World::new();
            for (name, (spec, models)) in AGENTS.into_iter().zip(agents) {
                // Models that nothing serves are in the files and give nothing.
                let models = if provider { models } else { "" };
                let spec = format!("{{{spec}{models}}}");
                let text = ours("Agent", name, "pond", &spec);
                world.insert(format!("agent {name}"), text);
            }
            for ((name, spec), secret) in SURFACES.into_iter().zip(surfaces).zip(secrets) {
                let namespace = namespace_of(name);
                if let Some(spec) = spec {
                    let text = ours("Surface", name, namespace, &spec.replace("NAME", name));
                    world.insert(format!("surface {name}"), text);
                }
                world.insert(
                    format!("service {name}"),
                    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{ports: [{{port: 80}}]}}\n"),
                );
                if let Some(metadata) = secret {
                    world.insert(
                        format!("secret {name}"),
                        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {namespace}, {}}}\nstringData: {{token: never-shown-{name}}}\n", metadata.replace("NAME", name).replace("NS", namespace)),
                    );
                }
            }
            for (index, (agents, rules, time)) in grants.into_iter().enumerate() {
                let spec = format!("{{agents: [{}], tools: [{rules}]{time}}}", agents.join(", "));
                let name = format!("g{index}");
                world.insert(format!("grant {name}"), ours("ToolGrant", &name, "pond", &spec));
            }
            if let Some(rules) = defaults {
                let spec = format!("{{tools: [{rules}]}}");
                world.insert("defaults".to_owned(), ours("ToolDefaults", "default", "pond", &spec));
            }
            if provider {
                let spec = "{endpoints: [{dialect: OpenAI, url: \"http://model.pond.svc/v1\"}], auth: None}";
                world.insert("provider".to_owned(), ours("ModelProvider", "reef", "pond", spec));
                world.insert("other provider".to_owned(), ours("ModelProvider", "deep", "pond", spec));
            }
            world
        })
}

fn namespace_of(surface: &str) -> &'static str {
    if surface == "news" { "lake" } else { "pond" }
}

fn ours(kind: &str, name: &str, namespace: &str, spec: &str) -> String {
    format!(
        "apiVersion: toolcrib.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n"
    )
}

/// The fields of an Agent, those of its models apart.
fn agent() -> impl Strategy<Value = (String, &'static str)> {
    (
        btree_set(0..3_usize, 0..=3),
        any::<bool>(),
        prop::sample::select(vec!["ReadOnly", "System", "Elevated"]),
        prop::sample::select(vec![
            "",
            "",
            ", models: {default: reef/carp, allowed: [reef/pike], fallbacks: [reef/perch, deep/squid]}",
            ", models: {default: reef/carp}",
            ", models: {allowed: [reef/pike-mini, deep/squid], unknown: Default}",
            ", models: {unknown: Default}",
        ]),
    )
        .prop_map(|(surfaces, exclude, max_tier, models)| {
            let surfaces: Vec<String> = surfaces
                .into_iter()
                .map(|index| {
                    let name = SURFACES[index];
                    format!("{{name: {name}, namespace: {}}}", namespace_of(name))
                })
                .collect();
            let defaults = if exclude { "Exclude" } else { "Include" };
            let fields = format!(
                "surfaces: [{}], toolDefaults: {defaults}, policy: {{maxTier: {max_tier}}}",
                surfaces.join(", ")
            );
            (fields, models)
        })
}

fn surface() -> impl Strategy<Value = Option<String>> {
    let tools = vec(
        prop::sample::select(vec![
            "inputSchema: {type: object}, http: {method: GET, path: /x}, annotations: {readOnly: true}",
            "inputSchema: {type: object, properties: {n: {type: integer}}}, http: {method: POST, path: /x}",
            "inputSchema: {type: object}, http: {method: DELETE, path: /x}, annotations: {destructive: true}",
            "inputSchema: {type: 7}, http: {method: GET, path: /x}",
            "inputSchema: {type: object}",
        ]),
        0..=3,
    );
    let consumers = prop::sample::select(vec![
        "",
        ", consumers: {namespaces: {from: All}, credentials: Share}",
        ", consumers: {namespaces: {from: All}}",
    ]);
    let auth = prop::sample::select(vec![
        "",
        ", auth: {secretKeyRef: {name: NAME, key: token}}",
        ", auth: {secretKeyRef: {name: NAME, key: lost}}",
        ", auth: {fallback: Deny, perAgent: [{agent: {name: otter}, secretKeyRef: {name: NAME, key: token}}]}",
    ]);
    prop::option::weighted(
        0.9,
        (tools, consumers, auth, 1..=2_u8).prop_map(|(tools, consumers, auth, version)| {
            let tools: Vec<String> = TOOLS
                .into_iter()
                .zip(tools)
                .map(|(name, tool)| format!("{{name: {name}, {tool}}}"))
                .collect();
            format!(
                "{{service: {{name: NAME, port: 80}}{auth}{consumers}, descriptor: {{version: {version}, tools: [{}]}}}}",
                tools.join(", ")
            )
        }),
    )
}

fn rules() -> impl Strategy<Value = String> {
    vec(
        (
            0..3_usize,
            prop_oneof![
                Just(vec!["\"*\""]),
                vec(
                    prop::sample::select(vec!["list", "take", "burn", "lost"]),
                    1..3
                ),
            ],
            prop::sample::select(vec![
                "",
                "",
                ", arguments: {pin: {n: 1}}",
                ", arguments: {pin: {n: a}}",
                ", arguments: {schema: {properties: {n: {maximum: 3}}}}",
                ", rate: [{calls: 3, per: 1h}]",
            ]),
        ),
        1..3,
    )
    .prop_map(|rules| {
        let rules: Vec<String> = rules
            .into_iter()
            .map(|(index, allow, arguments)| {
                let name = SURFACES[index];
                format!(
                    "{{surface: {{name: {name}, namespace: {}}}, allow: [{}]{arguments}}}",
                    namespace_of(name),
                    allow.join(", ")
                )
            })
            .collect();
        rules.join(", ")
    })
}

fn grant() -> impl Strategy<Value = (Vec<&'static str>, String, &'static str)> {
    let agents = btree_set(0..3_usize, 1..=3)
        .prop_map(|indexes| indexes.into_iter().map(|index| AGENTS[index]).collect());
    let time = prop::sample::select(vec![
        "",
        "",
        ", suspend: true",
        ", notAfter: \"2026-12-31T00:00:00Z\"",
    ]);
    (agents, rules(), time)
}

fn policy() -> impl Strategy<Value = String> {
    let reach = prop::sample::select(vec![
        "",
        "",
        "agents: [{namespace: pond, name: otter}], ",
        "namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}, ",
    ]);
    let restriction = prop::sample::select(vec![
        "maxTier: ReadOnly",
        "maxTier: Workspace, trustTiersOf: {}",
        "maxTier: Elevated",
        "enforcement: Audit, maxTier: ReadOnly",
        "enforcement: Audit, deny: [{host: fish.pond.svc}, {surface: {namespace: lake, name: news}, tools: ['*a*']}]",
        "deny: [{surface: {namespace: pond, name: fish}}]",
        "deny: [{host: fish.pond.svc}, {surface: {namespace: lake, name: news}, tools: ['*a*']}]",
        "models: {allowed: [reef/carp]}",
        "models: {allowed: ['*/pike*', 'deep/*']}",
        "models: {allowed: ['reef/*']}, deny: [{host: fish.pond.svc}]",
        "egress: Declared",
        "egress: Declared, maxTier: ReadOnly",
        "suspend: true",
        "suspend: false",
    ]);
    (reach, restriction).prop_map(|(reach, restriction)| format!("{{{reach}{restriction}}}"))
}

fn secret() -> impl Strategy<Value = Option<&'static str>> {
    prop::option::weighted(
        0.8,
        prop::sample::select(vec![
            "labels: {toolcrib.dev/credential: \"true\"}, annotations: {toolcrib.dev/hosts: NAME.NS.svc}",
            "labels: {toolcrib.dev/credential: \"true\"}, annotations: {toolcrib.dev/hosts: NAME.NS.svc}",
            "annotations: {toolcrib.dev/hosts: NAME.NS.svc}",
        ]),
    )
}

fn load_world(world: &World) -> LoadResult {
    let loaded = load(
        world
            .iter()
            .map(|(name, text)| (name.clone(), text.clone())),
        Settings::default(),
    );
    assert_eq!(loaded.errors, []);
    loaded
}

fn compile_world(world: &World) -> BTreeMap<ObjectRef, Compilation> {
    compile_all(&load_world(world).inputs)
}

fn tools(compilation: &Compilation) -> BTreeSet<(String, String)> {
    let tools = &compilation.files.tools.tools;
    tools
        .iter()
        .map(|tool| {
            let digest = tool.extension.entry_digest.clone();
            (tool.name.clone(), digest.unwrap_or_default())
        })
        .collect()
}

/// Names of tools, each with the digest of a rule; "any" for a rule without conditions.
fn rules_of(compilation: &Compilation) -> BTreeSet<(String, String)> {
    let tools = compilation.files.tools.tools.iter();
    let rules = tools.flat_map(|tool| {
        let rules = &tool.extension.rules;
        let digests = rules.iter().map(|rule| match rule.is_unconditional() {
            true => "any".to_owned(),
            false => rule.digest.clone(),
        });
        let any = rules.is_empty().then(|| "any".to_owned());
        let digests: Vec<String> = digests.chain(any).collect();
        digests
            .into_iter()
            .map(|digest| (tool.name.clone(), digest))
    });
    rules.collect()
}

/// The models that providers of the world might serve.
const MODELS: [&str; 7] = [
    "reef/carp",
    "reef/pike",
    "reef/pike-mini",
    "reef/perch",
    "deep/squid",
    "deep/pike",
    "lost/carp",
];

/// The models of [`MODELS`] that the files let the agent use, also as fallbacks.
fn models(compilation: &Compilation) -> BTreeSet<String> {
    let files = &compilation.files;
    let is_served = |reference: &&&str| {
        let provider = reference.split('/').next().unwrap_or_default();
        files.providers.providers.contains_key(provider)
    };
    let allows = |reference: &&&str| {
        files.agent.models.as_ref().is_none_or(|models| {
            let listed = models
                .allowed
                .iter()
                .chain(&models.default)
                .chain(&models.fallbacks);
            let mut listed = listed.map(String::as_str);
            let is_open = !models.matching.is_empty();
            listed.any(|it| it == **reference)
                || (is_open && matches_each(&models.matching, reference))
        })
    };
    let all = MODELS.iter().filter(is_served).filter(allows);
    all.map(|it| (*it).to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn order_does_not_matter(world in world(), seed in any::<u64>()) {
        let mut documents: Vec<(String, String)> = world.clone().into_iter().collect();
        let length = documents.len();
        for index in 0..length {
            let other = usize::try_from(seed.rotate_left(u32::try_from(index).expect("few")) % length as u64)
                .expect("an index");
            documents.swap(index, other);
        }
        let shuffled = compile_all(&load(documents, Settings::default()).inputs);
        prop_assert_eq!(shuffled, compile_world(&world));
    }

    #[test]
    fn compiling_twice_gives_the_same(world in world()) {
        prop_assert_eq!(compile_world(&world), compile_world(&world));
    }

    /// Whichever object is removed, no agent gains a tool or a rule.
    #[test]
    fn removing_an_object_never_adds_a_tool(world in world(), which in any::<prop::sample::Index>()) {
        let before = compile_world(&world);
        let mut less = world.clone();
        let removed = which.get(&world.keys().cloned().collect::<Vec<_>>()).clone();
        less.remove(&removed);
        for (agent, after) in compile_world(&less) {
            let had = before.get(&agent).map(tools).unwrap_or_default();
            let has = tools(&after);
            prop_assert!(has.is_subset(&had), "without {removed}, {agent} gains {:?}", has.difference(&had));
            let had = before.get(&agent).map(rules_of).unwrap_or_default();
            let has = rules_of(&after);
            prop_assert!(has.is_subset(&had), "without {removed}, {agent} gains {:?}", has.difference(&had));
        }
    }

    /// A policy gives no agent a tool, a rule, a feed, a provider or a destination, whatever it says.
    #[test]
    fn adding_a_policy_never_allows_a_call(world in world(), policies in vec(policy(), 1..3)) {
        let before = compile_world(&world);
        let mut more = world;
        for (index, spec) in policies.iter().enumerate() {
            let name = format!("p{index}");
            more.insert(format!("policy {name}"), ours("ClusterToolPolicy", &name, "", spec));
        }
        for (agent, after) in compile_world(&more) {
            let before = &before[&agent];
            for (has, had) in [(tools(&after), tools(before)), (rules_of(&after), rules_of(before))] {
                prop_assert!(has.is_subset(&had), "{policies:?} give {agent} {:?}", has.difference(&had));
            }
            prop_assert!(!takes_away(&link_allowlist(&after), &link_allowlist(before)), "{policies:?} give {agent} something");
            let (has, had) = (models(&after), models(before));
            prop_assert!(has.is_subset(&had), "{policies:?} give {agent} {:?}", has.difference(&had));
            // A policy opens no network, and lets no provider execute tools.
            match before.network {
                Network::Unrestricted => {}
                Network::Undecided => prop_assert_ne!(&after.network, &Network::Unrestricted),
                Network::Declared(_) => prop_assert!(matches!(after.network, Network::Declared(_))),
            }
            let refuses = |it: &Compilation| it.files.agent.provider_tools == ProviderTools::Refuse;
            prop_assert!(refuses(&after) || !refuses(before), "{policies:?} allow {agent} provider tools");
        }
    }

    /// A policy that is tried out changes nothing but the marks of the tools that it would withhold: those
    /// that it does withhold when it is enforced.
    #[test]
    fn a_policy_that_is_tried_out_marks_what_it_would_withhold(
        world in world(), restriction in prop::sample::select(vec![
            "maxTier: ReadOnly",
            "maxTier: Workspace, trustTiersOf: {}",
            "deny: [{host: fish.pond.svc}, {surface: {namespace: lake, name: news}, tools: ['*a*']}]",
        ])
    ) {
        let below = |enforcement: &str| {
            let spec = format!("{{enforcement: {enforcement}, {restriction}}}");
            let mut world = world.clone();
            world.insert("policy".to_owned(), ours("ClusterToolPolicy", "p", "", &spec));
            compile_world(&world)
        };
        let (before, tried_out, enforced) = (compile_world(&world), below("Audit"), below("Enforce"));
        for (agent, mut marked) in tried_out {
            prop_assert_eq!(link_allowlist(&marked), link_allowlist(&before[&agent]));
            let left = tools(&enforced[&agent]);
            for tool in &mut marked.files.tools.tools {
                let is_marked = tool.extension.would_deny.take().is_some();
                let is_left = left.iter().any(|(name, _)| *name == tool.name);
                prop_assert_eq!(is_marked, !is_left, "{} of {}", tool.name, agent);
            }
            let digest = before[&agent].files.agent.digest.clone();
            marked.files.agent.digest = digest;
            // The record names it.
            prop_assert_eq!(std::mem::take(&mut marked.files.agent.policies), ["p"]);
            prop_assert_eq!(&marked.files, &before[&agent].files);
        }
    }

    /// Each model that an agent may use is one of its own and matches every policy, and only policies
    /// take models from it.
    #[test]
    fn policies_take_the_models_that_they_do_not_allow_and_no_others(
        world in world(), policies in vec(policy(), 1..3)
    ) {
        let before = compile_world(&world);
        let mut more = world;
        for (index, spec) in policies.iter().enumerate() {
            let name = format!("p{index}");
            more.insert(format!("policy {name}"), ours("ClusterToolPolicy", &name, "", spec));
        }
        let loaded = load_world(&more);
        for (agent, after) in compile_all(&loaded.inputs) {
            if after.suspension().is_some() {
                continue;
            }
            let matching = loaded.inputs.policies();
            let matching = matching.filter(|(key, _)| after.policies.contains(&key.name));
            let globs = matching.filter_map(|(_, policy)| policy.spec.models.as_ref());
            let lists: Vec<Vec<String>> = globs.map(|models| models.allowed.clone()).collect();
            let left: BTreeSet<String> = models(&before[&agent])
                .into_iter()
                .filter(|reference| matches_each(&lists, reference))
                .collect();
            prop_assert_eq!(models(&after), left, "{} below {:?}", agent, policies);
        }
    }

    /// The link revokes nothing from a mediator that has loaded the compiled files, and allows
    /// nothing else.
    #[test]
    fn the_allowlist_equals_the_tools_of_the_files(world in world()) {
        for compiled in compile_world(&world).values() {
            let allowlist = link_allowlist(compiled);
            let entries = allowlist.rules.iter().map(|(name, rules)| (name.clone(), rules.entry.clone()));
            let allowed = allowlist.tools.clone().into_iter().chain(entries);
            prop_assert_eq!(allowed.collect::<BTreeSet<_>>(), tools(compiled));
            for tool in &compiled.files.tools.tools {
                let extension = &tool.extension;
                let (any, limited): (Vec<&Rule>, Vec<&Rule>) =
                    extension.rules.iter().partition(|rule| rule.is_unconditional());
                let is_any = extension.rules.is_empty() || !any.is_empty();
                prop_assert_eq!(allowlist.tools.contains_key(&tool.name), is_any);
                let are_rules = extension.requires.iter().any(|name| name == names::RULES);
                prop_assert_eq!(are_rules, !is_any);
                let stand = allowlist.rules.get(&tool.name).map(|rules| rules.rules.clone());
                let written: BTreeSet<String> = limited.iter().map(|rule| rule.digest.clone()).collect();
                prop_assert_eq!(stand.unwrap_or_default(), written);
            }
            let files = &compiled.files;
            let feeds: Vec<String> =
                files.feeds.0.iter().map(|it| format!("{}/{}", it.source, it.name)).collect();
            prop_assert_eq!(allowlist.feeds, feeds);
            prop_assert_eq!(
                allowlist.providers.iter().collect::<Vec<_>>(),
                files.providers.providers.keys().collect::<Vec<_>>()
            );
            prop_assert_eq!(allowlist.models.is_some(), files.agent.models.is_some());
            if let Some(models) = &files.agent.models {
                let left = allowlist.models.iter().flatten().collect::<BTreeSet<_>>();
                let given = models.allowed.iter().chain(&models.default).chain(&models.fallbacks);
                prop_assert_eq!(left, given.collect::<BTreeSet<_>>());
            }
        }
    }

    #[test]
    fn an_unrelated_object_changes_nothing(world in world()) {
        let before = compile_world(&world);
        let mut more = world;
        for (name, text) in [
            ("unrelated surface", ours("Surface", "moss", "marsh", "{url: \"https://moss.test\", descriptor: {version: 2}}")),
            ("unrelated grant", ours("ToolGrant", "moss", "marsh", "{agents: [otter], tools: [{surface: {name: fish, namespace: pond}, allow: [\"*\"]}]}")),
            ("unrelated defaults", ours("ToolDefaults", "default", "marsh", "{policy: {maxRounds: 1}}")),
            ("unrelated provider", ours("ModelProvider", "moss", "marsh", "{endpoints: [{dialect: OpenAI, url: \"https://moss.test\"}], auth: None}")),
        ] {
            more.insert(name.to_owned(), text);
        }
        prop_assert_eq!(compile_world(&more), before);
    }

    /// Secret values are not in a compilation, nor in the printed form of the final files; and
    /// each reference in the final files is filled in.
    #[test]
    fn secret_values_are_in_the_final_files_only(world in world()) {
        let loaded = load_world(&world);
        for (_, compilation) in compile_all(&loaded.inputs) {
            let printed = format!("{compilation:?} {:?} {:?}", compilation.objects(), comparable(&compilation.files));
            prop_assert!(!printed.contains("never-shown"), "{printed}");
            let values = |reference: &SecretKeyRef| loaded.secrets.get(reference).cloned();
            let done = materialize(&compilation, &values, &LastGood::default(), &[]);
            let printed = format!("{done:?}");
            prop_assert!(!printed.contains("never-shown"), "{printed}");
            prop_assert_eq!(&done.digests.manifest, &compilation.manifest_digest);
            for bytes in done.files.values() {
                let text = String::from_utf8(bytes.clone()).expect("JSON is text");
                prop_assert!(!text.contains("${secret:"), "{text}");
            }
        }
    }

    /// An agent that a plan does not list keeps its tools; and removing an object gains nothing.
    #[test]
    fn a_plan_lists_every_changed_agent(world in world(), other in world(), which in any::<prop::sample::Index>()) {
        let (before, after) = (load_world(&world).inputs, load_world(&other).inputs);
        let planned: BTreeSet<ObjectRef> =
            plan(&before, &after).agents.into_iter().map(|agent| agent.agent).collect();
        let (old, new) = (compile_all(&before), compile_all(&after));
        for agent in old.keys().chain(new.keys()).filter(|agent| !planned.contains(agent)) {
            let files = |side: &BTreeMap<ObjectRef, Compilation>| comparable(&side[agent].files);
            prop_assert_eq!(files(&old), files(&new));
        }
        let mut less = world.clone();
        less.remove(which.get(&world.keys().cloned().collect::<Vec<_>>()));
        let without = plan(&before, &load_world(&less).inputs);
        prop_assert_eq!(without.count(Effect::Gain), 0, "{:?}", without);
    }

    /// A store that is not read yet revokes nothing that was in force, and grants nothing new.
    #[test]
    fn unreadable_secrets_keep_what_was_compiled(world in world()) {
        let loaded = load_world(&world);
        let values = |reference: &SecretKeyRef| loaded.secrets.get(reference).cloned();
        let mut unreadable: Inputs = loaded.inputs.clone();
        for surface in SURFACES {
            let secret = ObjectRef::new(namespace_of(surface), surface);
            unreadable.set_secret(secret, Presence::Unknown("403".to_owned()));
        }
        for (agent, compilation) in compile_all(&loaded.inputs) {
            let before = materialize(&compilation, &values, &LastGood::default(), &[]);
            let last_good = LastGood::read(&before.annotations, &before.files);
            let nothing = |_: &SecretKeyRef| -> Option<SecretText> { None };
            let again = compile(&unreadable, &agent).expect("the agent is there");
            let after = materialize(&again, &nothing, &last_good, &[]);
            prop_assert_eq!(&after.files["tools.json"], &before.files["tools.json"]);
            prop_assert_eq!(&after.digests.credentials, &before.digests.credentials);
            prop_assert_eq!(&after.kept, &compilation.references());
        }
    }
}
