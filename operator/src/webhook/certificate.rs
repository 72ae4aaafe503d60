//! The serving certificate, from a mounted Secret that the controller writes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use toolcrib_manifest::SecretText;
use toolcrib_serve::Tls;

use crate::certificates::issue::{Pair, certified};
use crate::certificates::rotate::{WEBHOOK_CERTIFICATE, WEBHOOK_KEY};

/// Interval at which the files are read. The controller publishes a CA long before it signs with
/// it, so a delay of seconds does no harm.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The current serving certificate, looked up at each TLS handshake.
pub struct Certificate {
    folder: PathBuf,
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate")
            .field("folder", &self.folder)
            .field("loaded", &self.loaded())
            .finish()
    }
}

impl Certificate {
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            current: RwLock::new(None),
        }
    }

    pub fn loaded(&self) -> bool {
        self.get().is_some()
    }

    pub fn transport(self: &Arc<Self>) -> anyhow::Result<Tls> {
        Tls::new(Arc::clone(self) as Arc<dyn ResolvesServerCert>).context("TLS versions")
    }

    /// Reads the files at that interval, forever.
    pub async fn keep_current(&self, interval: Duration) {
        let mut served: Option<Pair> = None;
        let mut complained = false;
        let mut ticks = tokio::time::interval(interval);
        loop {
            ticks.tick().await;
            match self.read().await {
                Ok(pair) => {
                    let same = served.as_ref().is_some_and(|served| {
                        served.certificate == pair.certificate && served.key == pair.key
                    });
                    if same {
                        continue;
                    }
                    match certified(&pair) {
                        Some(key) => {
                            self.set(key);
                            served = Some(pair);
                            complained = false;
                            tracing::info!("certificate loaded");
                        }
                        // One file was replaced before the other, or a file is damaged.
                        None => complain(&mut complained, "certificate and key do not match"),
                    }
                }
                // The certificate that was loaded before is still served.
                Err(error) => complain(&mut complained, &error.to_string()),
            }
        }
    }

    async fn read(&self) -> std::io::Result<Pair> {
        let certificate = tokio::fs::read_to_string(self.folder.join(WEBHOOK_CERTIFICATE)).await?;
        let key = tokio::fs::read_to_string(self.folder.join(WEBHOOK_KEY)).await?;
        Ok(Pair {
            certificate,
            key: SecretText::new(key),
        })
    }

    fn get(&self) -> Option<Arc<CertifiedKey>> {
        self.current.read().clone()
    }

    fn set(&self, key: Arc<CertifiedKey>) {
        *self.current.write() = Some(key);
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.get()
    }
}

/// Logs once until a certificate loads: on a first start, the webhook waits for the controller.
fn complain(complained: &mut bool, why: &str) {
    if !*complained {
        tracing::warn!(why, "certificate not loaded, retrying");
        *complained = true;
    }
}
