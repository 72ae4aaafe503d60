//! The mediator's server: start, addresses, shutdown.

use std::io::Write;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use toolcrib_mediation::PresentedTools;
use toolcrib_serve::bind;

use super::admin;
use super::routes::RunnerRoutes;
use crate::app::budgets::BudgetStore;
use crate::app::connections;
use crate::app::continuity::ContinuityStore;
use crate::app::rates::RateStore;
use crate::app::sessions::native::NativeClients;
use crate::app::{App, Limits, Settings};
use crate::approvals::{Approvals, Pod};
use crate::config::identity::PodClaims;
use crate::config::version::Version;
use crate::config::watch::Watch;
use crate::config::{CurrentConfig, LoadState, identity};
use crate::export::{self, Arguments, Backlog, Exporter as RecordExporter};
use crate::history::{History, HistoryError, PodIdentity, RotationGate, RuleSet, StdoutBodies};
use crate::metrics::Metrics;
use crate::outbound::feeds::Feeds;
use crate::outbound::link::{Link, LinkStatus};
use crate::outbound::model::ModelClient;
use crate::outbound::operator::OperatorClient;
use crate::outbound::outages::Outages;
use crate::outbound::questions::Asker;
use crate::outbound::resolver::Resolver;
use crate::outbound::tools::mcp::Servers;
use crate::outbound::tools::oauth::Tokens;
use crate::outbound::{LocalNames, Outbound};
use crate::process::args::{ServeArgs, WhenBehind};
use crate::telemetry::Telemetry;
use crate::telemetry::export::Exporter;

/// Longest time that a start waits for its first file: the kubelet may still be syncing, and the
/// restart after this makes it sync.
pub const FIRST_FILE: Duration = Duration::from_secs(3);
/// The part of [`Limits::closing`] for recording requests that were cut off, and for runners that
/// read their last answer slowly.
const LAST_BYTES: Duration = Duration::from_secs(2);
/// The part of [`Limits::closing`] for the record on stdout, after its export.
const LAST_LINES: Duration = Duration::from_secs(2);
/// The part of [`Limits::closing`] for sending spans. The rest is for stdout.
const LAST_SPANS: Duration = Duration::from_secs(3);

#[derive(Debug, Error)]
pub enum StartError {
    /// Another process may hold the port; serving on another one would hide that.
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error("cannot watch the files: {0}")]
    Watch(std::io::Error),
    #[error(
        "no manifest in {dir} after {secs} s: the operator has compiled none for {agent}, or the kubelet has not \
         brought it yet; {advice}. The restart looks again",
        secs = FIRST_FILE.as_secs(),
        agent = expected_agent(pod.as_ref()),
        advice = advice(pod.as_ref())
    )]
    NoFiles {
        dir: String,
        /// `None`: there is no link token, as outside of a cluster.
        pod: Option<PodClaims>,
    },
    #[error("no randomness for an epoch")]
    Randomness,
}

/// A serving mediator.
#[derive(Debug)]
pub struct Server {
    pub address: SocketAddr,
    pub admin_address: SocketAddr,
    /// The address of the listener that serves only metrics, if there is one.
    pub metrics_address: Option<SocketAddr>,
    pub app: Arc<App>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    admin: JoinHandle<()>,
    scraped: Option<JoinHandle<()>>,
    link: Option<JoinHandle<()>>,
    asker: Option<JoinHandle<()>>,
    remembers: JoinHandle<()>,
    /// Sends the record to the collector.
    export: Option<RecordExporter>,
    watch: Watch,
}

