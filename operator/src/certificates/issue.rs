//! Makes keys and certificates as PEM, without files and without the API.

use std::sync::Arc;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use toolcrib_manifest::SecretText;

use super::plan::{Authority, CLOCK_SKEW, SERVING_LIFE};

#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("a key or certificate cannot be generated")]
    Make(#[from] rcgen::Error),
    #[error("a date is out of range for a certificate")]
    Date(#[from] time::error::ComponentRange),
}

/// A certificate with its key, both PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    pub certificate: String,
    pub key: SecretText,
}

/// A self-signed certificate of an authority.
pub fn authority(authority: &Authority) -> Result<Pair, IssueError> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(authority)?.self_signed(&key)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: SecretText::new(key.serialize_pem()),
    })
}

/// A serving certificate for `hosts`, signed by `authority`, valid from `now`.
pub fn serving(
    authority: &Authority,
    authority_key: &SecretText,
    hosts: &[String],
    now: Timestamp,
) -> Result<Pair, IssueError> {
    let issuer = Issuer::new(
        authority_params(authority)?,
        KeyPair::from_pem(authority_key.expose())?,
    );
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(hosts.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(
        DnType::CommonName,
        hosts.first().map_or("toolcrib", String::as_str),
    );
    params.not_before = date(now)? - CLOCK_SKEW;
    params.not_after = date(now)? + SERVING_LIFE;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: SecretText::new(key.serialize_pem()),
    })
}

/// The parameters of an authority. They depend on `authority` alone, so an issuer can be rebuilt
/// from its dates and key, and no certificate has to be parsed.
fn authority_params(authority: &Authority) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("toolcrib {}", authority.name));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date(authority.not_before)?;
    params.not_after = date(authority.not_after)?;
    Ok(params)
}

fn date(at: Timestamp) -> Result<OffsetDateTime, IssueError> {
    Ok(OffsetDateTime::from_unix_timestamp(at.as_second())?)
}

/// Parses certificate and key for rustls; `None` if one is damaged or they do not match.
pub fn certified(pair: &Pair) -> Option<Arc<CertifiedKey>> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .ok()
        .filter(|chain| !chain.is_empty())?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.expose().as_bytes()).ok()?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).ok()?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().is_ok().then(|| Arc::new(certified))
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;
    use crate::certificates::plan::{self, StoredCertificates};

    #[test]
    fn a_client_that_trusts_the_bundle_accepts_the_certificate_for_its_hosts_only() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let hosts = vec!["link.pond.svc".to_owned()];
        let made = plan::plan(&StoredCertificates::default(), &hosts, &hosts, now)
            .add
            .unwrap();
        let ca = authority(&made).unwrap();
        let leaf = serving(&made, &ca.key, &hosts, now).unwrap();
        assert!(certified(&leaf).is_some());
        assert!(
            certified(&Pair {
                key: ca.key.clone(),
                ..leaf.clone()
            })
            .is_none()
        );

        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(ca.certificate.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let leaf = CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap();
        let verify = |host: &'static str| {
            verifier.verify_server_cert(
                &leaf,
                &[],
                &ServerName::try_from(host).unwrap(),
                &[],
                UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000)),
            )
        };
        verify("link.pond.svc").unwrap();
        verify("webhook.pond.svc").unwrap_err();
    }
}
