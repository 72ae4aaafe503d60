//! Who names a surface, a provider or what they refer to.
//!
//! Not here: reading the names out of a spec (the controller's `names_in`), and which
//! change asks.
//!
//! Invariant: an object that cannot be read names nothing.

use std::collections::BTreeSet;

use toolcrib_compile::ObjectRef;
use toolcrib_crds::{ModelProvider, Surface};

use super::{Related, key};
use crate::controller::work::WorkKind;
use crate::objects::names_in;
use crate::objects::stores::Tables;

/// Agents that have one of these surfaces in their spec, and grants and defaults that name
/// one.
pub(super) fn users_of_surfaces(
    tables: &Tables,
    surfaces: &BTreeSet<ObjectRef>,
    related: &mut Related,
) {
    for agent in tables.agents.all() {
        if let Ok(agent) = &agent.object
            && !names_in::agent_surfaces(agent).is_disjoint(surfaces)
        {
            related.insert(WorkKind::Agent.work(key(&**agent)));
        }
    }
    for grant in tables.grants.all() {
        if let Ok(grant) = &grant.object
            && !names_in::grant_surfaces(grant).is_disjoint(surfaces)
        {
            related.insert(WorkKind::ToolGrant.work(key(&**grant)));
        }
    }
    for defaults in tables.defaults.all() {
        if let Ok(defaults) = &defaults.object
            && !names_in::defaults_surfaces(defaults).is_disjoint(surfaces)
        {
            related.insert(WorkKind::ToolDefaults.work(key(&**defaults)));
        }
    }
}

pub(super) fn agents_in(tables: &Tables, namespace: &str, related: &mut Related) {
    related.extend(
        tables
            .agents
            .namespace(namespace)
            .iter()
            .map(|agent| WorkKind::Agent.work(key(&**agent))),
    );
}

/// Surfaces and providers of a namespace that `uses` picks, with everybody they concern.
pub(super) fn users_of(
    tables: &Tables,
    namespace: &str,
    surface_uses: impl Fn(&Surface) -> bool,
    provider_uses: impl Fn(&ModelProvider) -> bool,
    related: &mut Related,
) {
    let surfaces: BTreeSet<ObjectRef> = tables
        .surfaces
        .namespace(namespace)
        .iter()
        .filter_map(|surface| surface.object.as_ref().ok())
        .filter(|surface| surface_uses(surface))
        .map(|surface| key(&**surface))
        .collect();
    if !surfaces.is_empty() {
        users_of_surfaces(tables, &surfaces, related);
        related.extend(surfaces.into_iter().map(|key| WorkKind::Surface.work(key)));
    }
    let providers: Vec<ObjectRef> = tables
        .providers
        .namespace(namespace)
        .iter()
        .filter_map(|provider| provider.object.as_ref().ok())
        .filter(|provider| provider_uses(provider))
        .map(|provider| key(&**provider))
        .collect();
    if !providers.is_empty() {
        agents_in(tables, namespace, related);
        related.extend(
            providers
                .into_iter()
                .map(|key| WorkKind::ModelProvider.work(key)),
        );
    }
}
