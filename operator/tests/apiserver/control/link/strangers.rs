//! Requests to the link without credentials.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Mediator, delete, has, ours};
use crate::support::harness::{DEADLINE, Harness};
use crate::support::pods::{self, AUDIENCE};
use crate::{ALL, READS, sorted, tools};

/// Opens a connection to the link and sends a head and a part of a body.
async fn half_a_report(
    harness: &Harness,
    tls: &TlsConnector,
    authorization: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let host = ServerName::try_from(format!("link.{}.svc", harness.system)).unwrap();
    let stream = TcpStream::connect(harness.link).await?;
    let mut stream = tls.connect(host, stream).await?;
    let head = format!(
        "POST /v1/link HTTP/1.1\r\nHost: link\r\n{authorization}Content-Length: 60000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&[b' '; 30_000]).await?;
    Ok(stream)
}

/// Strangers are refused before their bodies arrive, with a token and without one.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_strangers_are_not_read_and_a_revocation_still_arrives() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    let ca = files["agent.json"]["link"]["ca"].as_str().unwrap();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = TlsConnector::from(Arc::new(config));
    let mut open = Vec::new();
    let mut refused = 0;
    for number in 0..200 {
        let authorization = match number % 2 {
            0 => String::new(),
            _ => format!("Authorization: Bearer nobody-{number}\r\n"),
        };
        // A connection may have been closed for a newcomer.
        let Ok(mut stream) = half_a_report(&harness, &tls, &authorization).await else {
            continue;
        };
        let mut start = [0; 12];
        let answer = tokio::time::timeout(DEADLINE, stream.read_exact(&mut start));
        if answer.await.unwrap().is_ok() {
            assert_eq!(&start[9..], b"401");
            refused += 1;
        }
        open.push(stream);
    }
    assert!(refused > 100, "{refused}");
    // Silent connections, more than one address may have.
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.extend(TcpStream::connect(harness.link).await);
    }
    let executor = pods::create(&harness, "executor-1", "executor").await;
    let mediator = Mediator::start(&harness, &executor, &files).await;
    mediator.whole().await;
    delete(
        &harness,
        &ours("ToolGrant", &harness.pond, "executor-all", json!({})),
    )
    .await;
    mediator.until("revoked", |now| !has(now, READS[0])).await;
    // A report with a pod's own token is read, up to its bound.
    let token = pods::token(&harness, &executor, AUDIENCE).await;
    let http = harness.https("link", harness.link, &files["agent.json"]["link"]["ca"]);
    let url = format!(
        "{}/v1/link",
        files["agent.json"]["link"]["url"].as_str().unwrap()
    );
    let mut report = json!({"epoch": "e", "version": "0", "usage": {}}).to_string();
    for (length, expected) in [(64 * 1024, 200), (64 * 1024 + 1, 413)] {
        report.extend(std::iter::repeat_n(' ', length - report.len()));
        let answer = http.post(&url).bearer_auth(&token).body(report.clone());
        assert_eq!(answer.send().await.unwrap().status(), expected);
    }
    drop((open, silent, mediator));
    harness.end().await;
}
