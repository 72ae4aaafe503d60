//! The recorded keys of a result: a change that alters the result is a change of one of them.

mod worlds;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::de::DeserializeOwned;
use toolcrib_compile::{
    Fetch, Inputs, Key, Keys, Kind, MOST_ROUNDS, ObjectRef, Objects, Presence, Recorder, Settings,
    Subject, SyncProof, check_defaults, check_grant, check_policy, check_provider, check_surface,
    compile, explain_tool, inspect_surface, load,
};
use toolcrib_crds::{Agent, ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant};
use worlds::{OBJECTS, World, world};

/// One change of one object.
#[derive(Clone, Copy, Debug)]
enum Edit {
    /// The object gets its content in another world, which may be none.
    Replace,
    Delete,
    /// Its spec cannot be decoded any more.
    Break,
}

/// The keys that an object answers.
fn keys(name: &str, text: &str) -> BTreeSet<Key> {
    fn of<T: Keys + DeserializeOwned>(text: &str) -> Option<BTreeSet<Key>> {
        // Texts that keep their bytes are read from JSON only.
        let object: serde_json::Value = serde_yaml::from_str(text).ok()?;
        let object: T = serde_json::from_str(&object.to_string()).ok()?;
        Some(object.keys())
    }
    let (kind, key) = subject(name);
    let keys = match kind {
        Kind::Agent => of::<Agent>(text),
        Kind::Surface => of::<Surface>(text),
        Kind::ToolGrant => of::<ToolGrant>(text),
        Kind::ToolDefaults => of::<ToolDefaults>(text),
        Kind::ModelProvider => of::<ModelProvider>(text),
        Kind::ClusterToolPolicy => of::<ClusterToolPolicy>(text),
        Kind::Service => of::<Service>(text),
        Kind::Secret | Kind::ConfigMap | Kind::Namespace => None,
    };
    keys.unwrap_or_else(|| Key::of_object(kind, &key).into())
}

fn subject(name: &str) -> (Kind, ObjectRef) {
    let (kind, key) = name.split_once(' ').expect("KIND NAMESPACE/NAME");
    let (namespace, name) = key.split_once('/').expect("NAMESPACE/NAME");
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
    (kind.expect("a kind"), ObjectRef::new(namespace, name))
}

fn inputs(world: &World) -> Inputs {
    load(world.clone(), Settings::default()).inputs
}

/// All results about one object of Toolcrib's kinds, as text, and the keys that they were made
/// from.
fn answer(inputs: &Inputs, kind: Kind, key: &ObjectRef) -> (String, BTreeSet<Key>) {
    let recorder = Recorder::new(inputs);
    let objects: &dyn Objects = &recorder;
    let answer = match kind {
        Kind::Agent => {
            let compiled = compile(objects, key);
            let explained = compiled.as_ref().map(|compiled| {
                ["fish.lost", "news.list", "lost.list"].map(|tool| {
                    let explained = explain_tool(objects, compiled, tool);
                    (explained.given, explained.because)
                })
            });
            format!(
                "{compiled:?} {explained:?} {:?}",
                objects.unusable(kind, key)
            )
        }
        Kind::Surface => {
            let view = inspect_surface(objects, key).map(|view| serde_json::to_string(&view).ok());
            format!("{:?} {view:?}", check_surface(objects, key))
        }
        Kind::ToolGrant => format!("{:?}", check_grant(objects, key)),
        Kind::ToolDefaults => format!("{:?}", check_defaults(objects, key)),
        Kind::ModelProvider => format!("{:?}", check_provider(objects, key)),
        Kind::ClusterToolPolicy => format!("{:?}", check_policy(objects, key)),
        Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Namespace => String::new(),
    };
    (answer, recorder.looked_at())
}

