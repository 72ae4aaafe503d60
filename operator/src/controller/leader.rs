//! The leader's tasks: label its pod, rotate certificates, serve the link, reconcile, write approvals.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use rustls::server::ResolvesServerCert;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use toolcrib_bounds::cut;
use toolcrib_compile::{Key, Kind, ObjectRef, Role, names};
use toolcrib_serve::{Tls, bind};

use super::approvals;
use super::approvals::ask::Questions;
use super::approvals::check::Schedule;
use super::context::Context;
use super::dependents::affected::{WatchedObject, everything};
use super::label_check;
use super::queue::work::{Work, WorkKind};
use super::queue::{Completion, Step};
use super::reconcile::{explain, panicked, publish, reconcile, reported};
use super::refresh;
use super::status::budgets::sums;
use super::status::counted;
use crate::certificates::rotate::{self, CertificateTargets};
use crate::claw::serve::{self as claw, ClawApi};
use crate::link::answers::Access;
use crate::link::review::Reviewer;
use crate::link::revocations::GIVEN_UP;
use crate::link::serve::{self as link, Link};
use crate::listen::{Bounds, serve};
use crate::metrics::Reconcile;

/// The interval of checks whether the stores are synced.
const LOOK: Duration = Duration::from_millis(50);
/// The longest wait for the lists of Secrets, ConfigMaps and NetworkPolicies, so that one slow
/// namespace cannot delay the others for ever. Lists that the API server forbids are not waited for.
const SECRETS: Duration = Duration::from_secs(10);
/// The interval of certificate checks. Certificates last for months, but a Secret or a caBundle can
/// be damaged at any time.
const CERTIFICATES: Duration = Duration::from_secs(30);
const CERTIFICATES_RETRY: Duration = Duration::from_secs(2);
/// The deadline of one reconcile, which makes a dozen requests at most.
const RECONCILE: Duration = Duration::from_secs(60);
/// Workers that compile and publish, and write nothing. More than there are processors, since they
/// wait for reads of Secrets that are not cached yet.
const PUBLISHERS: usize = 4;
/// The deadline of one publish step. Its inputs are in memory, except Secrets that are not cached yet.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest chain of causes in a log line, in bytes: messages of the API server may quote objects.
const LOGGED: usize = 4096;
/// Looks for pods that have stopped reporting, within the stale time: every ten seconds.
const SILENCE_LOOKS: u32 = 12;
/// The deadline of the best-effort requests when leading ends.
const PARTING: Duration = Duration::from_secs(2);

/// Leads until dropped, or until one of `parts` ends unexpectedly. The caller ends `parts`, so
/// that it can wait for their end.
pub async fn lead(
    context: &Arc<Context>,
    parts: &mut JoinSet<anyhow::Error>,
) -> anyhow::Result<Infallible> {
    let started = Timestamp::now();
    context.forget();
    wait_for_lists(context).await;
    // Certificates first: the link's authority is part of every compiled agent.json.
    while let Err(error) = certificates(context).await {
        let error = anyhow::Error::new(error);
        tracing::warn!("certificate rotation failed, retried: {error:#}");
        tokio::time::sleep(CERTIFICATES_RETRY).await;
    }
    begin_agents(context);
    label_check::begin(context).await;
    context.queue.open();
    context.approval_queue.open();
    context.leadership.set(true);
    // Before any compilation. Later suspensions are published when their events arrive.
    for agent in context.stores.agents.all() {
        for key in agent.suspended_agents(&context.stores) {
            context.publish(&key, Access::Suspended, None);
        }
    }
    context.queue.add_all(everything(&context.stores));
    context.queue_approvals(context.approvals.all());

    if context.dns().name_servers.is_empty() {
        tracing::error!(
            "no name servers for mediators, so no name resolves: Service {}/{} has no address; set dns.nameServers of the chart",
            names::DNS_NAMESPACE,
            names::DNS_SERVICE,
        );
    }
    let checks = Arc::<Schedule>::default();
    serve_link(context, parts, started, &checks).await?;
    serve_claw_api(context, parts).await?;
    // The link is ready, so the Service may send mediators to this pod.
    label(context).await;
    spawn_loops(context, parts);
    approvals::spawn(context, parts, checks);
    match parts.join_next().await {
        Some(Ok(error)) => Err(error),
        Some(Err(error)) => Err(anyhow::Error::new(error).context("a task of the leader ended")),
        None => Err(anyhow::anyhow!("the leader has no tasks")),
    }
}

