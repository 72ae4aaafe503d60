//! Algebraic properties of compile, over generated worlds. For more worlds raise `with_cases`.

mod worlds;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;
use toolcrib_compile::{
    Code, Compilation, Network, ObjectRef, Objects as _, Settings, check_grant, check_surface,
    compile_all, load,
};
use worlds::{World, world};

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

/// Names and entry digests of the agent's tools.
fn given(compilation: &Compilation) -> BTreeSet<(String, String)> {
    compilation
        .tools
        .iter()
        .map(|tool| (tool.name.clone(), tool.entry_digest.clone()))
        .collect()
}

/// Names of the agent's tools, including those that only its highest tier withholds.
fn may(compilation: &Compilation) -> BTreeSet<String> {
    let restricted = compilation
        .withheld
        .iter()
        .filter(|withheld| matches!(withheld.code, Code::TierAboveMaximum | Code::DeniedByPolicy))
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
    fn objects_of_an_unreferenced_namespace_change_nothing(world in world(), which in any::<Index>()) {
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

    /// An agent that sets whether it uses the defaults gains nothing, within bounds. Other agents
    /// gain nothing that they could not have had.
    #[test]
    fn removing_an_object_never_adds_a_tool(world in world(), which in any::<Index>()) {
        let before = compile(&world);
        let (removed, less) = without(&world, &which);
        // A policy restricts, so removing it lifts that.
        prop_assume!(!removed.starts_with("ClusterToolPolicy"));
        // A literal address is refused while a Service has it, and allowed after the Service is gone.
        prop_assume!(!world[&removed].contains("clusterIP: 10.96.0.7"));
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

    /// Deleting the defaults does not open a network that they restrict.
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

    /// Everything withheld has a reason for people and a diagnostic with the same code, and every
    /// missing reference has a diagnostic.
    #[test]
    fn everything_requested_is_granted_or_withheld_with_a_diagnostic(world in world()) {
        let loaded = load(world.clone(), Settings::default());
        let compiled = compile_all(&loaded.inputs);
        for (agent, compilation) in &compiled {
            for withheld in &compilation.withheld {
                prop_assert!(withheld.message.len() > 20, "{withheld:?}");
                let said = compilation.diagnostics.iter().any(|found| found.code == withheld.code);
                prop_assert!(said, "{agent}: {withheld:?} is withheld, and no diagnostic says so");
            }
        }
        // A suspended grant gives nothing, as if it were not there.
        let grants = loaded.inputs.grants().filter(|(_, grant)| !grant.spec.is_suspended());
        for (grant_key, grant) in grants {
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
                        let namespace = rule.surface.namespace.as_deref().unwrap_or(&key.namespace);
                        let surface = ObjectRef::new(namespace, rule.surface.name.clone());
                        let code = match loaded.inputs.surface(&surface) {
                            None if namespace == &*key.namespace => Code::SurfaceNotFound,
                            None | Some(_) => Code::SurfaceNotDeclared,
                        };
                        let said = report.diagnostics.iter().any(|found| found.code == code);
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
        // An unusable surface has a diagnostic of its own.
        for (key, _) in loaded.inputs.surfaces() {
            let report = check_surface(&loaded.inputs, key).expect("is there");
            let usable = report.tools > 0 || report.descriptor_digest.is_some();
            prop_assert!(usable || !report.diagnostics.is_empty(), "{key} has no diagnostic");
        }
    }
}
