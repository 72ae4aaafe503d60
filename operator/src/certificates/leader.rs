//! The certificate that the leader's listeners present.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate that link and claw-api present at each handshake, and its authorities.
#[derive(Default)]
pub struct LeaderCertificate {
    authorities: ArcSwapOption<String>,
    current: ArcSwapOption<CertifiedKey>,
}

impl LeaderCertificate {
    /// Replaces certificate and authorities. Returns whether the authorities changed.
    pub fn set(&self, authorities: String, certificate: Arc<CertifiedKey>) -> bool {
        self.current.store(Some(certificate));
        let changed = self.authorities.load().as_deref() != Some(&authorities);
        self.authorities.store(Some(Arc::new(authorities)));
        changed
    }

    /// The authorities as PEM; `None` until there are certificates.
    pub fn authorities(&self) -> Option<Arc<String>> {
        self.authorities.load_full()
    }
}

impl ResolvesServerCert for LeaderCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

impl fmt::Debug for LeaderCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaderCertificate")
    }
}
