//! What only the leader does: label its pod, keep certificates, answer the link, reconcile.

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

use super::context::Context;
use super::dependents::affected::everything;
use super::queue::{Done, Step};
use super::reconcile::{explain, reconcile, reported, tell};
use super::report::panicked;
use super::status::counted;
use super::work::Work;
use crate::certificates::rotate::{self, CertificateTargets};
use crate::claw::serve::{self as claw, ClawApi};
use crate::link::review::Reviewer;
use crate::link::revocations::GIVEN_UP;
use crate::link::serve::{self as link, Link};
use crate::listen::{Bounds, serve};
use crate::metrics::Reconcile;

/// How often the tables are looked at while they fill.
const LOOK: Duration = Duration::from_millis(50);
/// Secrets and ConfigMaps are waited for this long, unless the API server refuses them: one
/// namespace that is slow to list is not to keep the others waiting for ever.
const SECRETS: Duration = Duration::from_secs(10);
/// Certificates last for months, but a Secret or a caBundle can be damaged any time.
const CERTIFICATES: Duration = Duration::from_secs(30);
const CERTIFICATES_RETRY: Duration = Duration::from_secs(2);
/// One reconcile makes a dozen requests at most.
const RECONCILE: Duration = Duration::from_secs(60);
/// Who compiles and waits for no write. More than there are processors, since a Secret that
/// nobody has read yet is read.
const TELLERS: usize = 4;
/// What it compiles is in memory, but for what nobody has read yet.
const TELL: Duration = Duration::from_secs(10);
/// The longest chain of causes in a log line, in bytes: the API server's words may quote objects.
const LOGGED: usize = 4096;
/// Best effort requests when leading ends.
const PARTING: Duration = Duration::from_secs(2);

