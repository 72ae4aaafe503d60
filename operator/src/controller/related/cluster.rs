//! Whom a change of a Service, Secret, ConfigMap, NetworkPolicy, Pod or Namespace concerns.
//!
//! Not here: the API's own kinds.
//!
//! Invariant: what nobody refers to, and is no agent's own, concerns nobody, however often it
//! changes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use toolcrib_compile::{Kind, Leads, ObjectRef, ServiceFacts, names};

use super::users::users_of;
use super::{Concerns, Related, here, key};
use crate::controller::work::WorkKind;
use crate::objects::decode::{Decoded, MetaOf};
use crate::objects::kept::Kept;
use crate::objects::names_in;
use crate::objects::stores::Tables;
use crate::objects::tables::Change;

impl Concerns for Decoded<Service> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        // Services carry no generation; their spec is small enough to compare.
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && let (Ok(old), Ok(new)) = (&old.object, &new.object)
            && old.spec == new.spec
        {
            return related;
        }
        let service = here(change);
        if service == ObjectRef::new(names::DNS_NAMESPACE, names::DNS_SERVICE) {
            // Every agent's files name its addresses.
            let agents = tables.agents.all();
            related.extend(agents.iter().map(|it| WorkKind::Agent.work(key(&**it))));
        }
        let addresses: BTreeSet<IpAddr> = [&change.old, &change.new]
            .into_iter()
            .flatten()
            .filter_map(|version| version.object.as_ref().ok())
            .flat_map(|version| ServiceFacts::addresses(version))
            .collect();
        // A url may name a Service of any namespace, or its address.
        for namespace in naming_namespaces(tables) {
            users_of(
                tables,
                &namespace,
                |surface| leads(surface, &service, &addresses),
                |provider| leads(provider, &service, &addresses),
                &mut related,
            );
        }
        related
    }
}

fn leads(
    object: &(impl Leads + Resource),
    service: &ObjectRef,
    addresses: &BTreeSet<IpAddr>,
) -> bool {
    object.possible_services().contains(service) || !object.addresses().is_disjoint(addresses)
}

/// Surfaces and providers that a Secret is a credential of.
pub fn users_of_secret(tables: &Tables, secret: &ObjectRef) -> Related {
    let mut related = Related::new();
    users_of(
        tables,
        &secret.namespace,
        |surface| names_in::surface_secrets(surface).contains(secret),
        |provider| names_in::provider_secrets(provider).contains(secret),
        &mut related,
    );
    related.retain(|work| work.kind != WorkKind::Agent);
    related
}

/// All that a ConfigMap or Secret matters to, agents of other namespaces included.
pub fn users_of_material(tables: &Tables, kind: Kind, key: &ObjectRef) -> Related {
    let mut related = Related::new();
    let uses = |of: (BTreeSet<ObjectRef>, BTreeSet<ObjectRef>)| match kind {
        Kind::Secret => of.0.contains(key),
        _ => of.1.contains(key),
    };
    users_of(
        tables,
        &key.namespace,
        |surface| {
            uses((
                names_in::surface_secrets(surface),
                names_in::surface_config_maps(surface),
            ))
        },
        |provider| {
            uses((
                names_in::provider_secrets(provider),
                names_in::provider_config_maps(provider),
            ))
        },
        &mut related,
    );
    for agent in tables.agents.namespace(&key.namespace) {
        let agent = agent.object.as_ref().ok();
        if kind == Kind::Secret
            && let Some(agent) = agent
            && names_in::agent_secrets(agent).contains(key)
        {
            related.insert(WorkKind::Agent.work(super::key(&**agent)));
        }
    }
    related
}

/// The ConfigMaps and Secrets that somebody refers to, and the operator's own Secrets.
pub fn material_in_use(tables: &Tables) -> BTreeSet<(Kind, ObjectRef)> {
    let mut used = BTreeSet::new();
    let mut add = |kind: Kind, keys: BTreeSet<ObjectRef>| {
        used.extend(keys.into_iter().map(|key| (kind, key)));
    };
    for surface in tables.surfaces.all() {
        if let Ok(surface) = &surface.object {
            add(Kind::Secret, names_in::surface_secrets(surface));
            add(Kind::ConfigMap, names_in::surface_config_maps(surface));
        }
    }
    for provider in tables.providers.all() {
        if let Ok(provider) = &provider.object {
            add(Kind::Secret, names_in::provider_secrets(provider));
            add(Kind::ConfigMap, names_in::provider_config_maps(provider));
        }
    }
    for agent in tables.agents.all() {
        if let Ok(agent) = &agent.object {
            add(Kind::Secret, names_in::agent_secrets(agent));
        }
        let of_agent = super::key(&*agent);
        let own = ObjectRef::new(
            of_agent.namespace,
            toolcrib_compile::Role::Identity.object_name(&of_agent.name),
        );
        add(Kind::Secret, BTreeSet::from([own]));
    }
    used
}

