//! Applies an object, and counts and logs the write.

use toolcrib_compile::ObjectRef;
use toolcrib_crds::Agent;

use super::ReconcileError;
use crate::controller::context::Context;
use crate::controller::write::apply::{self, DesiredObject, Verb};
use crate::controller::write::managed_object::ManagedObject;
use crate::objects::stores::ScopedStore;

/// Applies an object, and notes the version that is now in the API server.
pub(super) async fn put<K: ManagedObject>(
    context: &Context,
    store: &ScopedStore<K>,
    agent: &Agent,
    desired: &DesiredObject,
) -> Result<(), ReconcileError> {
    let owner = apply::owner(agent);
    let of_agent = ObjectRef::new(&*desired.key.namespace, &*owner.name);
    let last = context.applied(&of_agent, desired.role);
    if !context.leading() {
        return Err(ReconcileError::NotLeading);
    }
    let leads = || context.leading();
    let (verb, applied) =
        apply::apply(&context.client, store, &owner, desired, last, leads).await?;
    context.set_applied(&of_agent, desired.role, applied);
    match verb {
        Verb::Unchanged => {}
        Verb::Created => {
            context.metrics.wrote(K::KIND, "create");
            tracing::info!(object = %desired.key, kind = K::KIND, "created");
        }
        Verb::Patched => {
            context.metrics.wrote(K::KIND, "patch");
            tracing::info!(object = %desired.key, kind = K::KIND, "patched");
        }
    }
    Ok(())
}