/// Copies the answer to one key.
fn copy(from: &Inputs, into: &mut Inputs, key: &Key) {
    match key {
        Key::Object(kind, key) => {
            if let Some(why) = from.unusable(*kind, key) {
                into.set_undecodable(*kind, key.clone(), why.reason);
            }
            match kind {
                Kind::Agent => from
                    .agent(key)
                    .into_iter()
                    .for_each(|it| into.set_agent(it)),
                Kind::Surface => from
                    .surface(key)
                    .into_iter()
                    .for_each(|it| into.set_surface(it)),
                Kind::ToolGrant => from
                    .grant(key)
                    .into_iter()
                    .for_each(|it| into.set_grant(it)),
                Kind::ToolDefaults => {
                    Objects::defaults(from, key)
                        .into_iter()
                        .for_each(|it| into.set_defaults(it));
                }
                Kind::ModelProvider => {
                    from.provider(key)
                        .into_iter()
                        .for_each(|it| into.set_provider(it));
                }
                Kind::ClusterToolPolicy => copy(from, into, &Key::policies()),
                Kind::Service => {
                    let found = from.service(key);
                    found
                        .into_iter()
                        .for_each(|it| into.set_service(key.clone(), (*it).clone()));
                }
                Kind::Secret => {
                    let facts = match from.secret(key) {
                        Presence::Present(facts) => Presence::Present((*facts).clone()),
                        Presence::Absent => Presence::Absent,
                        Presence::Unknown(why) => Presence::Unknown(why),
                    };
                    into.set_secret(key.clone(), facts);
                }
                Kind::ConfigMap => into.set_config_map(key.clone(), from.config_map(key)),
                Kind::Namespace => {
                    let labels = from.namespace_labels(&key.name).unwrap_or_default();
                    into.set_namespace(key.name.clone(), labels);
                }
            }
        }
        Key::GrantsFor(agent) => {
            let grants = from.grants_for(agent).into_iter();
            grants.for_each(|(_, grant)| into.set_grant(grant));
        }
        Key::GrantsSelecting(label) => {
            let grants = from.grants_selecting(label).into_iter();
            grants.for_each(|(_, grant)| into.set_grant(grant));
        }
        Key::AgentsLabelled(label) => {
            let agents = from.agents_labelled(label).into_iter();
            agents.for_each(|(_, agent)| into.set_agent(agent));
        }
        Key::AgentsUsing(surface) => {
            let agents = from.agents_using(surface).into_iter();
            agents.for_each(|(_, agent)| into.set_agent(agent));
        }
        Key::In(Kind::ModelProvider, namespace) => {
            let providers = from.providers_in(namespace).into_iter();
            providers.for_each(|(_, provider)| into.set_provider(provider));
        }
        Key::In(Kind::Agent, namespace) => {
            let agents = from.agents_in(namespace).into_iter();
            agents.for_each(|(_, agent)| into.set_agent(agent));
        }
        Key::In(Kind::ClusterToolPolicy, _) => {
            let policies = Objects::policies(from).into_iter();
            policies.for_each(|(_, policy)| into.set_policy(policy));
            for (key, why) in from.unreadable_policies() {
                into.set_undecodable(Kind::ClusterToolPolicy, key, why);
            }
        }
        Key::AllAgents => {
            for key in from.all_agents() {
                copy(from, into, &Key::Object(Kind::Agent, key));
            }
        }
        Key::In(kind, namespace) => {
            for name in from.names_in(*kind, namespace) {
                let key = ObjectRef::new(namespace.clone(), name);
                copy(from, into, &Key::Object(*kind, key));
            }
        }
        Key::ServiceAt(address) => {
            if let Some(service) = from.service_at(*address) {
                copy(from, into, &Key::Object(Kind::Service, service));
            }
        }
    }
}

/// An agent names surfaces, these name Services and ConfigMaps, and last come Secrets. Fewer
/// rounds than a fetch may take ([`MOST_ROUNDS`]), which allows for many objects.
const ROUNDS: usize = MOST_ROUNDS - 2;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(192) })]

    #[test]
    fn a_result_changes_only_with_an_object_that_it_looked_at(
        before in world(),
        other in world(),
        which in any::<Index>(),
        edit in select(vec![Edit::Replace, Edit::Replace, Edit::Delete, Edit::Break]),
    ) {
        let names: BTreeSet<&String> = before.keys().chain(other.keys()).collect();
        let names: Vec<&String> = names.into_iter().collect();
        let name = which.get(&names).to_string();
        let mut after = before.clone();
        after.remove(&name);
        match edit {
            Edit::Replace => after.extend(other.get(&name).map(|text| (name.clone(), text.clone()))),
            Edit::Delete => {}
            Edit::Break => {
                let (kind, key) = subject(&name);
                let broken = "surfaces: 7, agents: 7, url: 7, tools: 7, endpoints: 7, ports: 7";
                if kind != Kind::Namespace {
                    after.extend([worlds::ours(kind.name(), &key.namespace, &key.name, broken)]);
                }
            }
        }
        let versions = [&before, &after].map(|world| world.get(&name));
        let changed: BTreeSet<Key> =
            versions.into_iter().flatten().flat_map(|text| keys(&name, text)).collect();
        let (old, new) = (inputs(&before), inputs(&after));
        for (kind, namespace, object, _) in OBJECTS {
            let (kind, key) = subject(&format!("{kind} {namespace}/{object}"));
            let (was, looked_at) = answer(&old, kind, &key);
            let (is, _) = answer(&new, kind, &key);
            prop_assert!(
                was == is || !looked_at.is_disjoint(&changed),
                "{edit:?} {name} changes {kind:?} {key}, which did not look at it:\n{was}\n{is}\n{looked_at:?}"
            );
        }
    }
    /// Reading missing objects until none is missing gives the result of all objects.
    #[test]
    fn objects_that_are_read_key_by_key_give_the_same_result(world in world()) {
        let all = inputs(&world);
        let synced = SyncProof::check(&SyncProof::KINDS.into()).expect("all kinds are named");
        for (kind, namespace, object, _) in OBJECTS {
            let (kind, key) = subject(&format!("{kind} {namespace}/{object}"));
            let mut read = Inputs::online(synced, Settings::default());
            let mut fetch = Fetch::new(usize::MAX);
            let mut rounds = 0;
            loop {
                fetch.evaluate(0, &read, &Subject::new(kind, &key));
                let missing = fetch.missing().expect("no bound is met");
                if missing.is_empty() {
                    break;
                }
                rounds += 1;
                prop_assert!(rounds <= ROUNDS, "{kind:?} {key} still misses {missing:?}");
                missing.iter().for_each(|key| copy(&all, &mut read, key));
            }
            let result = |inputs: &Inputs| match kind {
                Kind::Agent => format!("{:?}", compile(inputs, &key)),
                Kind::Surface => format!("{:?}", check_surface(inputs, &key)),
                Kind::ToolGrant => format!("{:?}", check_grant(inputs, &key)),
                Kind::ToolDefaults => format!("{:?}", check_defaults(inputs, &key)),
                Kind::ModelProvider => format!("{:?}", check_provider(inputs, &key)),
                Kind::ClusterToolPolicy => format!("{:?}", check_policy(inputs, &key)),
        Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Namespace => String::new(),
            };
            prop_assert_eq!(result(&read), result(&all));
        }
    }
}