/// Waits until every store is synced, and for most lists of Secrets and the like.
async fn wait_for_lists(context: &Context) {
    while context.stores.synced().is_none() {
        tokio::time::sleep(LOOK).await;
    }
    let listed = async {
        let stores = &context.stores;
        while !(stores.secrets.settled()
            && stores.config_maps.settled()
            && stores.network_policies.settled())
        {
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(SECRETS, listed).await.is_err() {
        tracing::warn!(
            "some namespaces' Secrets, ConfigMaps or NetworkPolicies are not listed yet; their Agents wait for the lists"
        );
    }
}

/// Initializes the counters and claw-api's tokens of the existing agents.
fn begin_agents(context: &Context) {
    let mut agents = Vec::new();
    for agent in context.stores.agents.all() {
        if agent.object.is_ok() {
            let key = ObjectRef::new(agent.namespace().unwrap_or_default(), agent.name_any());
            let status = agent.status();
            let usage = status.as_ref().and_then(|status| status.usage.as_ref());
            let created = agent.creation_timestamp().map(|at| at.0);
            context.link.reports().begin(&key, created, &counted(usage));
            let heads = status.as_ref().map_or(&[][..], |status| &status.record);
            context.link.heads().begin(&key, heads);
            let budgets = status.iter().flat_map(|status| &status.budgets);
            context.link.budgets().begin(&key, sums(budgets));
            agents.push(key);
        }
    }
    if context.settings.claw_api.is_some() {
        context.tokens.begin(agents);
    }
}

fn certificate(context: &Context) -> Arc<dyn ResolvesServerCert> {
    Arc::clone(&context.certificate) as Arc<dyn ResolvesServerCert>
}

async fn serve_link(
    context: &Arc<Context>,
    parts: &mut JoinSet<anyhow::Error>,
    started: Timestamp,
    checks: &Arc<Schedule>,
) -> anyhow::Result<()> {
    let address = context.settings.link_listen;
    let listener = bind(address)
        .await
        .with_context(|| format!("--link-listen {address}"))?;
    let status = Arc::clone(context);
    let questions = Questions::new(Arc::clone(context), Arc::clone(checks));
    let questions = Arc::new(questions);
    let link = Link {
        leadership: Arc::clone(&context.leadership),
        stores: context.stores.clone(),
        state: Arc::clone(&context.link),
        metrics: context.metrics.clone(),
        reviewer: Reviewer::new(context.client.clone()),
        started,
        approvals: Arc::clone(&context.approvals),
        on_report: Box::new(move |agent, change, approvals| {
            reported(&status, agent, change);
            status.queue_approvals(approvals);
        }),
        ask: Box::new(move |asker, question| {
            let questions = Arc::clone(&questions);
            async move { questions.ask(&asker, &question).await }.boxed()
        }),
    };
    spawn_listener(
        certificate(context),
        parts,
        listener,
        link.router(),
        link::BOUNDS,
    )
}

/// Serves claw-api, if the settings have it.
async fn serve_claw_api(
    context: &Arc<Context>,
    parts: &mut JoinSet<anyhow::Error>,
) -> anyhow::Result<()> {
    let Some(claw_api) = &context.settings.claw_api else {
        return Ok(());
    };
    let address = claw_api.listen;
    let listener = bind(address)
        .await
        .with_context(|| format!("--claw-api-listen {address}"))?;
    let explaining = Arc::clone(context);
    let claw_api = ClawApi {
        leadership: Arc::clone(&context.leadership),
        stores: context.stores.clone(),
        tokens: Arc::clone(&context.tokens),
        link: Arc::clone(&context.link),
        metrics: context.metrics.clone(),
        scope: claw_api.scope,
        explain: Box::new(move |agent, tool| {
            let context = Arc::clone(&explaining);
            async move { explain(&context, &agent, &tool).await }.boxed()
        }),
    };
    spawn_listener(
        certificate(context),
        parts,
        listener,
        claw_api.router(),
        claw::BOUNDS,
    )
}

/// Spawns the tasks that publish, reconcile, and repeat periodic work.
fn spawn_loops(context: &Arc<Context>, parts: &mut JoinSet<anyhow::Error>) {
    for _ in 0..PUBLISHERS {
        let context = Arc::clone(context);
        parts.spawn(async move { publish_updates(&context).await });
    }
    for _ in 0..context.settings.workers {
        let context = Arc::clone(context);
        parts.spawn(async move { work(&context).await });
    }
    let rotation = Arc::clone(context);
    parts.spawn(async move { keep_certificates(&rotation).await });
    let open = Arc::clone(context);
    parts.spawn(async move { give_up_revocations(&open).await });
    let silent = Arc::clone(context);
    parts.spawn(async move { find_silent_pods(&silent).await });
    let budgets = Arc::clone(context);
    parts.spawn(async move { keep_budgets(&budgets).await });
    if context.settings.refresh_hints {
        let refreshing = Arc::clone(context);
        parts.spawn(async move { refresh::send(&refreshing).await });
    }
    let asking = Arc::clone(context);
    parts.spawn(async move { label_check::keep(&asking).await });
    let resync = Arc::clone(context);
    parts.spawn(async move { resync_all(&resync).await });
}

/// Serves `routes` while this replica leads.
fn spawn_listener(
    certificate: Arc<dyn ResolvesServerCert>,
    parts: &mut JoinSet<anyhow::Error>,
    listener: TcpListener,
    routes: axum::Router,
    bounds: Bounds,
) -> anyhow::Result<()> {
    let tls = Tls::new(certificate).context("cannot configure TLS")?;
    parts.spawn(async move {
        // Dropped when leading ends, so that mediators reconnect to the next leader at once.
        serve(listener, tls, routes, bounds, pending(), Duration::ZERO).await;
        anyhow::anyhow!("a listener ended by itself")
    });
    Ok(())
}

/// Publishes allowlists, with their revocations, over the link before any Secret is written.
async fn publish_updates(context: &Context) -> anyhow::Error {
    loop {
        let work = context.queue.next(Step::Publish).await;
        // The `Write` step publishes again, and reports failures.
        match attempt(PUBLISH_TIMEOUT, publish(context, &work)).await {
            Attempt::Ended(()) => {}
            Attempt::Panicked => {
                tracing::error!(object = %work.subject(), "publish panicked, requeued");
            }
            Attempt::Late => tracing::warn!(object = %work.subject(), "publish timed out"),
        }
        context.queue.done(&work, Completion::Published);
    }
}

/// The outcome of a piece of work.
#[derive(Debug, PartialEq)]
enum Attempt<T> {
    Ended(T),
    Panicked,
    Late,
}

/// Does one piece of work. A panic over one object fails that object only.
async fn attempt<T>(limit: Duration, work: impl Future<Output = T>) -> Attempt<T> {
    let work = AssertUnwindSafe(work).catch_unwind();
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(ended)) => Attempt::Ended(ended),
        Ok(Err(_)) => Attempt::Panicked,
        Err(_) => Attempt::Late,
    }
}

