//! Row: strangers at the webhooks and at the link, while users create pods, and a grant is added
//! and revoked.
//!
//! They connect from the API server's address, which is loopback here. This is the hardest case:
//! they share its part of the connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::install::{CERTIFICATES, RELEASE, SYSTEM, WEBHOOK};
use crate::load::Load;
use crate::replacing::{more, passed};
use crate::world::{Row, World};

/// Connections to each webhook: more than one address may have.
const AT_WEBHOOK: usize = 300;
const AT_LINK: usize = 1_900;
/// Number of reviews of 3 MB to each webhook.
const LARGE: usize = 40;
/// How much a process may grow: its TLS buffers, and memory that its allocator keeps.
const GROWTH_KIB: u64 = 48 * 1024;
const ANSWER: Duration = Duration::from_secs(20);

pub async fn doors(world: &mut World) -> Result<Vec<Row>> {
    let inject: Api<MutatingWebhookConfiguration> = Api::all(world.plane.client.clone());
    let validate: Api<ValidatingWebhookConfiguration> = Api::all(world.plane.client.clone());
    let paths = [
        serde_json::to_value(inject.get(RELEASE).await?)?,
        serde_json::to_value(validate.get(RELEASE).await?)?,
    ]
    .map(|it| it["webhooks"][0]["clientConfig"]["service"]["path"].clone());
    for (path, plain) in paths.iter().zip(["/inject/", "/validate/"]) {
        let path = path.as_str().context("a path")?;
        ensure!(
            path.starts_with(plain) && path.len() == plain.len() + 64,
            "the controller named no secret path: {path}"
        );
    }
    let begun = Instant::now();
    let load = Load::start(&world.plane.client);
    more(&load).await?;
    let leader = world.leader().await?;
    let before = memory(world, leader)?;

    let tls = trusting(world).await?;
    let mut open = Vec::new();
    for webhook in &world.webhooks {
        for path in ["/inject", "/validate"] {
            large(&tls, webhook.address, path).await?;
        }
        for number in 0..AT_WEBHOOK {
            // Without a body, without a head, without a handshake.
            let stream = match number % 3 {
                0 => Stranger::tls(&tls, webhook.address, WEBHOOK, Some("/inject")).await,
                1 => Stranger::tls(&tls, webhook.address, WEBHOOK, None).await,
                _ => Stranger::tcp(webhook.address).await,
            };
            open.extend(stream);
        }
    }
    let link = world.controllers[leader].address;
    let mut refused = 0;
    for number in 0..AT_LINK {
        let path = (number % 2 == 0).then_some("/v1/link");
        let stranger = Stranger::tls(&tls, link, "toolcrib-link", path).await;
        let Some(mut stranger) = stranger else {
            continue;
        };
        if path.is_some() {
            let status = stranger.status().await;
            ensure!(
                status.as_deref().is_none_or(|status| status == "401"),
                "half a body, and no token: {status:?}"
            );
            refused += usize::from(status.is_some());
        }
        open.push(stranger);
    }
    ensure!(
        refused > AT_LINK / 4,
        "{refused} refused before their bodies came"
    );
    more(&load).await?;
    world.works().await?;
    more(&load).await?;
    let after = memory(world, leader)?;
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        ensure!(
            after.saturating_sub(*before) < GROWTH_KIB,
            "{name} has grown from {before} KiB to {after} KiB"
        );
    }
    drop(open);
    let tally = load.none_rejected().await?;
    let most = before.iter().zip(&after);
    let most = most.map(|((_, before), (_, after))| after.saturating_sub(*before));
    let fault = format!(
        "{AT_WEBHOOK} connections to each webhook and {AT_LINK} to the leader's link, without handshake, head or body, and {} reviews of 3 MB, all by strangers, under load",
        2 * LARGE * world.webhooks.len()
    );
    let seen = format!(
        "{}, a grant came and went, no process grew by more than {} MiB",
        passed(&tally),
        most.max().unwrap_or_default() / 1024 + 1
    );
    Ok(vec![Row::new(fault, seen, begun.elapsed())])
}

/// Resident memory, in KiB, of each webhook and of the leader.
fn memory(world: &World, leader: usize) -> Result<Vec<(String, u64)>> {
    let leader = &world.controllers[leader];
    let replicas = world.webhooks.iter().chain([leader]);
    replicas
        .map(|replica| Ok((replica.program.name.clone(), replica.program.memory_kib()?)))
        .collect()
}

async fn trusting(world: &World) -> Result<TlsConnector> {
    let secrets: Api<Secret> = Api::namespaced(world.plane.client.clone(), SYSTEM);
    let data = secrets.get(CERTIFICATES).await?.data.unwrap_or_default();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&data["ca.crt"].0) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// An open connection without a credential.
enum Stranger {
    Tcp(#[expect(dead_code, reason = "open, not used")] TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stranger {
    /// Connects; `None` if the connection was closed for another one.
    async fn tcp(address: SocketAddr) -> Option<Self> {
        TcpStream::connect(address).await.ok().map(Self::Tcp)
    }

    /// With a path: sends a head, and a body that stays incomplete.
    async fn tls(
        tls: &TlsConnector,
        address: SocketAddr,
        service: &str,
        path: Option<&str>,
    ) -> Option<Self> {
        let host = ServerName::try_from(format!("{service}.{SYSTEM}.svc")).ok()?;
        let stream = TcpStream::connect(address).await.ok()?;
        let mut stream = tls.connect(host, stream).await.ok()?;
        if let Some(path) = path {
            let head = format!("POST {path} HTTP/1.1\r\nHost: w\r\nContent-Length: 262000\r\n\r\n");
            stream.write_all(head.as_bytes()).await.ok()?;
            stream.write_all(&[b' '; 4096]).await.ok()?;
        }
        Some(Self::Tls(Box::new(stream)))
    }

    /// The status line of the answer, if there is one.
    async fn status(&mut self) -> Option<String> {
        let Self::Tls(stream) = self else { return None };
        let mut start = [0; 12];
        let read = timeout(ANSWER, stream.read_exact(&mut start)).await;
        read.ok()?.ok()?;
        Some(String::from_utf8_lossy(&start[9..]).into_owned())
    }
}

/// Sends reviews of the right shape, at a guessable path.
async fn large(tls: &TlsConnector, address: SocketAddr, path: &str) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"labels": {"toolcrib.dev/agent": "otter"}, "annotations": {"a": "o".repeat(2_900_000)}},
    });
    let review = json!({"request": {"uid": "1", "operation": "CREATE", "namespace": "pond", "object": object}});
    let review = review.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: w\r\nContent-Length: {}\r\n\r\n",
        review.len()
    );
    for _ in 0..LARGE {
        let host = ServerName::try_from(format!("{WEBHOOK}.{SYSTEM}.svc"))?;
        let stream = TcpStream::connect(address).await?;
        let mut stream = tls.connect(host, stream).await?;
        stream.write_all(head.as_bytes()).await?;
        // The write may fail: the answer comes first.
        let sent = stream.write_all(review.as_bytes()).await;
        let mut stranger = Stranger::Tls(Box::new(stream));
        let status = stranger.status().await;
        ensure!(
            status.as_deref() == Some("404") || (status.is_none() && sent.is_err()),
            "a stranger's review: {status:?}, {sent:?}"
        );
    }
    Ok(())
}
