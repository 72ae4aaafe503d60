//! Which other objects an object names. One place, so that what wakes an agent and what
//! its compilation reads cannot differ.

use std::collections::BTreeSet;

use toolcrib_compile::ObjectRef;
use toolcrib_crds::{
    Agent, FeedRule, ModelProvider, Surface, SurfaceName, TlsSpec, ToolDefaults, ToolGrant,
    ToolRule,
};

fn namespace(object: &impl kube::Resource) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

fn ca(namespace: &str, tls: Option<&TlsSpec>) -> Option<ObjectRef> {
    let source = tls?.ca_from.as_ref()?;
    Some(ObjectRef::new(
        namespace,
        source.config_map_key_ref.name.clone(),
    ))
}

pub fn surface_secrets(surface: &Surface) -> BTreeSet<ObjectRef> {
    let namespace = namespace(surface);
    surface
        .spec
        .auth
        .iter()
        .flat_map(|auth| {
            auth.secret_key_ref
                .iter()
                .chain(auth.per_agent.iter().map(|own| &own.secret_key_ref))
        })
        .map(|key| ObjectRef::new(namespace, key.name.clone()))
        .collect()
}

pub fn surface_config_maps(surface: &Surface) -> BTreeSet<ObjectRef> {
    let namespace = namespace(surface);
    let descriptor = surface
        .spec
        .descriptor_from
        .as_ref()
        .map(|from| ObjectRef::new(namespace, from.config_map_key_ref.name.clone()));
    descriptor
        .into_iter()
        .chain(ca(namespace, surface.spec.tls.as_ref()))
        .collect()
}

pub fn agent_surfaces(agent: &Agent) -> BTreeSet<ObjectRef> {
    let own = namespace(agent);
    agent
        .spec
        .surfaces
        .iter()
        .map(|surface| {
            ObjectRef::new(
                surface.namespace.as_deref().unwrap_or(own),
                surface.name.clone(),
            )
        })
        .collect()
}

pub fn agent_secrets(agent: &Agent) -> BTreeSet<ObjectRef> {
    let namespace = namespace(agent);
    agent
        .spec
        .surfaces
        .iter()
        .filter_map(|surface| surface.secret_key_ref.as_ref())
        .map(|key| ObjectRef::new(namespace, key.name.clone()))
        .collect()
}

pub fn grant_surfaces(grant: &ToolGrant) -> BTreeSet<ObjectRef> {
    ruled(namespace(grant), &grant.spec.tools, &grant.spec.feeds)
}

pub fn defaults_surfaces(defaults: &ToolDefaults) -> BTreeSet<ObjectRef> {
    ruled(
        namespace(defaults),
        &defaults.spec.tools,
        &defaults.spec.feeds,
    )
}

fn ruled(own: &str, tools: &[ToolRule], feeds: &[FeedRule]) -> BTreeSet<ObjectRef> {
    let name = |surface: &SurfaceName| {
        ObjectRef::new(
            surface.namespace.as_deref().unwrap_or(own),
            surface.name.clone(),
        )
    };
    tools
        .iter()
        .map(|rule| name(&rule.surface))
        .chain(feeds.iter().map(|rule| name(&rule.surface)))
        .collect()
}

pub fn provider_secrets(provider: &ModelProvider) -> BTreeSet<ObjectRef> {
    let namespace = namespace(provider);
    provider
        .spec
        .api_keys
        .iter()
        .map(|key| ObjectRef::new(namespace, key.secret_key_ref.name.clone()))
        .collect()
}

pub fn provider_config_maps(provider: &ModelProvider) -> BTreeSet<ObjectRef> {
    ca(namespace(provider), provider.spec.tls.as_ref())
        .into_iter()
        .collect()
}
