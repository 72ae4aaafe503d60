//! `toolcrib-operator webhook`: puts the mediator into pods that run an agent, and says of our
//! own kinds, while they are applied, what is wrong with them and who gains or loses what.
//!
//! Answers the API server alone: the others do not know its paths. It has no right to any
//! Secret, and a patch holds references only. It keeps the Agents'
//! specs, under 1 KiB each, because a pod's admission cannot wait for a read; all else is
//! read when it is asked for. Whatever the input, the answer is an
//! AdmissionReview: what cannot be read is not allowed. Not here: what is injected
//! (`toolcrib_compile::inject`), and the guard that stands when no webhook runs (a policy
//! in the chart).
//!
//! In reading order: [`args`], [`agents`] (the watch), [`paths`] (who may ask), [`review`] (the
//! wire format), [`body`] and [`routes`] (one admission); [`validate`] (our own kinds) with [`object`] and
//! [`neighbours`]; [`certificate`] and [`serve`] (TLS, drain), [`meter`].

mod agents;
mod args;
mod body;
mod certificate;
pub mod meter;
mod neighbours;
mod object;
mod paths;
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
pub use args::Args;
use certificate::{Certificate, LOOK_INTERVAL};
use meter::Meter;
use paths::Paths;
use review::Review;
use routes::App;

/// How long connections may take to end once nothing new is accepted.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Answers the review of a pod with the text that the route sends, where the pod's Agent is known.
/// `None`: the body is not the review of a pod.
pub(crate) fn answer_pod(body: &[u8], agent: &Agent, config: &InjectConfig) -> Option<String> {
    let review = Review::read(body).ok()?;
    let pod = routes::pod(&review.request).ok()?;
    let (answer, _) = routes::injected(&pod, agent, config);
    Some(answer.into_review(&review.request.uid).to_string())
}

/// Answers the review of an object of ours with the text that the route sends, as if the cluster
/// had no other object. `None`: the body is not a review.
pub(crate) fn answer_object(body: &[u8]) -> Option<String> {
    let review = Review::read(body).ok()?;
    let (answer, _) = validate::validate_alone(&review.request);
    Some(answer.into_review(&review.request.uid).to_string())
}

/// Serves until SIGTERM or SIGINT, then drains.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let client = kube::Client::try_default()
        .await
        .context("no way to the API server")?;
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

/// Serves until `shutdown`, then drains. Errs when it cannot start, and when a part of it
/// ended that must not.
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
    let (agents, filler) = Agents::watch(client.clone(), args.agents_budget());
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
        filler.run(&errors).await;
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
    // Not ready from now on; the Service goes on sending until every node knows.
    stop.send_replace(serve::Phase::Leaving);
    tracing::info!(seconds = args.drain_seconds, "draining");
    tokio::time::sleep(Duration::from_secs(args.drain_seconds)).await;
    stop.send_replace(serve::Phase::Closing);
    serving.await.context("the admission listener panicked")?;
    tracing::info!("stopped");
    Ok(())
}