impl Server {
    /// Starts to serve after the first read of the files. Must be called within a runtime.
    pub async fn start(
        args: ServeArgs,
        limits: Limits,
        stdout: impl Write + Send + 'static,
    ) -> Result<Server, StartError> {
        let listener = listen(args.listen).await?;
        let admin_listener = listen(args.admin_listen).await?;
        let metrics_listener = match args.metrics_port {
            Some(port) => Some(listen((Ipv6Addr::UNSPECIFIED, port).into()).await?),
            None => None,
        };
        let address = local_address(&listener, args.listen)?;
        let admin_address = local_address(&admin_listener, args.admin_listen)?;
        let gate = gate(&args);
        let backlog = args
            .collector()
            .map(|_| Backlog::open(&args.history_dir, gate.as_deref()))
            .transpose()
            .map_err(HistoryError::Open)?;
        let app = Arc::new(app(&args, limits, gate.clone(), stdout)?);
        let (history, current) = (app.history.clone(), app.current.clone());
        let record_rules = move |version: &Version| {
            history.set_rules(RuleSet::of(version, &current.scrubber()));
        };
        let watch = Watch::start(args.config_dir.clone(), app.current.clone(), record_rules)
            .map_err(StartError::Watch)?;
        wait_for_files(&app.current, &args).await?;
        remember_offer(&app);
        let export = backlog.and_then(|backlog| start_export(&app, &args, backlog, gate));
        let (stop, stopped) = watch::channel(false);
        let metrics_address = metrics_listener
            .as_ref()
            .and_then(|it| it.local_addr().ok());
        let scraped = metrics_listener.map(|listener| {
            let router = admin::metrics_router(app.clone());
            connections::serve(listener, router, limits.admin, None, stopped.clone())
        });
        let token_file = args.link_token_file;
        let asker = token_file.clone().map(|file| start_asker(&app, file));
        let link = token_file.map(|file| start_link(&app, file));
        Ok(Server {
            address,
            admin_address,
            metrics_address,
            scraped,
            serving: connections::serve(
                listener,
                RunnerRoutes::new(app.clone()),
                limits.connections,
                Some(app.metrics.clone()),
                stopped.clone(),
            ),
            admin: connections::serve(
                admin_listener,
                admin::router(app.clone()),
                limits.admin,
                None,
                stopped,
            ),
            link: link.transpose()?,
            asker,
            remembers: tokio::spawn(remember_offers(app.clone())),
            export,
            app,
            stop,
            watch,
        })
    }

    /// Stops: takes no new requests; running ones end or are cut off, each with its line in the
    /// record; then flushes the record. Everything after the wait for requests shares one bound.
    pub async fn drain(self) {
        let Server {
            app,
            stop,
            mut serving,
            admin,
            scraped,
            link,
            asker,
            remembers,
            export,
            watch,
            ..
        } = self;
        let began = Instant::now();
        remembers.abort();
        for task in [link, asker].into_iter().flatten() {
            task.abort();
        }
        stop.send_replace(true);
        app.native.close();
        let limits = app.settings.limits;
        let all = u32::try_from(limits.requests).unwrap_or(u32::MAX);
        let idle = app.requests.acquire_many(all);
        let outlasted = tokio::time::timeout(limits.drain, idle).await.is_err();
        // The record may take the time that requests did not need.
        let last_of_all = began + limits.drain + limits.closing;
        let flush_by = (Instant::now() + (limits.drain + limits.closing) / 2)
            .min(last_of_all.checked_sub(LAST_LINES).unwrap_or(last_of_all));
        let end = match export {
            Some(_) => last_of_all,
            None => Instant::now() + limits.closing,
        };
        let within = |most: Duration| end.min(Instant::now() + most);
        let last_bytes = within(LAST_BYTES);
        if outlasted {
            tracing::warn!("shutdown deadline exceeded, requests cut off");
            app.current.end();
            let idle = app.requests.acquire_many(all);
            if tokio::time::timeout_at(last_bytes, idle).await.is_err() {
                tracing::warn!("runner did not read its response before shutdown");
            }
        }
        // The tasks are done, but their last bytes may still be on the way. Meanwhile MCP servers
        // get the end of their sessions.
        let last = tokio::time::timeout_at(last_bytes, &mut serving);
        let left = last_bytes.saturating_duration_since(Instant::now());
        let (last, ()) = tokio::join!(last, app.servers.close(left));
        if last.is_err() {
            serving.abort();
        }
        admin.abort();
        if let Some(scraped) = scraped {
            scraped.abort();
        }
        if let Some(exporter) = &app.telemetry.exporter
            && tokio::time::timeout_at(within(LAST_SPANS), exporter.close())
                .await
                .is_err()
        {
            tracing::warn!("span export timed out, spans dropped");
        }
        if let Some(export) = &export
            && tokio::time::timeout_at(flush_by, export.flush())
                .await
                .is_err()
        {
            tracing::warn!("record export timed out, the rest stays on disk");
        }
        let flush = tokio::task::spawn_blocking(move || {
            app.history.close();
            drop(watch);
        });
        if tokio::time::timeout_at(end, flush).await.is_err() {
            tracing::error!("stdout blocked, record lines on disk only");
        }
        if let Some(export) = export {
            // Lines that waited in memory for the disk.
            let late = tokio::time::timeout_at(end.min(flush_by + LAST_LINES), export.flush());
            if late.await.is_err() {
                tracing::debug!("last record lines not exported");
            }
            export.stop().await;
        }
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })
}