/// Leads until dropped, or until one of `parts` ends that must not. They are the caller's to
/// end, so that it can wait until they have.
pub async fn lead(
    context: &Arc<Context>,
    parts: &mut JoinSet<anyhow::Error>,
) -> anyhow::Result<Infallible> {
    let started = Timestamp::now();
    context.forget();
    while context.tables.synced().is_none() {
        tokio::time::sleep(LOOK).await;
    }
    let listed = async {
        let tables = &context.tables;
        while !(tables.secrets.settled()
            && tables.config_maps.settled()
            && tables.network_policies.settled())
        {
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(SECRETS, listed).await.is_err() {
        tracing::warn!(
            "Secrets, ConfigMaps or NetworkPolicies of some namespace are not listed yet; its objects wait for them"
        );
    }
    // Certificates first: the link's authority is part of every compiled agent.json.
    while let Err(error) = certificates(context).await {
        let error = anyhow::Error::new(error);
        tracing::warn!("certificates: {error:#}");
        tokio::time::sleep(CERTIFICATES_RETRY).await;
    }
    let mut agents = Vec::new();
    for agent in context.tables.agents.all() {
        if agent.object.is_ok() {
            let key = ObjectRef::new(agent.namespace().unwrap_or_default(), agent.name_any());
            let status = agent.status();
            let usage = status.as_ref().and_then(|status| status.usage.as_ref());
            context.link.reports().begin(&key, &counted(usage));
            agents.push(key);
        }
    }
    if context.settings.claw_api.is_some() {
        context.holders.begin(agents);
    }
    context.queue.open();
    context.leadership.set(true);
    context.queue.add_all(everything(&context.tables));

    if context.dns().name_servers.is_empty() {
        tracing::error!(
            "no name servers for mediators, no name resolves: Service {}/{} has no address; set dns.nameServers of the chart",
            names::DNS_NAMESPACE,
            names::DNS_SERVICE,
        );
    }
    let address = context.settings.link_listen;
    let listener = bind(address)
        .await
        .with_context(|| format!("--link-listen {address}"))?;
    let status = Arc::clone(context);
    let link = Link {
        leadership: Arc::clone(&context.leadership),
        tables: context.tables.clone(),
        state: Arc::clone(&context.link),
        metrics: context.metrics.clone(),
        reviewer: Reviewer::new(context.client.clone()),
        started,
        on_news: Box::new(move |agent, news| reported(&status, agent, news)),
    };
    let certificate = || Arc::clone(&context.certificate) as Arc<dyn ResolvesServerCert>;
    answer(certificate(), parts, listener, link.router(), link::BOUNDS)?;
    if let Some(claw_api) = &context.settings.claw_api {
        let address = claw_api.listen;
        let listener = bind(address)
            .await
            .with_context(|| format!("--claw-api-listen {address}"))?;
        let explaining = Arc::clone(context);
        let claw_api = ClawApi {
            leadership: Arc::clone(&context.leadership),
            tables: context.tables.clone(),
            holders: Arc::clone(&context.holders),
            link: Arc::clone(&context.link),
            metrics: context.metrics.clone(),
            scope: claw_api.scope,
            explain: Box::new(move |agent, tool| {
                let context = Arc::clone(&explaining);
                async move { explain(&context, &agent, &tool).await }.boxed()
            }),
        };
        answer(
            certificate(),
            parts,
            listener,
            claw_api.router(),
            claw::BOUNDS,
        )?;
    }
    // Only now may mediators come here.
    label(context).await;
    for _ in 0..TELLERS {
        let context = Arc::clone(context);
        parts.spawn(async move { speak(&context).await });
    }
    for _ in 0..context.settings.workers {
        let context = Arc::clone(context);
        parts.spawn(async move { work(&context).await });
    }
    let keeper = Arc::clone(context);
    parts.spawn(async move { keep_certificates(&keeper).await });
    let open = Arc::clone(context);
    parts.spawn(async move { give_up_revocations(&open).await });
    let budgets = Arc::clone(context);
    parts.spawn(async move { keep_budgets(&budgets).await });
    let resync = Arc::clone(context);
    parts.spawn(async move { look_again(&resync).await });
    match parts.join_next().await {
        Some(Ok(error)) => Err(error),
        Some(Err(error)) => Err(anyhow::Error::new(error).context("a task of the leader ended")),
        None => Err(anyhow::anyhow!("the leader has no tasks")),
    }
}

/// Serves `routes` for as long as this replica leads.
fn answer(
    certificate: Arc<dyn ResolvesServerCert>,
    parts: &mut JoinSet<anyhow::Error>,
    listener: TcpListener,
    routes: axum::Router,
    bounds: Bounds,
) -> anyhow::Result<()> {
    let tls = Tls::new(certificate).context("TLS is not configurable")?;
    parts.spawn(async move {
        // Dropped when leading ends: a mediator is to find the next leader at once.
        serve(listener, tls, routes, bounds, pending(), Duration::ZERO).await;
        anyhow::anyhow!("a listener ended by itself")
    });
    Ok(())
}

/// What is taken away is heard before it is written, for all agents that it is taken from.
async fn speak(context: &Context) -> anyhow::Error {
    loop {
        let work = context.queue.next(Step::Say).await;
        // The next step does the same again, and says what went wrong.
        match attempt(TELL, tell(context, &work)).await {
            Attempt::Ended(()) => {}
            Attempt::Panicked => {
                tracing::error!(object = %work.subject(), "panicked; others go on");
            }
            Attempt::Late => tracing::warn!(object = %work.subject(), "not told in time"),
        }
        context.queue.done(&work, Done::Said);
    }
}

/// How a piece of work ended.
#[derive(Debug, PartialEq)]
enum Attempt<T> {
    Ended(T),
    Panicked,
    Late,
}

/// Does one piece of work. A panic over one object is that object's failure and nobody else's.
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
            Attempt::Ended(Err(error)) if error.passes() => ("waiting", Done::Again(LOOK * 10)),
            Attempt::Ended(Err(error)) => {
                let error = anyhow::Error::new(error);
                let chain = format!("{error:#}");
                let why = cut(&chain, LOGGED);
                tracing::warn!(object = %work.subject(), %why, "reconcile failed, requeued");
                ("failed", Done::Failed)
            }
            Attempt::Panicked => {
                tracing::error!(object = %work.subject(), "panicked; others go on");
                // Saying it is a request or two, and may fail like any.
                let told = tokio::time::timeout(TELL, panicked(context, &work)).await;
                match told {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        let error = anyhow::Error::new(error);
                        tracing::warn!(object = %work.subject(), "panic not reported: {error:#}");
                    }
                    Err(_) => {
                        tracing::warn!(object = %work.subject(), "panic not reported in time");
                    }
                }
                ("panicked", Done::Failed)
            }
            Attempt::Late => {
                tracing::warn!(object = %work.subject(), "not done in time, it is tried again");
                ("timeout", Done::Failed)
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
    let place = CertificateTargets {
        namespace: settings.namespace.clone(),
        secret: settings.certificate_secret.clone(),
        webhook_config: settings.webhook_config_name.clone(),
        webhook_pods: settings.webhook_pods.clone(),
        webhook_hosts: hosts(&settings.webhook_service),
        // One certificate for all that the leader answers.
        link_hosts: [&settings.link_service]
            .into_iter()
            .chain(settings.claw_api.as_ref().map(|claw_api| &claw_api.service))
            .flat_map(|service| hosts(service))
            .collect(),
    };
    let material = rotate::rotate(&context.client, &place, Timestamp::now()).await?;
    if material.renewed {
        context.metrics.wrote("Secret", "certificates");
    }
    if context.certificate.set(material.bundle, material.link) {
        context.queue.add_all(
            everything(&context.tables)
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
            tracing::warn!("certificates: {error:#}");
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

/// ConfigMaps and Secrets that a namespace has no room for any more, or has again.
async fn keep_budgets(context: &Context) -> anyhow::Error {
    let tables = &context.tables;
    let mut moved = tables.budget.watch();
    loop {
        for kind in [Kind::ConfigMap, Kind::Secret] {
            for namespace in tables.budget.moved(kind) {
                for key in context.readers.settle(kind, &namespace) {
                    let key = Key::Object(kind, key);
                    context.queue.add_all(context.dependents.of([&key]));
                }
            }
        }
        if moved.changed().await.is_err() {
            return anyhow::anyhow!("nobody keeps the budgets");
        }
    }
}

/// A second look at everything, in case a watch has lost something.
async fn look_again(context: &Context) -> anyhow::Error {
    loop {
        tokio::time::sleep(context.settings.resync).await;
        let identities = identity_secrets(context);
        context.readers.sweep(|kind, key| {
            let is_identity = kind == Kind::Secret && identities.contains(key);
            is_identity || context.dependents.has(&Key::Object(kind, key.clone()))
        });
        context.queue.add_all(everything(&context.tables));
    }
}

/// The Secrets with the agents' tokens: they are read, and no object names them.
fn identity_secrets(context: &Context) -> BTreeSet<ObjectRef> {
    let agents = context.tables.agents.all();
    let names = agents.iter().map(|agent| {
        let name = Role::Identity.object_name(&agent.name_any());
        ObjectRef::new(agent.namespace().unwrap_or_default(), name)
    });
    names.collect()
}

/// Labels this pod, and takes the label from others: a leader that was paused has it still.
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
        Err(error) => tracing::warn!(%error, "other leaders' pods not listed"),
    }
    set_label(&api, &context.settings.pod_name, Some(names::TRUE)).await;
}

/// Best effort: the next leader does it too.
pub async fn unlabel(context: &Context) {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    if tokio::time::timeout(PARTING, set_label(&api, &context.settings.pod_name, None))
        .await
        .is_err()
    {
        tracing::warn!("the pod's label was not taken off in time");
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
                "no such pod to label; the link's Service will not find it"
            );
        }
        Err(error) => tracing::warn!(pod, %error, "pod not labelled"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_the_failure_of_one_piece_of_work() {
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
