//! Runs the controller as a process, and reads its metrics and those of the API server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use tokio::time::Instant;
use toolcrib_compile::NetworkSettings;
use toolcrib_operator::controller::{self, SecretScope, Settings};
use toolcrib_operator::leadership::lease::Timing;

use crate::DEADLINE;
use crate::objects::SYSTEM;

/// Set for the child process: the addresses of health and link.
const CHILD: &str = "TOOLCRIB_LINK_CONTROLLER";

#[derive(Clone, Copy)]
pub struct Ports {
    pub health: SocketAddr,
    pub link: SocketAddr,
}

impl Ports {
    pub fn free() -> Result<Self> {
        Ok(Self {
            health: toolcrib_ports::free()?,
            link: toolcrib_ports::free()?,
        })
    }
}

/// The ports for the controller, if this process was started to be one.
pub fn child_ports() -> Result<Option<Ports>> {
    let Ok(text) = std::env::var(CHILD) else {
        return Ok(None);
    };
    let (health, link) = text.split_once(' ').context("two addresses")?;
    Ok(Some(Ports {
        health: health.parse()?,
        link: link.parse()?,
    }))
}

/// Runs the controller as the chart does, with rights everywhere.
pub async fn run(client: Client, ports: Ports) -> Result<()> {
    // Its errors would otherwise show only as a strange figure.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .init();
    let settings = Settings {
        namespace: SYSTEM.into(),
        pod_name: format!("link-{}", std::process::id()),
        lease: "controller".into(),
        lease_timing: Timing::default(),
        webhook_config_name: None,
        webhook_pods: String::new(),
        webhook_service: "webhook".into(),
        link_service: "link".into(),
        link_service_port: ports.link.port(),
        certificate_secret: "certificates".into(),
        secrets: SecretScope::Cluster,
        listen: ports.health,
        link_listen: ports.link,
        claw_api: None,
        refused_hosts: Default::default(),
        dns_egress: NetworkSettings::default().dns,
        name_servers: Vec::new(),
        cluster_domain: Default::default(),
        cluster_ranges: NetworkSettings::default().cluster_ranges,
        collector: None,
        objects_budget: usize::MAX,
        workers: 8,
        usage_interval: Duration::from_secs(300),
        stale_after: Duration::from_secs(3_600),
        resync: Duration::from_secs(1_800),
        refresh_hints: false,
        approvals_kept: jiff::SignedDuration::from_hours(1),
    };
    controller::run(client, settings, std::future::pending()).await
}

pub struct Controller {
    child: Child,
    pub ports: Ports,
}

impl Drop for Controller {
    fn drop(&mut self) {
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            eprintln!("cannot wait for the controller to end");
        }
    }
}

impl Controller {
    pub fn start(ports: Ports) -> Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .env(CHILD, format!("{} {}", ports.health, ports.link))
            // As in the chart.
            .env("MALLOC_ARENA_MAX", "2")
            .stdout(Stdio::null())
            .spawn()
            .context("start the controller")?;
        Ok(Self { child, ports })
    }

    async fn text(&self) -> Result<String> {
        let url = format!("http://{}/metrics", self.ports.health);
        let deadline = Instant::now() + DEADLINE;
        loop {
            match reqwest::get(&url).await {
                Ok(answer) => return Ok(answer.text().await?),
                Err(error) => ensure!(Instant::now() < deadline, "no metrics: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The sum of a metric's series.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        Ok(sum(&self.text().await?, name))
    }

    /// Formats a histogram: the count in all, and up to each bound.
    pub async fn histogram(&self, name: &str) -> Result<String> {
        let text = self.text().await?;
        let count = sum(&text, &format!("{name}_count"));
        let mut words = vec![format!(
            "{count} in all, {:.3} s on average",
            sum(&text, &format!("{name}_sum")) / count
        )];
        for bound in ["0.05", "0.1", "0.25", "0.5", "1.0", "2.0"] {
            let within = sum(&text, &format!("{name}_bucket{{le=\"{bound}\"}}"));
            words.push(format!("{within} ≤ {bound} s"));
        }
        Ok(words.join(", "))
    }

    /// Resident memory, in MiB.
    pub fn memory(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        Ok(kib.context("no memory in /proc")? / 1024.0)
    }

    /// CPU seconds of user and system.
    pub fn cpu(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after = text.rsplit_once(')').context("a stat line")?.1;
        let fields = after.split_whitespace().skip(11).take(2);
        let ticks: f64 = fields.filter_map(|field| field.parse::<f64>().ok()).sum();
        Ok(ticks / 100.0)
    }
}

fn sum(text: &str, start: &str) -> f64 {
    text.lines()
        .filter(|line| line.starts_with(start))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .fold(0.0, |sum, value| sum + value)
}

/// Requests to the API server by verb and resource; includes those of this program.
pub struct Requests(BTreeMap<String, f64>);

impl Requests {
    pub fn read(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            let Some(labels) = line.strip_prefix("apiserver_request_total{") else {
                continue;
            };
            let label = |name: &str| {
                let from = labels.split_once(&format!("{name}=\""))?.1;
                Some(from.split_once('"')?.0.to_owned())
            };
            let value = line
                .rsplit(' ')
                .next()
                .and_then(|it| it.parse::<f64>().ok());
            if let (Some(verb), Some(resource), Some(value)) =
                (label("verb"), label("resource"), value)
                && !resource.is_empty()
            {
                *counts.entry(format!("{verb} {resource}")).or_insert(0.0) += value;
            }
        }
        Self(counts)
    }

    /// The five series that grew most.
    pub fn since(&self, before: &Self) -> String {
        let mut grown: Vec<(f64, &String)> = self
            .0
            .iter()
            .map(|(name, count)| (count - before.0.get(name).copied().unwrap_or(0.0), name))
            .filter(|(more, _)| *more > 0.0)
            .collect();
        grown.sort_by(|a, b| b.0.total_cmp(&a.0));
        let words: Vec<String> = grown
            .iter()
            .take(5)
            .map(|(more, name)| format!("{more} {name}"))
            .collect();
        words.join(", ")
    }
}
