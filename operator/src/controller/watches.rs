//! From the API server's watches to tables and queue.
//!
//! One task per watched kind (and namespace, for Secrets and ConfigMaps). A watch that
//! fails is begun again with back-off, forever: without the API server nothing changes, and
//! what was compiled stays in force.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use http::HeaderValue;
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::client::Body;
use kube::{Api, Client, Resource};
use kube_runtime::watcher::Event;
use kube_runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::Instant;
use toolcrib_compile::{ObjectRef, names};

use super::decode::{Decoded, MetaOf, Whole};
use super::kept::Kept;
use super::related::{Concerns, everything};
use super::tables::{Filler, Stored, Table};
use super::world::World;

/// Begins all watches. They end when the set is dropped.
pub fn start(world: &Arc<World>, tasks: &mut JoinSet<()>) {
    let client = &world.client;
    // Metadata is asked for by content type, so that bodies never leave the API server.
    let metadata = metadata_client(client);
    let all = watcher::Config::default;

    decoded(world, tasks, &world.tables.surfaces);
    decoded(world, tasks, &world.tables.agents);
    decoded(world, tasks, &world.tables.grants);
    decoded(world, tasks, &world.tables.defaults);
    decoded(world, tasks, &world.tables.providers);
    decoded(world, tasks, &world.tables.services);
    task(
        world,
        tasks,
        Api::all(metadata.clone()),
        all(),
        &world.tables.namespaces,
    );
    task(
        world,
        tasks,
        Api::<MetaOf<Pod>>::all(metadata.clone()),
        // Pods that have ended count for nothing, and metadata does not tell them apart.
        all()
            .labels(names::AGENT_LABEL)
            .fields("status.phase!=Succeeded,status.phase!=Failed"),
        &world.tables.pods,
    );
    for (namespace, table) in world.tables.secrets.each() {
        let api: Api<MetaOf<Secret>> = scoped(&metadata, namespace);
        task(world, tasks, api, all(), &table);
    }
    for (namespace, table) in world.tables.config_maps.each() {
        let api: Api<MetaOf<ConfigMap>> = scoped(&metadata, namespace);
        task(world, tasks, api, all(), &table);
    }
    for (namespace, table) in world.tables.network_policies.each() {
        let api: Api<MetaOf<NetworkPolicy>> = scoped(&metadata, namespace);
        task(world, tasks, api, all(), &table);
    }
}

fn decoded<K>(world: &Arc<World>, tasks: &mut JoinSet<()>, table: &Table<Decoded<K>>)
where
    K: Whole + Resource<DynamicType = ()> + Send + Sync + 'static,
    Decoded<K>: Concerns,
{
    task(
        world,
        tasks,
        Api::all(world.client.clone()),
        watcher::Config::default(),
        table,
    );
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
fn task<W, K>(
    world: &Arc<World>,
    tasks: &mut JoinSet<()>,
    api: Api<W>,
    config: watcher::Config,
    table: &Table<K>,
) where
    W: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    K: From<W> + Stored + Send + Sync + Concerns + Readable + 'static,
{
    let world = Arc::clone(world);
    let table = table.clone();
    tasks.spawn(async move {
        let kind = K::kind_name();
        let mut filler = Filler::new(table.clone());
        let mut events = watcher(api, config).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let now = Instant::now();
                    let first = !table.synced();
                    let changes = filler.apply(kept(event));
                    for change in &changes {
                        if let Some(object) = &change.new
                            && let Some(why) = object.unreadable()
                        {
                            world.metrics.undecodable.inc();
                            tracing::warn!(
                                %kind,
                                namespace = change.namespace,
                                name = change.name,
                                why,
                                "object is not readable; it gives nothing, all others go on"
                            );
                        }
                        world.changed(change);
                        let concerned = K::concerns(change, &world.tables);
                        if world.leading() {
                            for work in concerned.iter().filter(|work| work.is_agent()) {
                                world.noticed.event(&work.key, now);
                            }
                        }
                        world.queue.add_all(concerned);
                        if let Some((kind, status)) =
                            change.new.as_ref().and_then(|object| object.status())
                        {
                            let key = ObjectRef::new(&*change.namespace, &*change.name);
                            let work = kind.work(key);
                            if world.is_foreign(&work, status) {
                                world.queue.add_all([work]);
                            }
                        }
                    }
                    if first && table.synced() {
                        tracing::info!(%kind, objects = table.len(), "listed");
                        // What was Unknown is known now, though nothing changed.
                        world.queue.add_all(everything(&world.tables));
                    }
                }
                Err(error) => {
                    if let Some(why) = forbidden(&error) {
                        filler.forbidden(why);
                    }
                    world.metrics.watch_errors.inc();
                    tracing::warn!(%kind, %error, "watch failed; it is begun again");
                }
            }
        }
    });
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

/// Why an object of a table cannot be read, if so.
pub trait Readable {
    fn unreadable(&self) -> Option<&str>;
}

impl<K> Readable for Decoded<K> {
    fn unreadable(&self) -> Option<&str> {
        self.object.as_ref().err().map(|why| why.reason.as_str())
    }
}

impl<K> Readable for MetaOf<K> {
    fn unreadable(&self) -> Option<&str> {
        None
    }
}

impl<K> Readable for Kept<K> {
    fn unreadable(&self) -> Option<&str> {
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