/// The address that a listener got, which was asked for `wanted`.
fn local_address(listener: &TcpListener, wanted: SocketAddr) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen {
        address: wanted,
        source,
    })
}

/// Opens the record and the kept rounds, and builds the state that requests share.
fn app(
    args: &ServeArgs,
    limits: Limits,
    gate: Option<Arc<RotationGate>>,
    stdout: impl Write + Send + 'static,
) -> Result<App, HistoryError> {
    let local = if args.allow_local {
        LocalNames::Allowed
    } else {
        LocalNames::Refused
    };
    // A sixteenth for the counts of rates; of the rest a quarter for the hidden rounds.
    let rates_bytes = args.history_max_bytes / 16;
    let continuity_bytes = (args.history_max_bytes - rates_bytes) / 4;
    let history_bytes = continuity_bytes * 3;
    let on_stdout = if args.record_bodies {
        StdoutBodies::WithBodies
    } else {
        StdoutBodies::WithoutBodies
    };
    let current = Arc::new(CurrentConfig::default());
    let metrics = Arc::new(Metrics::default());
    let outbound = Arc::new(Outbound::new(
        local,
        Resolver::of_files(current.clone(), local),
    ));
    let tokens = Arc::new(Tokens::new(current.clone(), outbound.clone()));
    let exporter = args
        .receiver()
        .map(|endpoint| Exporter::start(endpoint, &args.pod, outbound.clone(), metrics.clone()));
    let bodies = Arc::new(Semaphore::new(limits.bodies_kib));
    let claims = args
        .link_token_file
        .as_deref()
        .and_then(identity::pod_claims);
    let pod_uid = claims.map(|claims| claims.uid);
    let outages: Arc<Outages> = Arc::default();
    let history = History::open(
        &args.history_dir,
        history_bytes,
        gate,
        PodIdentity {
            name: &args.pod,
            uid: pod_uid.as_deref(),
        },
        on_stdout,
        stdout,
        metrics.clone(),
    )?;
    let history = Arc::new(history);
    let pod = pod_uid.as_ref().map(|uid| Pod {
        name: args.pod.clone(),
        uid: uid.clone(),
    });
    let approvals = Approvals::open(
        pod,
        &args.history_dir,
        history.clone(),
        current.clone(),
        metrics.clone(),
    );
    Ok(App {
        approvals: Arc::new(approvals),
        history,
        telemetry: Telemetry { exporter },
        feeds: Feeds::new(
            current.clone(),
            outbound.clone(),
            tokens.clone(),
            metrics.clone(),
        ),
        current,
        outbound,
        tokens,
        servers: Servers::new(metrics.clone(), bodies.clone()),
        native: NativeClients::default(),
        models: Arc::new(ModelClient::new(metrics.clone(), outages.clone())),
        outages,
        continuity: ContinuityStore::open(&args.history_dir, continuity_bytes),
        rates: RateStore::open(&args.history_dir, rates_bytes).map_err(HistoryError::Open)?,
        budgets: Arc::new(
            BudgetStore::open(&args.history_dir, jiff::Timestamp::now())
                .map_err(HistoryError::Open)?,
        ),
        metrics,
        link: LinkStatus::default(),
        known_tools: Mutex::default(),
        requests: Arc::new(Semaphore::new(limits.requests)),
        bodies,
        settings: Settings {
            pod: args.pod.clone(),
            pod_uid,
            keepalive: args.keepalive,
            limits,
        },
    })
}

