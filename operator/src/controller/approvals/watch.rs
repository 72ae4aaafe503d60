//! Watches ToolApprovals and ToolDecisions, and queues the approvals that a change concerns.
//!
//! Every replica watches, so that the next leader has everything when it begins. The operator works
//! without the two kinds too: nothing waits for their lists but questions.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::{Api, Resource};
use kube_runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::approvals::stored::{StoredApproval, StoredDecision};
use crate::controller::context::Context;
use crate::objects::pages;
use crate::objects::store::{Change, Store, StoreObject, StoreWriter};

/// Starts both watches. They end when the set is dropped.
pub fn start(context: &Arc<Context>, tasks: &mut JoinSet<()>) {
    let client = pages::bounded(&context.client);
    let approvals: Api<StoredApproval> = Api::all(client.clone());
    let store = context.approvals.approvals.clone();
    tasks.spawn(watch(Arc::clone(context), approvals, store, approval));
    let decisions: Api<StoredDecision> = Api::all(client);
    let store = context.approvals.decisions.clone();
    tasks.spawn(watch(Arc::clone(context), decisions, store, decision));
}

async fn watch<K>(
    context: Arc<Context>,
    api: Api<K>,
    store: Store<K>,
    changed: fn(&Context, &Change<K>),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let mut writer = StoreWriter::new(store.clone());
    let mut events = watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let was_synced = store.synced();
                for change in writer.apply(event) {
                    changed(&context, &change);
                }
                if !was_synced && store.synced() {
                    let (kind, objects) = (K::kind_name(), store.len());
                    tracing::info!(%kind, objects, "cache synced");
                    context.queue_approvals(context.approvals.all());
                }
            }
            Err(error) => {
                context.metrics.watch_errors.inc();
                tracing::warn!(kind = %K::kind_name(), %error, "watch failed, restarted");
            }
        }
    }
}

fn approval(context: &Context, change: &Change<StoredApproval>) {
    if let Some(new) = &change.new
        && new.body.is_none()
    {
        context.metrics.undecodable.inc();
        tracing::warn!(approval = %change.key(), "ToolApproval cannot be decoded and is ignored");
    }
    context.approvals.approval_changed(change);
    context.queue_approvals([change.key()]);
}

fn decision(context: &Context, change: &Change<StoredDecision>) {
    let named = context.approvals.decision_changed(change);
    context.queue_approvals(named);
}
