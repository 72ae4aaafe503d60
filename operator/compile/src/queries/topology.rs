//! The tree of surfaces, the grants of each, and the agents of each grant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use toolcrib_crds::Agent;

use crate::compilation::limits::limits_of;
use crate::compile::authority::{self, Rule, Verb, includes_defaults, selection};
use crate::compile::tools::offer::Offer;
use crate::reference::surface_key;
use crate::surface::{self, ResolvedSurface};
use crate::{Code, Compilation, Inputs, Kind, ObjectRef, Subject, compile, compile_all};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SurfaceNode {
    pub surface: ObjectRef,
    /// `false`: objects name the surface, and it does not exist.
    pub exists: bool,
    /// Number of tools that it offers.
    pub tools: usize,
    pub grants: Vec<GrantNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantNode {
    pub kind: &'static str,
    pub grant: ObjectRef,
    /// As written: tool names, `*`.
    pub allow: BTreeSet<String>,
    /// Words for the limits of its entries.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub limits: BTreeSet<String>,
    /// The labels by which the grant selects agents, as in `kubectl -l`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The grant gives nothing while it is suspended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// The grant gives nothing before this time, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// The grant gives nothing from this time on, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<String>,
    pub agents: Vec<AgentNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentNode {
    pub agent: ObjectRef,
    /// `false`: the grant names the agent, and it does not exist.
    pub exists: bool,
    /// The agent gets nothing while it is suspended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// The tools that this grant gives the agent.
    pub tools: BTreeSet<String>,
    /// Tools that this grant names and the agent does not get.
    pub withheld: BTreeSet<String>,
    /// No ModelProvider serves a model for the agent, so every request for one is refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_model: bool,
}

/// Returns every surface that exists or is named, in order.
pub fn topology(inputs: &Inputs) -> Vec<SurfaceNode> {
    let compiled = compile_all(inputs);
    let mut by_surface: BTreeMap<ObjectRef, BTreeMap<(Kind, ObjectRef), Vec<Rule<'_>>>> = inputs
        .surfaces
        .keys()
        .map(|surface| (surface.clone(), BTreeMap::new()))
        .collect();
    for rule in rules(inputs).filter(|rule| rule.verb == Verb::Tool) {
        by_surface
            .entry(rule.surface.clone())
            .or_default()
            .entry((rule.source.kind, rule.source.key.clone()))
            .or_default()
            .push(rule);
    }
    by_surface
        .into_iter()
        .map(|(surface, grants)| {
            let resolved = resolved(inputs, &surface);
            let descriptor = resolved.as_ref().and_then(|found| found.descriptor());
            let grants = grants
                .into_iter()
                .map(|((kind, grant), rules)| {
                    let (not_before, not_after) = window(inputs, (kind, &grant));
                    GrantNode {
                        kind: kind.name(),
                        allow: rules.iter().flat_map(|rule| rule.allow.to_vec()).collect(),
                        limits: rules.iter().filter_map(limits).collect(),
                        selector: selector(inputs, (kind, &grant)),
                        suspended: is_suspended(inputs, (kind, &grant)),
                        not_before,
                        not_after,
                        agents: agents(inputs, &compiled, &surface, (kind, &grant), &rules),
                        grant,
                    }
                })
                .collect();
            SurfaceNode {
                exists: resolved.is_some(),
                tools: descriptor.map_or(0, |descriptor| descriptor.tools.len()),
                surface,
                grants,
            }
        })
        .collect()
}

fn resolved(inputs: &Inputs, surface: &ObjectRef) -> Option<ResolvedSurface> {
    let found = inputs.surfaces.get(surface)?;
    Some(surface::resolve(inputs, surface, Arc::clone(found)))
}

fn rules(inputs: &Inputs) -> impl Iterator<Item = Rule<'_>> {
    let grants = inputs.grants();
    let grants = grants.flat_map(|(key, grant)| authority::of_grant(key, grant));
    let defaults = inputs.defaults();
    let defaults = defaults.flat_map(|(key, defaults)| authority::of_defaults(key, defaults));
    grants.chain(defaults)
}

/// Returns the agents of an object: those that a grant names or selects; for ToolDefaults, those that include
/// them and declare the surface.
fn agents(
    inputs: &Inputs,
    compiled: &BTreeMap<ObjectRef, Compilation>,
    surface: &ObjectRef,
    (kind, grant): (Kind, &ObjectRef),
    rules: &[Rule<'_>],
) -> Vec<AgentNode> {
    let named: BTreeSet<ObjectRef> = match kind {
        Kind::ToolGrant => inputs
            .grants
            .get(grant)
            .map(|object| {
                let selected = selection::agents_selected(inputs, grant, object);
                selection::agent_names(object, &selected)
            })
            .into_iter()
            .flatten()
            .map(|name| ObjectRef::new(grant.namespace.clone(), name))
            .collect(),
        Kind::ToolDefaults
        | Kind::Surface
        | Kind::Agent
        | Kind::ModelProvider
        | Kind::ClusterToolPolicy
        | Kind::Service
        | Kind::Secret
        | Kind::ConfigMap
        | Kind::Namespace => inputs
            .agents()
            .filter(|(key, agent)| {
                key.namespace == grant.namespace
                    && includes_defaults(agent)
                    && !aliases(key, agent, surface).is_empty()
            })
            .map(|(key, _)| key.clone())
            .collect(),
    };
    let names = match is_suspended(inputs, (kind, grant)) {
        true => BTreeSet::new(),
        false => names(inputs, surface, rules),
    };
    named
        .into_iter()
        .map(|agent| {
            let object = inputs.agents.get(&agent);
            let aliases = object.map_or_else(Vec::new, |object| aliases(&agent, object, surface));
            let given: BTreeSet<&str> = compiled
                .get(&agent)
                .into_iter()
                .flat_map(|compilation| &compilation.tools)
                .map(|tool| &*tool.name)
                .collect();
            let has = |name: &&String| {
                let mut names = aliases.iter().map(|alias| format!("{alias}.{name}"));
                names.any(|name| given.contains(&*name))
            };
            let (tools, withheld): (BTreeSet<&String>, BTreeSet<&String>) =
                names.iter().partition(has);
            AgentNode {
                exists: object.is_some(),
                suspended: compiled
                    .get(&agent)
                    .is_some_and(|compilation| compilation.suspension().is_some()),
                tools: tools.into_iter().cloned().collect(),
                withheld: withheld.into_iter().cloned().collect(),
                no_model: compiled.get(&agent).is_some_and(has_no_model),
                agent,
            }
        })
        .collect()
}

/// Returns the agents to which no grant and no ToolDefaults of `surfaces` apply.
pub fn agents_without_grant(inputs: &Inputs, surfaces: &[SurfaceNode]) -> Vec<AgentNode> {
    let grants = surfaces.iter().flat_map(|surface| &surface.grants);
    let granted: BTreeSet<&ObjectRef> = grants
        .flat_map(|grant| &grant.agents)
        .map(|agent| &agent.agent)
        .collect();
    let agents = inputs.agents().map(|(key, _)| key);
    agents
        .filter(|key| !granted.contains(key))
        .filter_map(|key| compile(inputs, key))
        .map(|compilation| AgentNode {
            exists: true,
            suspended: compilation.suspension().is_some(),
            tools: BTreeSet::new(),
            withheld: BTreeSet::new(),
            no_model: has_no_model(&compilation),
            agent: compilation.agent,
        })
        .collect()
}

fn has_no_model(compilation: &Compilation) -> bool {
    let subject = Subject::new(Kind::Agent, &compilation.agent);
    let mut found = compilation.diagnostics.iter();
    found.any(|found| {
        found.object == subject && matches!(found.code, Code::NoModel | Code::NoModelProvider)
    })
}

fn is_suspended(inputs: &Inputs, (kind, grant): (Kind, &ObjectRef)) -> bool {
    let grant = inputs.grants.get(grant);
    kind == Kind::ToolGrant && grant.is_some_and(|grant| grant.spec.is_suspended())
}

/// Words for the selector of a grant; ToolDefaults have none.
fn selector(inputs: &Inputs, (kind, grant): (Kind, &ObjectRef)) -> Option<String> {
    let grant = inputs.grants.get(grant).filter(|_| kind == Kind::ToolGrant);
    selection::words(grant?)
}

/// The window of a grant; ToolDefaults have none.
fn window(inputs: &Inputs, (kind, grant): (Kind, &ObjectRef)) -> (Option<String>, Option<String>) {
    let grant = inputs.grants.get(grant);
    let grant = grant.filter(|_| kind == Kind::ToolGrant);
    grant.map_or((None, None), |grant| {
        (grant.spec.not_before.clone(), grant.spec.not_after.clone())
    })
}

fn limits(rule: &Rule<'_>) -> Option<String> {
    let rule = &rule.conditions.as_ref().ok()?.rule;
    (!rule.is_unconditional()).then(|| limits_of(rule))
}

/// Returns the tools that the rules name, with `*` expanded to the surface's tools.
fn names(inputs: &Inputs, surface: &ObjectRef, rules: &[Rule<'_>]) -> BTreeSet<String> {
    let resolved = resolved(inputs, surface);
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut expanded: BTreeSet<Verb> = BTreeSet::new();
    for rule in rules {
        names.extend(rule.names().map(|(_, name)| name));
        let all = rule.allows_all() && !expanded.contains(&rule.verb);
        let resolved = resolved.as_ref().filter(|_| all);
        if let Some(Ok(offer)) = resolved.map(|resolved| Offer::to(rule, resolved)) {
            names.extend(offer.names());
            expanded.insert(rule.verb);
        }
    }
    names.into_iter().map(str::to_owned).collect()
}

/// Returns the agent's aliases of a surface.
fn aliases<'a>(key: &ObjectRef, agent: &'a Agent, surface: &ObjectRef) -> Vec<&'a str> {
    agent
        .spec
        .surfaces
        .iter()
        .filter(|entry| surface_key(key, entry) == *surface)
        .map(|entry| entry.alias.as_deref().unwrap_or(&entry.name))
        .collect()
}
