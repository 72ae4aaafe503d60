//! From the API server's watches to tables and queue.
//!
//! One task per watched kind (and namespace, for Secrets and ConfigMaps). A watch that
//! fails is begun again with back-off, forever: without the API server nothing changes, and
//! what was compiled stays in force.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::HeaderValue;
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client, Resource};
use kube_runtime::watcher::Event;
use kube_runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::Instant;
use toolcrib_compile::{Kind, names};

use super::context::Context;
use super::dependents::affected::{Watched, affected, everything};
use crate::objects::decode::{Decoded, MetaOf, Undecodable, Whole};
use crate::objects::kept::Kept;
use crate::objects::pages;
use crate::objects::tables::{BudgetedFiller, Change, Filler, Stored, Table};

/// Between two attempts to read objects that have room again.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// Objects that are read between two events of a watch.
const READS: usize = 8;

/// Begins all watches. They end when the set is dropped.
pub fn start(context: &Arc<Context>, tasks: &mut JoinSet<()>) {
    let client = pages::bounded(&context.client);
    // Metadata is asked for by content type, so that bodies never leave the API server.
    let metadata = pages::bounded(&metadata_client(&context.client));
    let all = watcher::Config::default;

    decoded(
        context,
        tasks,
        &client,
        Kind::Surface,
        &context.tables.surfaces,
    );
    decoded(context, tasks, &client, Kind::Agent, &context.tables.agents);
    decoded(
        context,
        tasks,
        &client,
        Kind::ToolGrant,
        &context.tables.grants,
    );
    decoded(
        context,
        tasks,
        &client,
        Kind::ToolDefaults,
        &context.tables.defaults,
    );
    decoded(
        context,
        tasks,
        &client,
        Kind::ModelProvider,
        &context.tables.providers,
    );
    decoded(
        context,
        tasks,
        &client,
        Kind::Service,
        &context.tables.services,
    );
    plain(
        context,
        tasks,
        Api::all(metadata.clone()),
        all(),
        &context.tables.namespaces,
    );
    plain(
        context,
        tasks,
        Api::<MetaOf<Pod>>::all(metadata.clone()),
        // Pods that have ended count for nothing, and metadata does not tell them apart.
        all()
            .labels(names::AGENT_LABEL)
            .fields("status.phase!=Succeeded,status.phase!=Failed"),
        &context.tables.pods,
    );
    for (namespace, table) in context.tables.secrets.each() {
        let api: Api<MetaOf<Secret>> = scoped(&metadata, namespace);
        plain(context, tasks, api, all(), &table);
    }
    for (namespace, table) in context.tables.config_maps.each() {
        let api: Api<MetaOf<ConfigMap>> = scoped(&metadata, namespace);
        plain(context, tasks, api, all(), &table);
    }
    for (namespace, table) in context.tables.network_policies.each() {
        let api: Api<MetaOf<NetworkPolicy>> = scoped(&metadata, namespace);
        plain(context, tasks, api, all(), &table);
    }
}

fn scoped<K>(client: &Client, namespace: Option<String>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match namespace {
        None => Api::all(client.clone()),
        Some(namespace) => Api::namespaced(client.clone(), &namespace),
    }
}

/// Fills a table with what `K` is kept as.
fn plain<W, K>(
    context: &Arc<Context>,
    tasks: &mut JoinSet<()>,
    api: Api<W>,
    config: watcher::Config,
    table: &Table<K>,
) where
    W: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    K: From<W> + Watched + Send + Sync + Readable + 'static,
{
    let context = Arc::clone(context);
    let table = table.clone();
    tasks.spawn(async move {
        let mut filler = Filler::new(table.clone());
        let mut events = watcher(api, config).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let first = !table.synced();
                    let changes = filler.apply(kept(event));
                    take_over(&context, &table, &changes, first);
                }
                Err(error) => failed::<K>(&context, &error, |why| filler.forbidden(why)),
            }
        }
    });
}

