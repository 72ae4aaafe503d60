//! Watches the API server, and applies the events to stores and queue.
//!
//! There is one task per watched kind (and per namespace, for Secrets and ConfigMaps). A failed
//! watch is restarted with back-off, without end: without the API server nothing changes, and
//! compiled manifests stay in force.

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
use super::dependents::affected::{WatchedObject, affected, everything};
use crate::link::answers::Access;
use crate::objects::decode::{DecodedObject, KindWithStatus, MetaOf, Undecodable};
use crate::objects::metadata::ObjectMetadata;
use crate::objects::pages;
use crate::objects::store::{BudgetedStoreWriter, Change, Store, StoreObject, StoreWriter};

/// Interval between two attempts to read objects that are within their budget again.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// Most objects that are read between two events of a watch.
const READS: usize = 8;

/// Starts all watches. They end when the set is dropped.
pub fn start(context: &Arc<Context>, tasks: &mut JoinSet<()>) {
    let client = pages::bounded(&context.client);
    // The content type asks for metadata only, so that bodies never leave the API server.
    let metadata = pages::bounded(&metadata_client(&context.client));
    let all = watcher::Config::default;

    decoded(
        context,
        tasks,
        &client,
        Kind::Surface,
        &context.stores.surfaces,
    );
    decoded(context, tasks, &client, Kind::Agent, &context.stores.agents);
    decoded(
        context,
        tasks,
        &client,
        Kind::ToolGrant,
        &context.stores.grants,
    );
    decoded(
        context,
        tasks,
        &client,
        Kind::ToolDefaults,
        &context.stores.defaults,
    );
    decoded(
        context,
        tasks,
        &client,
        Kind::ModelProvider,
        &context.stores.providers,
    );
    decoded(
        context,
        tasks,
        &client,
        Kind::ClusterToolPolicy,
        &context.stores.policies,
    );
    decoded(
        context,
        tasks,
        &client,
        Kind::Service,
        &context.stores.services,
    );
    plain(
        context,
        tasks,
        Api::all(metadata.clone()),
        all(),
        &context.stores.namespaces,
    );
    plain(
        context,
        tasks,
        Api::<MetaOf<Pod>>::all(metadata.clone()),
        // Leaves out pods that have ended, which metadata alone does not show.
        all()
            .labels(names::AGENT_LABEL)
            .fields("status.phase!=Succeeded,status.phase!=Failed"),
        &context.stores.pods,
    );
    for (namespace, store) in context.stores.secrets.each() {
        let api: Api<MetaOf<Secret>> = scoped(&metadata, namespace);
        plain(context, tasks, api, all(), &store);
    }
    for (namespace, store) in context.stores.config_maps.each() {
        let api: Api<MetaOf<ConfigMap>> = scoped(&metadata, namespace);
        plain(context, tasks, api, all(), &store);
    }
    for (namespace, store) in context.stores.network_policies.each() {
        let api: Api<MetaOf<NetworkPolicy>> = scoped(&metadata, namespace);
        plain(context, tasks, api, all(), &store);
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

/// Watches a kind of which only metadata is read, and fills its store.
fn plain<W, K>(
    context: &Arc<Context>,
    tasks: &mut JoinSet<()>,
    api: Api<W>,
    config: watcher::Config,
    store: &Store<K>,
) where
    W: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    K: From<W> + WatchedObject + Send + Sync + Readable + 'static,
{
    let context = Arc::clone(context);
    let store = store.clone();
    tasks.spawn(async move {
        let mut writer = StoreWriter::new(store.clone());
        let mut events = watcher(api, config).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let first = !store.synced();
                    let changes = writer.apply(metadata_of(event));
                    take_over(&context, &store, &changes, first);
                }
                Err(error) => failed::<K>(&context, &error, |why| writer.forbidden(why)),
            }
        }
    });
}

