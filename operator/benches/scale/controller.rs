//! The controller as a process of its own, so that its memory and CPU time are measured alone.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use toolcrib_compile::NetworkSettings;
use toolcrib_operator::controller::{self, SecretScope, Settings};
use toolcrib_operator::leadership::lease::Timing;

use super::SYSTEM;

/// Set for the child process: the controller's health address.
pub const CHILD: &str = "TOOLCRIB_SCALE_CONTROLLER";

/// Runs the controller as the chart does, with rights everywhere.
pub async fn run(client: Client, listen: SocketAddr) -> Result<()> {
    // Its errors would otherwise show only as a strange figure.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .init();
    let settings = Settings {
        namespace: SYSTEM.into(),
        pod_name: "scale".into(),
        lease: "controller".into(),
        lease_timing: Timing::default(),
        webhook_config_name: None,
        webhook_pods: String::new(),
        webhook_service: "webhook".into(),
        link_service: "link".into(),
        link_service_port: 443,
        certificate_secret: "certificates".into(),
        secrets: SecretScope::Cluster,
        listen,
        link_listen: toolcrib_ports::free()?,
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
        stale_after: Duration::from_secs(120),
        resync: Duration::from_secs(1800),
        refresh_hints: false,
        approvals_kept: jiff::SignedDuration::from_hours(1),
    };
    controller::run(client, settings, std::future::pending()).await
}

/// The controller as a process.
pub struct Controller {
    child: Child,
    health: SocketAddr,
}

impl Drop for Controller {
    fn drop(&mut self) {
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            eprintln!("cannot wait for the controller to end");
        }
    }
}

impl Controller {
    pub fn start() -> Result<Self> {
        let health = toolcrib_ports::free()?;
        let child = Command::new(std::env::current_exe()?)
            .env(CHILD, health.to_string())
            // As in the chart.
            .env("MALLOC_ARENA_MAX", "2")
            .stdout(Stdio::null())
            .spawn()
            .context("start the controller")?;
        Ok(Self { child, health })
    }

    /// The sum of a metric's series; `None` if the controller does not answer yet.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let answer = reqwest::get(format!("http://{}/metrics", self.health)).await;
        let text = answer.ok()?.text().await.ok()?;
        let series = text
            .lines()
            .filter(|line| line.starts_with(&format!("toolcrib_operator_{name}")));
        Some(
            series
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .fold(0.0, |sum, value| sum + value),
        )
    }

    /// Resident memory `(now, at most)`, in MiB.
    pub fn memory(&self) -> Result<(f64, f64)> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse::<f64>().ok()
        };
        let read = |name| {
            field(name)
                .map(|kib| kib / 1024.0)
                .context("no memory in /proc")
        };
        Ok((read("VmRSS:")?, read("VmHWM:")?))
    }

    /// CPU seconds of user and system.
    pub fn cpu(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after = text.rsplit_once(')').context("a stat line")?.1;
        let ticks: f64 = after
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        Ok(ticks / 100.0)
    }
}