async fn work(context: &Context) -> anyhow::Error {
    loop {
        let work = context.queue.next(Step::Write).await;
        let begun = Instant::now();
        let (outcome, done) = match attempt(RECONCILE, reconcile(context, &work)).await {
            Attempt::Ended(Ok(done)) => ("ok", done),
            Attempt::Ended(Err(error)) if error.passes() => {
                ("waiting", Completion::Again(LOOK * 10))
            }
            Attempt::Ended(Err(error)) => {
                let error = anyhow::Error::new(error);
                let chain = format!("{error:#}");
                let why = cut(&chain, LOGGED);
                tracing::warn!(object = %work.subject(), %why, "reconcile failed, requeued");
                ("failed", Completion::Failed)
            }
            Attempt::Panicked => {
                tracing::error!(object = %work.subject(), "reconcile panicked, requeued");
                // The report is one or two requests, which may fail as well.
                let reported =
                    tokio::time::timeout(PUBLISH_TIMEOUT, panicked(context, &work)).await;
                match reported {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        let error = anyhow::Error::new(error);
                        tracing::warn!(object = %work.subject(), "cannot report panic: {error:#}");
                    }
                    Err(_) => {
                        tracing::warn!(object = %work.subject(), "report of panic timed out");
                    }
                }
                ("panicked", Completion::Failed)
            }
            Attempt::Late => {
                tracing::warn!(object = %work.subject(), "reconcile timed out, requeued");
                ("timeout", Completion::Failed)
            }
        };
        let kind = work.kind.kind().name();
        context
            .metrics
            .reconciles
            .get_or_create(&Reconcile { kind, outcome })
            .inc();
        context
            .metrics
            .reconcile_seconds
            .observe(begun.elapsed().as_secs_f64());
        context.queue.done(&work, done);
    }
}

async fn certificates(context: &Context) -> Result<(), rotate::RotateError> {
    let settings = &context.settings;
    let hosts = |service: &str| {
        let host = settings.service_host(service);
        vec![
            host.clone(),
            format!("{host}.{}", settings.cluster_domain.as_str()),
        ]
    };
    let targets = CertificateTargets {
        namespace: settings.namespace.clone(),
        secret: settings.certificate_secret.clone(),
        webhook_config: settings.webhook_config_name.clone(),
        webhook_pods: settings.webhook_pods.clone(),
        webhook_hosts: hosts(&settings.webhook_service),
        // One certificate serves the link and claw-api.
        link_hosts: [&settings.link_service]
            .into_iter()
            .chain(settings.claw_api.as_ref().map(|claw_api| &claw_api.service))
            .flat_map(|service| hosts(service))
            .collect(),
    };
    let material = rotate::rotate(&context.client, &targets, Timestamp::now()).await?;
    if material.renewed {
        context.metrics.wrote("Secret", "certificates");
    }
    if context.certificate.set(material.bundle, material.link) {
        context.queue.add_all(
            everything(&context.stores)
                .into_iter()
                .filter(Work::is_agent),
        );
    }
    Ok(())
}

