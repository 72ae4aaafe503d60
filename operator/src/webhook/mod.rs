//! `toolcrib-operator webhook`: injects the mediator into pods that run an agent, and validates
//! objects of our own kinds: errors, and the agents that gain or lose tools.
//!
//! Only the API server is answered: no other client knows the paths. The webhook has no right to any
//! Secret, and a patch holds references only. It keeps the Agents' specs, under 1 KiB each,
//! because a pod's admission cannot wait for a read; other objects are read on demand. Every
//! review is answered with an AdmissionReview, and an unreadable one is denied. Not here: the
//! patch (`toolcrib_compile::inject`), and the guard for pods that were created while no webhook
//! ran (a policy in the chart).
//!
//! In reading order: [`args`], [`agents`] (the watch), [`paths`] (recognizes the API server),
//! [`review`] (the wire format), [`body`] and [`routes`] (one admission); [`validate`] (our own
//! kinds) with [`object`] and [`related_objects`]; [`certificate`] and [`serve`] (TLS, drain), [`meter`].

mod agents;
mod args;
mod body;
mod certificate;
pub mod meter;
mod object;
mod paths;
mod related_objects;
mod review;
mod routes;
mod serve;
mod validate;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use toolcrib_compile::inject::InjectConfig;
use toolcrib_crds::Agent;
use toolcrib_serve::bind;

use agents::Agents;
pub use args::{Args, WhenBehindArg};
use certificate::{Certificate, LOOK_INTERVAL};
use meter::Meter;
use paths::Paths;
use review::Review;
use routes::App;

/// Time that open connections have to end after the listener has closed.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Answers the review of a pod of this Agent, with the text that the route sends. Returns `None`
/// if the body is not the review of a pod.
pub(crate) fn answer_pod(body: &[u8], agent: &Agent, config: &InjectConfig) -> Option<String> {
    let review = Review::read(body).ok()?;
    let pod = routes::pod(&review.request).ok()?;
    let (answer, _) = routes::injected(&pod, agent, config);
    Some(answer.into_review(&review.request.uid).to_string())
}

/// Answers the review of an object of our kinds, with the text that the route sends, as if the
/// cluster had no other object. Returns `None` if the body is not a review.
pub(crate) fn answer_object(body: &[u8]) -> Option<String> {
    let review = Review::read(body).ok()?;
    let (answer, _) = validate::validate_alone(&review.request);
    Some(answer.into_review(&review.request.uid).to_string())
}

/// Serves until SIGTERM or SIGINT, then drains.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let client = kube::Client::try_default()
        .await
        .context("the client of the API server cannot be set up")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    run_until(client, args, shutdown).await
}

/// Serves until `shutdown`, then drains. Fails if the webhook cannot start, or if one of its tasks
/// ends by itself.
pub async fn run_until(
    client: kube::Client,
    args: Args,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let admission = bind(args.listen)
        .await
        .with_context(|| format!("--listen {}", args.listen))?;
    let status = bind(args.status_listen)
        .await
        .with_context(|| format!("--status-listen {}", args.status_listen))?;

    let meter = Meter::default();
    let (agents, writer) = Agents::watch(client.clone(), args.agents_budget());
    let certificate = Arc::new(Certificate::new(args.certificate_dir.clone()));
    let paths = match &*args.webhook_config_name {
        "" => Paths::plain(),
        name => Paths::of(client.clone(), name.to_owned()),
    };
    let app = App::new(
        client,
        agents,
        paths.clone(),
        args.inject_config(),
        args.compile_settings(),
        args.agent_wait(),
        meter.clone(),
    );
    let (stop, stopped) = watch::channel(serve::Phase::Serving);

    let mut parts: JoinSet<&'static str> = JoinSet::new();
    let errors = meter.clone();
    parts.spawn(async move {
        writer.run(&errors).await;
        "watch of Agents"
    });
    let reloading = Arc::clone(&certificate);
    parts.spawn(async move {
        reloading.keep_current(LOOK_INTERVAL).await;
        "certificate"
    });
    parts.spawn(async move {
        paths.keep_current().await;
        "look at the webhook configurations"
    });
    let routes = routes::status(app.clone(), Arc::clone(&certificate), stopped.clone());
    parts.spawn(async move {
        serve::plain(status, routes).await;
        "status listener"
    });
    let mut serving = tokio::spawn(serve::tls(
        admission,
        certificate.transport()?,
        routes::admission(app),
        stopped,
        DRAIN_LIMIT,
    ));
    tracing::info!(listen = %args.listen, status = %args.status_listen, "webhook started");

    tokio::select! {
        () = shutdown => {}
        ended = parts.join_next() => {
            let part = ended.transpose().context("a task panicked")?.unwrap_or("everything");
            anyhow::bail!("{part} ended by itself");
        }
        ended = &mut serving => {
            ended.context("the admission listener panicked")?;
            anyhow::bail!("the admission listener ended by itself");
        }
    }
    // Readiness fails from now on. The Service still sends requests until every node has noticed.
    stop.send_replace(serve::Phase::Leaving);
    tracing::info!(seconds = args.drain_seconds, "draining");
    tokio::time::sleep(Duration::from_secs(args.drain_seconds)).await;
    stop.send_replace(serve::Phase::Closing);
    serving.await.context("the admission listener panicked")?;
    tracing::info!("stopped");
    Ok(())
}