/// Watches a kind that is decoded whole, and fills its store within the namespaces' budgets.
fn decoded<K>(
    context: &Arc<Context>,
    tasks: &mut JoinSet<()>,
    client: &Client,
    kind: Kind,
    store: &Store<DecodedObject<K>>,
) where
    K: KindWithStatus + Send + Sync + 'static,
    DecodedObject<K>: WatchedObject,
{
    let context = Arc::clone(context);
    let store = store.clone();
    let client = client.clone();
    tasks.spawn(async move {
        let budget = &context.stores.budget;
        let mut writer = BudgetedStoreWriter::new(store.clone(), kind, Arc::clone(budget));
        let mut moved = budget.watch();
        let api: Api<DecodedObject<K>> = Api::all(client.clone());
        let mut events = watcher(api, watcher::Config::default())
            .default_backoff()
            .boxed();
        // Set while reads of objects are pending.
        let mut read_at: Option<Instant> = None;
        loop {
            let wait = async {
                match read_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let first = !store.synced();
            let changes = tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => writer.apply(event),
                    Some(Err(error)) => {
                        failed::<DecodedObject<K>>(&context, &error, |why| writer.forbidden(why));
                        continue;
                    }
                    None => return,
                },
                Ok(()) = moved.changed() => writer.settle(),
                () = wait => Vec::new(),
            };
            take_over(&context, &store, &changes, first);
            read_at = None;
            for _ in 0..READS {
                let Some(key) = writer.next_to_read() else {
                    break;
                };
                let api = K::api(&client, &key.namespace);
                // Lists a single object, which needs no further right.
                let one = ListParams::default().fields(&format!("metadata.name={}", key.name));
                match api.list(&one).await {
                    Ok(found) => {
                        // An empty list means that the object was deleted; the watch reports that.
                        for object in found.items {
                            let changes = writer.apply(Event::Apply(object));
                            take_over(&context, &store, &changes, false);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(kind = kind.name(), object = %key, %error, "cannot read object, retried");
                        writer.read_later(key);
                        read_at = Some(Instant::now() + READ_AGAIN);
                        break;
                    }
                }
            }
            if read_at.is_none() && writer.has_to_read() {
                read_at = Some(Instant::now());
            }
        }
    });
}