/// The gate of rotation, if that waits for the collector.
fn gate(args: &ServeArgs) -> Option<Arc<RotationGate>> {
    match args.export_when_behind {
        WhenBehind::Drop => None,
        WhenBehind::Refuse => args.collector().map(|_| Arc::default()),
    }
}

/// Starts the export of the record. `None`: the arguments name no collector.
fn start_export(
    app: &App,
    args: &ServeArgs,
    backlog: Backlog,
    gate: Option<Arc<RotationGate>>,
) -> Option<RecordExporter> {
    let settings = export::Settings {
        endpoint: args.collector()?,
        pod: &args.pod,
        arguments: match args.export_arguments {
            true => Arguments::Exported,
            false => Arguments::Removed,
        },
        pace: app.settings.limits.export,
    };
    let shared = export::ExportContext {
        current: app.current.clone(),
        metrics: app.metrics.clone(),
        outbound: app.outbound.clone(),
        gate,
    };
    Some(RecordExporter::start(backlog, settings, shared))
}

fn start_link(app: &App, token_file: PathBuf) -> Result<JoinHandle<()>, StartError> {
    let link = Link {
        current: app.current.clone(),
        metrics: app.metrics.clone(),
        status: app.link.clone(),
        models: app.models.clone(),
        outages: app.outages.clone(),
        budgets: app.budgets.counts().clone(),
        rates: app.rates.counts().clone(),
        approvals: app.approvals.clone(),
        history: app.history.clone(),
        operator: OperatorClient::new(app.outbound.clone(), token_file),
        epoch: epoch()?,
    };
    Ok(tokio::spawn(link.run()))
}

fn start_asker(app: &App, token_file: PathBuf) -> JoinHandle<()> {
    let asker = Asker {
        current: app.current.clone(),
        approvals: app.approvals.clone(),
        operator: OperatorClient::new(app.outbound.clone(), token_file),
    };
    tokio::spawn(asker.run())
}

/// Remembers each offered tool, whether a request shows it or not: a model can know a tool from
/// elsewhere, and its call is denied and recorded after the tool is withdrawn.
async fn remember_offers(app: Arc<App>) {
    let mut changes = app.current.subscribe();
    loop {
        remember_offer(&app);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn remember_offer(app: &App) {
    let now = app.current.now();
    app.continuity.present(&PresentedTools::alone(
        &now.authority,
        jiff::Timestamp::now(),
    ));
}

/// Names the agent of the files, as far as it is known before any file exists.
fn expected_agent(pod: Option<&PodClaims>) -> String {
    match pod {
        Some(PodClaims {
            namespace, name, ..
        }) => format!("the agent of pod {namespace}/{name}"),
        None => "the agent".to_owned(),
    }
}

/// Returns commands that work as they are written.
fn advice(pod: Option<&PodClaims>) -> String {
    match pod {
        Some(PodClaims {
            namespace, name, ..
        }) => format!(
            "`kubectl get pod {name} -n {namespace} -L toolcrib.dev/agent` names the agent, and \
             `kubectl describe agent -n {namespace}` says why"
        ),
        None => "`kubectl describe agent` says why".to_owned(),
    }
}

async fn wait_for_files(current: &CurrentConfig, args: &ServeArgs) -> Result<(), StartError> {
    let mut changes = current.subscribe();
    let seen = async {
        while matches!(current.now().load_state, LoadState::Waiting) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    match tokio::time::timeout(FIRST_FILE, seen).await {
        Ok(()) => Ok(()),
        Err(_) => Err(StartError::NoFiles {
            dir: args.config_dir.display().to_string(),
            pod: args
                .link_token_file
                .as_deref()
                .and_then(identity::pod_claims),
        }),
    }
}

fn epoch() -> Result<String, StartError> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|_| StartError::Randomness)?;
    Ok(hex::encode(bytes))
}