impl Concerns for Kept<Secret> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        compiled_for(change, &mut related);
        let secret = here(change);
        users_of(
            tables,
            &change.namespace,
            |surface| names_in::surface_secrets(surface).contains(&secret),
            |provider| names_in::provider_secrets(provider).contains(&secret),
            &mut related,
        );
        for agent in tables.agents.namespace(&change.namespace) {
            if agent
                .object
                .as_ref()
                .is_ok_and(|a| names_in::agent_secrets(a).contains(&secret))
            {
                related.insert(WorkKind::Agent.work(key(&*agent)));
            }
        }
        related
    }
}

impl Concerns for Kept<ConfigMap> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        compiled_for(change, &mut related);
        let config_map = here(change);
        users_of(
            tables,
            &change.namespace,
            |surface| names_in::surface_config_maps(surface).contains(&config_map),
            |provider| names_in::provider_config_maps(provider).contains(&config_map),
            &mut related,
        );
        related
    }
}

impl Concerns for Kept<NetworkPolicy> {
    fn concerns(change: &Change<Self>, _: &Tables) -> Related {
        let mut related = Related::new();
        compiled_for(change, &mut related);
        related
    }
}

impl Concerns for Kept<Pod> {
    fn concerns(change: &Change<Self>, _: &Tables) -> Related {
        let side = |pod: &Option<Arc<Self>>| {
            let pod = pod.as_ref()?;
            Some((pod.label(names::AGENT_LABEL)?.to_owned(), pod.ending))
        };
        let old = side(&change.old);
        let new = side(&change.new);
        // A pod's own status changes often and says nothing to us.
        if old == new {
            return Related::new();
        }
        [old, new]
            .into_iter()
            .flatten()
            .map(|(agent, _)| WorkKind::Agent.work(ObjectRef::new(change.namespace.clone(), agent)))
            .collect()
    }
}

impl Concerns for MetaOf<Namespace> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        let labels = |side: &Option<Arc<Self>>| {
            side.as_ref()
                .and_then(|namespace| namespace.meta().labels.clone())
        };
        if labels(&change.old) == labels(&change.new) {
            return related;
        }
        // Its labels decide which other namespaces' surfaces its agents may use.
        for agent in tables.agents.namespace(&change.name) {
            let Ok(object) = &agent.object else { continue };
            let foreign: Vec<ObjectRef> = names_in::agent_surfaces(object)
                .into_iter()
                .filter(|surface| surface.namespace != change.name)
                .collect();
            if !foreign.is_empty() {
                related.insert(WorkKind::Agent.work(key(&*agent)));
                related.extend(foreign.into_iter().map(|key| WorkKind::Surface.work(key)));
            }
        }
        // Grants and defaults say what they do not get, whether an agent asks for it or not.
        let is_foreign = |surface: &ObjectRef| surface.namespace != change.name;
        for grant in tables.grants.namespace(&change.name) {
            if let Ok(object) = &grant.object
                && names_in::grant_surfaces(object).iter().any(is_foreign)
            {
                related.insert(WorkKind::ToolGrant.work(key(&*grant)));
            }
        }
        for defaults in tables.defaults.namespace(&change.name) {
            if let Ok(object) = &defaults.object
                && names_in::defaults_surfaces(object).iter().any(is_foreign)
            {
                related.insert(WorkKind::ToolDefaults.work(key(&*defaults)));
            }
        }
        related
    }
}

/// Namespaces with surfaces or providers.
fn naming_namespaces(tables: &Tables) -> BTreeSet<String> {
    let of = |meta: &ObjectMeta| meta.namespace.clone().unwrap_or_default();
    let surfaces = tables.surfaces.all();
    let providers = tables.providers.all();
    surfaces
        .iter()
        .map(|surface| of(surface.meta()))
        .chain(providers.iter().map(|provider| of(provider.meta())))
        .collect()
}

/// The agents that both versions of an object of ours were compiled for.
fn compiled_for<K>(change: &Change<Kept<K>>, related: &mut Related) {
    let versions = [&change.old, &change.new].into_iter().flatten();
    related.extend(
        versions
            .filter_map(|object| object.label(names::COMPILED_FOR_LABEL))
            .map(|agent| WorkKind::Agent.work(ObjectRef::new(&*change.namespace, agent))),
    );
}
