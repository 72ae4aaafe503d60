//! Whom a change of an Agent, Surface, ToolGrant, ToolDefaults or ModelProvider concerns.
//!
//! Not here: Kubernetes' kinds.
//!
//! Invariant: both versions count: whoever the old one named hears that it no longer does.

use std::collections::BTreeSet;

use kube::Resource;
use toolcrib_compile::{ObjectRef, names};
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::users::{agents_in, users_of_surfaces};
use super::{Concerns, Related, digest, here, key};
use crate::controller::work::WorkKind;
use crate::objects::decode::Decoded;
use crate::objects::names_in;
use crate::objects::stores::Tables;
use crate::objects::tables::Change;

impl Concerns for Decoded<Agent> {
    fn status(&self) -> Option<(WorkKind, u64)> {
        self.object.as_ref().ok()?;
        Some((WorkKind::Agent, digest(&self.status_text())))
    }

    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        if !matters(change) {
            return related;
        }
        related.insert(WorkKind::Agent.work(here(change)));
        for agent in versions(change) {
            related.extend(
                names_in::agent_surfaces(agent)
                    .into_iter()
                    .map(|key| WorkKind::Surface.work(key)),
            );
        }
        // Counts of the namespace's grants, defaults and providers.
        for grant in tables.grants.namespace(&change.namespace) {
            if grant
                .object
                .as_ref()
                .is_ok_and(|grant| grant.spec.agents.contains(&change.name))
            {
                related.insert(WorkKind::ToolGrant.work(key(&*grant)));
                // Whoever shares a grant with it hears whether it exists.
                if (change.old.is_none() || change.new.is_none())
                    && let Ok(grant) = &grant.object
                {
                    related.extend(grant.spec.agents.iter().map(|agent| {
                        WorkKind::Agent
                            .work(ObjectRef::new(change.namespace.clone(), agent.clone()))
                    }));
                }
            }
        }
        for defaults in tables.defaults.namespace(&change.namespace) {
            related.insert(WorkKind::ToolDefaults.work(key(&*defaults)));
        }
        for provider in tables.providers.namespace(&change.namespace) {
            related.insert(WorkKind::ModelProvider.work(key(&*provider)));
        }
        related
    }
}

impl Concerns for Decoded<Surface> {
    fn status(&self) -> Option<(WorkKind, u64)> {
        self.object.as_ref().ok()?;
        Some((WorkKind::Surface, digest(&self.status_text())))
    }

    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        if matters(change) {
            users_of_surfaces(tables, &BTreeSet::from([here(change)]), &mut related);
            related.insert(WorkKind::Surface.work(here(change)));
        }
        related
    }
}

impl Concerns for Decoded<ToolGrant> {
    fn status(&self) -> Option<(WorkKind, u64)> {
        self.object.as_ref().ok()?;
        Some((WorkKind::ToolGrant, digest(&self.status_text())))
    }

    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        if !matters(change) {
            return related;
        }
        related.insert(WorkKind::ToolGrant.work(here(change)));
        for grant in versions(change) {
            related.extend(grant.spec.agents.iter().map(|agent| {
                WorkKind::Agent.work(ObjectRef::new(change.namespace.clone(), agent.clone()))
            }));
        }
        if unreadable(change) {
            agents_in(tables, &change.namespace, &mut related);
        }
        related
    }
}

impl Concerns for Decoded<ToolDefaults> {
    fn status(&self) -> Option<(WorkKind, u64)> {
        self.object.as_ref().ok()?;
        Some((WorkKind::ToolDefaults, digest(&self.status_text())))
    }

    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        if matters(change) {
            related.insert(WorkKind::ToolDefaults.work(here(change)));
            agents_in(tables, &change.namespace, &mut related);
            // Defaults may set models, which decide who consumes a provider.
            for provider in tables.providers.namespace(&change.namespace) {
                related.insert(WorkKind::ModelProvider.work(key(&*provider)));
            }
        }
        related
    }
}

impl Concerns for Decoded<ModelProvider> {
    fn status(&self) -> Option<(WorkKind, u64)> {
        self.object.as_ref().ok()?;
        Some((WorkKind::ModelProvider, digest(&self.status_text())))
    }

    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        if matters(change) {
            related.insert(WorkKind::ModelProvider.work(here(change)));
            agents_in(tables, &change.namespace, &mut related);
        }
        related
    }
}

/// Old and new version, as far as each exists and can be read.
fn versions<K>(change: &Change<Decoded<K>>) -> Vec<&K> {
    [&change.old, &change.new]
        .into_iter()
        .flatten()
        .filter_map(|object| object.object.as_ref().ok())
        .map(|object| &**object)
        .collect()
}

fn unreadable<K>(change: &Change<Decoded<K>>) -> bool {
    [&change.old, &change.new]
        .into_iter()
        .flatten()
        .any(|object| object.object.is_err())
}

/// Whether anything but status and bookkeeping differs.
fn matters<K: Resource + Clone>(change: &Change<Decoded<K>>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        return true;
    };
    // Its body was put out, or has come back, with no other version.
    if old.object.is_ok() != new.object.is_ok() {
        return true;
    }
    let (old, new) = (old.meta(), new.meta());
    let rotate = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        meta.annotations
            .as_ref()
            .and_then(|all| all.get(names::ROTATE_ANNOTATION))
            .cloned()
    };
    old.uid != new.uid
        || old.generation.is_none()
        || old.generation != new.generation
        || old.deletion_timestamp.is_some() != new.deletion_timestamp.is_some()
        || rotate(old) != rotate(new)
}