/// Fills a table with objects that are decoded whole, as far as their namespaces have room.
fn decoded<K>(
    context: &Arc<Context>,
    tasks: &mut JoinSet<()>,
    client: &Client,
    kind: Kind,
    table: &Table<Decoded<K>>,
) where
    K: Whole
        + Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Send
        + Sync
        + 'static,
    Decoded<K>: Watched,
{
    let context = Arc::clone(context);
    let table = table.clone();
    let client = client.clone();
    tasks.spawn(async move {
        let budget = &context.tables.budget;
        let mut filler = BudgetedFiller::new(table.clone(), kind, Arc::clone(budget));
        let mut moved = budget.watch();
        let api: Api<Decoded<K>> = Api::all(client.clone());
        let mut events = watcher(api, watcher::Config::default())
            .default_backoff()
            .boxed();
        // Set while objects wait to be read.
        let mut read_at: Option<Instant> = None;
        loop {
            let wait = async {
                match read_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let first = !table.synced();
            let changes = tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => filler.apply(event),
                    Some(Err(error)) => {
                        failed::<Decoded<K>>(&context, &error, |why| filler.forbidden(why));
                        continue;
                    }
                    None => return,
                },
                Ok(()) = moved.changed() => filler.settle(),
                () = wait => Vec::new(),
            };
            take_over(&context, &table, &changes, first);
            read_at = None;
            for _ in 0..READS {
                let Some(key) = filler.next_to_read() else {
                    break;
                };
                let api: Api<Decoded<K>> = Api::namespaced(client.clone(), &key.namespace);
                // A list of one: the right to list is there anyway.
                let one = ListParams::default().fields(&format!("metadata.name={}", key.name));
                match api.list(&one).await {
                    Ok(found) => {
                        // None: it is gone, as the watch will tell.
                        for object in found.items {
                            let changes = filler.apply(Event::Apply(object));
                            take_over(&context, &table, &changes, false);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(kind = kind.name(), object = %key, %error, "object not read, retried");
                        filler.read_later(key);
                        read_at = Some(Instant::now() + READ_AGAIN);
                        break;
                    }
                }
            }
            if read_at.is_none() && filler.has_to_read() {
                read_at = Some(Instant::now());
            }
        }
    });
}

/// Queues the work that the changes affect.
fn take_over<K>(context: &Context, table: &Table<K>, changes: &[Change<K>], first: bool)
where
    K: Watched + Readable,
{
    let now = Instant::now();
    let kind = K::kind_name();
    for change in changes {
        if let Some(object) = &change.new
            && let Some(why) = object.unreadable()
        {
            context.metrics.undecodable.inc();
            tracing::warn!(
                %kind,
                namespace = change.namespace,
                name = change.name,
                reason = why.code.name(),
                why = why.reason,
                "object cannot be used; it gives nothing, all others go on"
            );
        }
        context.changed(change);
        let affected = affected(change, &context.tables, &context.dependents);
        if context.leading() {
            for work in affected.iter().filter(|work| work.is_agent()) {
                context.noticed.event(&work.key, now);
            }
        }
        context.queue.add_all(affected);
        if let Some(new) = &change.new
            && let (Some(status), Some(work)) = (new.status(), new.own_work())
            && context.is_foreign(&work, status)
        {
            context.queue.add_all([work]);
        }
    }
    if first && table.synced() {
        tracing::info!(%kind, objects = table.len(), "listed");
        // References to this kind were Unknown until now, so every object is compiled again.
        context.queue.add_all(everything(&context.tables));
    }
}

fn failed<K: Stored>(context: &Context, error: &watcher::Error, forbid: impl FnOnce(String)) {
    if let Some(why) = forbidden(error) {
        forbid(why);
    }
    context.metrics.watch_errors.inc();
    let kind = K::kind_name();
    tracing::warn!(%kind, %error, "watch failed; it is begun again");
}

/// The API server's words, if it is a matter of rights.
fn forbidden(error: &watcher::Error) -> Option<String> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
            if status.is_forbidden() =>
        {
            Some(status.message.clone())
        }
        _ => None,
    }
}

fn kept<W, K: From<W>>(event: Event<W>) -> Event<K> {
    match event {
        Event::Apply(object) => Event::Apply(object.into()),
        Event::Delete(object) => Event::Delete(object.into()),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(object.into()),
        Event::InitDone => Event::InitDone,
    }
}

/// Why an object of a table gives nothing, if so.
pub trait Readable {
    fn unreadable(&self) -> Option<&Undecodable>;
}

impl<K> Readable for Decoded<K> {
    fn unreadable(&self) -> Option<&Undecodable> {
        self.object.as_ref().err()
    }
}

impl<K> Readable for MetaOf<K> {
    fn unreadable(&self) -> Option<&Undecodable> {
        None
    }
}

impl<K> Readable for Kept<K> {
    fn unreadable(&self) -> Option<&Undecodable> {
        None
    }
}

/// A client whose lists and watches are answered with metadata only.
fn metadata_client(client: &Client) -> Client {
    const LIST: HeaderValue = HeaderValue::from_static(
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    );
    const WATCH: HeaderValue =
        HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let inner = client.clone();
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let watch = request.uri().query().is_some_and(|query| {
            query
                .split('&')
                .any(|pair| pair == "watch=true" || pair == "watch=1")
        });
        request
            .headers_mut()
            .insert(ACCEPT, if watch { WATCH } else { LIST });
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    Client::new(service, client.default_namespace().to_owned())
}