/// Queues the work that the changes affect.
fn take_over<K>(context: &Context, store: &Store<K>, changes: &[Change<K>], first: bool)
where
    K: WatchedObject + Readable,
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
                "object cannot be used and is ignored"
            );
        }
        context.changed(change);
        K::remember(change, &context.stores);
        if context.leading()
            && let Some(new) = &change.new
        {
            // A suspension needs no compilation, so it is published at once.
            for agent in new.suspended_agents(&context.stores) {
                context.publish(&agent, Access::Suspended, Some(now));
            }
        }
        let affected = affected(change, &context.stores, &context.dependents);
        if context.leading() {
            for work in affected.iter().filter(|work| work.is_agent()) {
                context.pending_since.event(&work.key, now);
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
    if first && store.synced() {
        tracing::info!(%kind, objects = store.len(), "cache synced");
        // References to this kind were Unknown until now, so every object is compiled again.
        context.queue.add_all(everything(&context.stores));
    }
}

fn failed<K: StoreObject>(context: &Context, error: &watcher::Error, forbid: impl FnOnce(String)) {
    if let Some(why) = forbidden(error) {
        forbid(why);
    }
    context.metrics.watch_errors.inc();
    let kind = K::kind_name();
    tracing::warn!(%kind, %error, "watch failed, restarted");
}

/// The API server's message, if a right is missing.
fn forbidden(error: &watcher::Error) -> Option<String> {
    if let watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchFailed(kube::Error::Api(status)) = error
        && status.is_forbidden()
    {
        return Some(status.message.clone());
    }
    None
}

fn metadata_of<W, K: From<W>>(event: Event<W>) -> Event<K> {
    match event {
        Event::Apply(object) => Event::Apply(object.into()),
        Event::Delete(object) => Event::Delete(object.into()),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(object.into()),
        Event::InitDone => Event::InitDone,
    }
}

/// A stored object that may be undecodable.
pub trait Readable {
    fn unreadable(&self) -> Option<&Undecodable>;
}

impl<K> Readable for DecodedObject<K> {
    fn unreadable(&self) -> Option<&Undecodable> {
        self.object.as_ref().err()
    }
}

impl<K> Readable for MetaOf<K> {
    fn unreadable(&self) -> Option<&Undecodable> {
        None
    }
}

impl<K> Readable for ObjectMetadata<K> {
    fn unreadable(&self) -> Option<&Undecodable> {
        None
    }
}

/// A client whose lists and watches return metadata only.
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::{Value, json};
    use toolcrib_compile::ObjectRef;
    use toolcrib_crds::Agent;
    use toolcrib_manifest::{AgentPresence, LinkAllowlist, LinkDown};

    use super::*;
    use crate::controller::settings::{Args, Settings};
    use crate::leadership::lease::Tenure;
    use crate::link::answers::OtherPods;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    /// A leader whose API server answers nothing, and whose queue has no worker.
    fn leader() -> Context {
        let service = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("no API server"))
        });
        let line = ["controller", "--namespace", "reef", "--pod-name", "heron-0"];
        let settings = Settings::from(Command::parse_from(line).args);
        let context = Context::new(Client::new(service, "pond"), settings);
        *context.leadership.tenure().lock() = Some(Tenure {
            since: jiff::Timestamp::UNIX_EPOCH,
            until: Instant::now() + Duration::from_secs(60),
        });
        context.leadership.set(true);
        context.queue.open();
        context
    }

    fn otter() -> ObjectRef {
        ObjectRef::new("pond", "otter")
    }

    struct Watch {
        context: Context,
        agents: BudgetedStoreWriter<DecodedObject<Agent>>,
        generation: i64,
    }

    impl Watch {
        fn new() -> Self {
            let context = leader();
            let budget = Arc::clone(&context.stores.budget);
            let agents =
                BudgetedStoreWriter::new(context.stores.agents.clone(), Kind::Agent, budget);
            Self {
                context,
                agents,
                generation: 0,
            }
        }

        /// Delivers the Agent with this spec.
        fn brings(&mut self, spec: Value) {
            self.generation += 1;
            let agent = json!({
                "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
                "metadata": {"name": "otter", "namespace": "pond", "uid": "u",
                    "resourceVersion": self.generation.to_string(), "generation": self.generation},
                "spec": spec,
            });
            let agent = serde_json::from_str(&agent.to_string()).expect("it has a name");
            let changes = self.agents.apply(Event::Apply(agent));
            let store = self.context.stores.agents.clone();
            take_over(&self.context, &store, &changes, false);
        }

        /// Publishes the allowlist of a compilation of an earlier version of the Agent.
        fn compiles_late(&self, allowlist: &LinkAllowlist) {
            let access = Access::Allowed(allowlist);
            self.context.publish(&otter(), access, None);
        }

        fn answer(&self) -> Option<LinkDown> {
            let receiver = self.context.link.subscribe(&otter(), true);
            let body = receiver.borrow().as_ref()?.body(&OtherPods::default(), &[]);
            Some(serde_json::from_slice(&body).expect("a mediator reads it"))
        }
    }

    fn allowlist() -> LinkAllowlist {
        let allowlist =
            json!({"tools": {"reed.cut": "v1:cut"}, "feeds": [], "providers": ["house"]});
        serde_json::from_value(allowlist).expect("an allowlist")
    }

    #[tokio::test]
    async fn a_suspension_is_published_by_its_own_event_before_any_work() {
        let mut watch = Watch::new();
        watch.brings(json!({}));
        assert_eq!(watch.answer(), None, "not compiled yet");
        watch.compiles_late(&allowlist());
        assert_eq!(
            watch.answer().expect("an answer").allowlist,
            Some(allowlist())
        );

        watch.brings(json!({"suspend": true}));
        let suspended = watch.answer().expect("an answer");
        assert_eq!(
            (suspended.agent, &suspended.allowlist),
            (AgentPresence::Deleted, &None)
        );
        watch.compiles_late(&allowlist());
        assert_eq!(watch.answer(), Some(suspended.clone()));

        // Access is given back only after a compilation.
        watch.brings(json!({"suspend": false}));
        assert_eq!(watch.answer(), Some(suspended));
        watch.compiles_late(&allowlist());
        let resumed = watch.answer().expect("an answer");
        assert_eq!(
            (resumed.agent, resumed.allowlist),
            (AgentPresence::Present, Some(allowlist()))
        );
    }

    #[tokio::test]
    async fn an_agent_that_cannot_be_decoded_is_suspended_too() {
        let mut watch = Watch::new();
        watch.brings(json!({"suspend": true, "mode": 7}));
        let answer = watch.answer().expect("an answer");
        assert_eq!(answer.agent, AgentPresence::Deleted);
        let stored = watch.context.stores.agents.get("pond", "otter");
        let stored = stored.expect("it is stored");
        let why = stored.object.as_ref().expect_err("it cannot be decoded");
        let bare = why.bare_agent().expect("it is compiled to nothing");
        assert!(bare.spec.is_suspended());
    }
}