async fn keep_certificates(context: &Context) -> anyhow::Error {
    loop {
        tokio::time::sleep(CERTIFICATES).await;
        if let Err(error) = certificates(context).await {
            let error = anyhow::Error::new(error);
            tracing::warn!("certificate rotation failed, retried: {error:#}");
        }
    }
}

/// Gives up revocations that a silent pod keeps open.
async fn give_up_revocations(context: &Context) -> anyhow::Error {
    loop {
        tokio::time::sleep(GIVEN_UP / 20).await;
        context.link.give_up();
    }
}

/// Queues the agents of pods that have stopped reporting, since no event tells. A delayed requeue of
/// each agent would compile all of them every two minutes.
async fn find_silent_pods(context: &Context) -> anyhow::Error {
    let stale_after = context.settings.stale_after;
    let limit = stale_after.saturating_add(link::LONGEST_HOLD);
    let mut looks = tokio::time::interval((stale_after / SILENCE_LOOKS).max(LOOK));
    loop {
        looks.tick().await;
        let agents = context.link.silent(limit).into_iter();
        let work = agents.map(|agent| WorkKind::Agent.work(agent));
        context.queue.add_all(work);
    }
}

/// Requeues the users of ConfigMaps and Secrets that a namespace's budget evicts or readmits.
async fn keep_budgets(context: &Context) -> anyhow::Error {
    let stores = &context.stores;
    let mut moved = stores.budget.watch();
    loop {
        for kind in [Kind::ConfigMap, Kind::Secret] {
            for namespace in stores.budget.moved(kind) {
                for key in context.content_cache.settle(kind, &namespace) {
                    let key = Key::Object(kind, key);
                    context.queue.add_all(context.dependents.of([&key]));
                }
            }
        }
        if moved.changed().await.is_err() {
            return anyhow::anyhow!("the budget was dropped");
        }
    }
}

/// Resyncs: requeues every object, in case a watch lost an event.
async fn resync_all(context: &Context) -> anyhow::Error {
    loop {
        tokio::time::sleep(context.settings.resync).await;
        let identities = identity_secrets(context);
        context.content_cache.sweep(|kind, key| {
            let is_identity = kind == Kind::Secret && identities.contains(key);
            is_identity || context.dependents.has(&Key::Object(kind, key.clone()))
        });
        context.queue.add_all(everything(&context.stores));
    }
}

/// The Secrets with the agents' tokens. They are cached although no object refers to them.
fn identity_secrets(context: &Context) -> BTreeSet<ObjectRef> {
    let agents = context.stores.agents.all();
    let names = agents.iter().map(|agent| {
        let name = Role::Identity.object_name(&agent.name_any());
        ObjectRef::new(agent.namespace().unwrap_or_default(), name)
    });
    names.collect()
}

/// Sets the leader label on this pod and removes it from others, such as a paused leader's.
async fn label(context: &Context) {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let leading = format!("{}={}", names::LEADER_LABEL, names::TRUE);
    match api
        .list_metadata(&ListParams::default().labels(&leading))
        .await
    {
        Ok(pods) => {
            for pod in pods {
                if pod.name_any() != context.settings.pod_name {
                    set_label(&api, &pod.name_any(), None).await;
                }
            }
        }
        Err(error) => tracing::warn!(%error, "cannot list pods with the leader label"),
    }
    set_label(&api, &context.settings.pod_name, Some(names::TRUE)).await;
}

/// Removes the leader label from this pod. Failures are ignored, since the next leader removes it
/// too.
pub async fn unlabel(context: &Context) {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    if tokio::time::timeout(PARTING, set_label(&api, &context.settings.pod_name, None))
        .await
        .is_err()
    {
        tracing::warn!("removal of the pod's leader label timed out");
    }
}

async fn set_label(api: &Api<Pod>, pod: &str, value: Option<&str>) {
    let patch = json!({ "metadata": { "labels": { names::LEADER_LABEL: value } } });
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api
        .patch_metadata(pod, &params, &Patch::Merge(&patch))
        .await
    {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            tracing::warn!(
                pod,
                "own pod not found, leader label not set; the link's Service has no endpoint"
            );
        }
        Err(error) => tracing::warn!(pod, %error, "cannot set the pod's leader label"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_fails_only_its_piece_of_work() {
        let second = Duration::from_secs(1);
        let panicking = async {
            let none: Option<u8> = std::hint::black_box(None);
            none.expect("a test's own panic")
        };
        assert_eq!(attempt(second, panicking).await, Attempt::Panicked);
        assert_eq!(attempt(second, async { 7 }).await, Attempt::Ended(7));
        let late = std::future::pending::<()>();
        assert_eq!(attempt(second, late).await, Attempt::Late);
    }
}
