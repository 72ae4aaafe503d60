//! The certificates of a CA bundle.
//!
//! Compiler, mediator and command line read a bundle here, so that a bundle that compiles can also
//! be used. Not here: the verification of a server's certificate.
//!
//! Invariant: one pass over the text, and no result is larger than the text. A single unusable
//! certificate refuses the bundle: otherwise its absence would show only when a call fails.

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, TrustAnchor};
use thiserror::Error;
use webpki::anchor_from_trusted_cert;

/// The reason for which a bundle cannot be used. Each message continues a sentence that begins with
/// the name of the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CaError {
    #[error("holds no certificate: add one, from BEGIN CERTIFICATE to END CERTIFICATE")]
    Empty,
    #[error("holds a certificate that cannot be decoded, number {0}: correct or remove it")]
    Undecodable(usize),
}

/// Reads the certificates of a PEM bundle. Other sections, and text between sections, are ignored.
/// Certificates are counted from 1.
pub fn certificates(pem: &str) -> Result<Vec<TrustAnchor<'static>>, CaError> {
    let mut anchors = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let number = anchors.len() + 1;
        let undecodable = CaError::Undecodable(number);
        let certificate = certificate.map_err(|_| undecodable)?;
        let anchor = anchor_from_trusted_cert(&certificate).map_err(|_| undecodable)?;
        anchors.push(anchor.to_owned());
    }
    match anchors.is_empty() {
        true => Err(CaError::Empty),
        false => Ok(anchors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POND: &str = include_str!("../tests/pond.pem");

    #[track_caller]
    fn check(pem: &str, expected: Result<usize, CaError>) {
        assert_eq!(certificates(pem).map(|all| all.len()), expected, "{pem}");
    }

    /// Returns the certificate without one of its lines.
    fn torn(line: usize) -> String {
        let lines = POND.lines().enumerate();
        let kept = lines.filter(|(at, _)| *at != line);
        kept.map(|(_, text)| format!("{text}\n")).collect()
    }

    #[test]
    fn text_between_certificates_is_ignored() {
        check(POND, Ok(1));
        check(&format!("one:\n{POND}\ntwo:\n{POND}"), Ok(2));
        check(&POND.replace('\n', "\r\n"), Ok(1));
        check(POND.trim_end(), Ok(1));
        let other = POND.replace("CERTIFICATE", "DH PARAMETERS");
        check(&format!("{other}{POND}"), Ok(1));
    }

    #[test]
    fn a_bundle_without_a_certificate_is_refused() {
        check("", Err(CaError::Empty));
        check("the certificate comes later\n", Err(CaError::Empty));
        check(
            &POND.replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
            Err(CaError::Empty),
        );
    }

    #[test]
    fn one_bad_certificate_refuses_the_bundle_and_is_named() {
        let last = POND.lines().count() - 1;
        check(&torn(2), Err(CaError::Undecodable(1)));
        check(
            &format!("{POND}{POND}{}", torn(2)),
            Err(CaError::Undecodable(3)),
        );
        check(
            &format!("{POND}{}", torn(last)),
            Err(CaError::Undecodable(2)),
        );
        check(
            &POND.replace("MII", "not base64! "),
            Err(CaError::Undecodable(1)),
        );
        // The end of the first certificate is missing, so it runs into the second.
        check(
            &format!("{}{POND}", torn(last)),
            Err(CaError::Undecodable(1)),
        );
    }
}
