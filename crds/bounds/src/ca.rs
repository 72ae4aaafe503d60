//! The certificates of a CA bundle.
//!
//! Compiler, mediator and command line read a bundle here, so that a bundle that compiles can also
//! be used. `kubectl toolcrib doctor` reads here until when each is valid. Not here: the verification of
//! a server's certificate.
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

/// Reads until when each certificate of a PEM bundle is valid, as RFC 3339 in UTC, in the order of the
/// bundle. A date that is written in no form of X.509 makes its certificate undecodable.
pub fn expiries(pem: &str) -> Result<Vec<String>, CaError> {
    certificates(pem)?;
    let mut expiries = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let undecodable = CaError::Undecodable(expiries.len() + 1);
        let certificate = certificate.map_err(|_| undecodable)?;
        expiries.push(expiry(&certificate).ok_or(undecodable)?);
    }
    Ok(expiries)
}

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version of a certificate, which version 1 leaves out.
const VERSION: u8 = 0xa0;

/// Reads `notAfter` of a certificate: tbsCertificate is version, serialNumber, signature, issuer,
/// validity and more (RFC 5280, section 4.1).
fn expiry(certificate: &[u8]) -> Option<String> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (mut rest, _) = element(certificate, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        (_, rest) = any_element(rest)?;
    }
    for _ in ["serialNumber", "signature", "issuer"] {
        (_, rest) = any_element(rest)?;
    }
    let (validity, _) = element(rest, SEQUENCE)?;
    let (_, not_after) = any_element(validity)?;
    let (text, _) = any_element(not_after)?;
    let text = std::str::from_utf8(text).ok()?;
    match not_after.first() {
        // Two digits of the year: from 1950 to 2049.
        Some(&UTC_TIME) => {
            let century = if text.get(..2)? < "50" { "20" } else { "19" };
            date(&format!("{century}{text}"))
        }
        Some(&GENERALIZED_TIME) => date(text),
        Some(_) | None => None,
    }
}

/// Converts `20361231235959Z`.
fn date(text: &str) -> Option<String> {
    let digits = text.strip_suffix('Z')?;
    let is_date = digits.len() == 14 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let part = |from: usize, to: usize| &digits[from..to];
    is_date.then(|| {
        format!(
            "{}-{}-{}T{}:{}:{}Z",
            part(0, 4),
            part(4, 6),
            part(6, 8),
            part(8, 10),
            part(10, 12),
            part(12, 14)
        )
    })
}

/// Returns the content of the first element, which has this tag, and the bytes after it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    any_element(bytes).filter(|_| bytes.first() == Some(&tag))
}

/// Returns the content of the first element of DER, and the bytes after it.
fn any_element(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&short, rest) = bytes.get(1..)?.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        // The next one to four bytes are the length.
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            let number = length
                .iter()
                .fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
            (number, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POND: &str = include_str!("../tests/pond.pem");
    /// As `openssl x509 -enddate` prints it.
    const EXPIRY: &str = "2126-10-30T23:02:19Z";

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
    fn each_certificate_has_its_expiry() {
        let expected = EXPIRY.to_owned();
        assert_eq!(
            expiries(&format!("{POND}{POND}")),
            Ok(vec![expected.clone(), expected])
        );
        assert_eq!(expiries(""), Err(CaError::Empty));
        assert_eq!(expiries(&torn(2)), Err(CaError::Undecodable(1)));
    }

    #[test]
    fn the_year_of_a_short_date_is_between_1950_and_2049() {
        let element = |tag: u8, content: &[u8]| {
            let length = u8::try_from(content.len()).unwrap();
            [&[tag, length], content].concat()
        };
        let sequence = |content: &[u8]| element(SEQUENCE, content);
        let certificate = |tag: u8, not_after: &[u8]| {
            let before = element(UTC_TIME, b"260101000000Z");
            let validity = sequence(&[before, element(tag, not_after)].concat());
            // Without a version.
            let serial = element(2, &[7]);
            let empty = sequence(&[]);
            sequence(&sequence(
                &[serial, empty.clone(), empty, validity].concat(),
            ))
        };
        for (tag, written, expected) in [
            (UTC_TIME, "491231235958Z", Some("2049-12-31T23:59:58Z")),
            (UTC_TIME, "500102030405Z", Some("1950-01-02T03:04:05Z")),
            (
                GENERALIZED_TIME,
                "20501231235958Z",
                Some("2050-12-31T23:59:58Z"),
            ),
            (GENERALIZED_TIME, "20501231235958", None),
            (UTC_TIME, "", None),
            (2, "491231235958Z", None),
        ] {
            let found = expiry(&certificate(tag, written.as_bytes()));
            assert_eq!(found.as_deref(), expected, "{written}");
        }
    }

    #[test]
    fn a_damaged_certificate_has_no_expiry() {
        let der = CertificateDer::from_pem_slice(POND.as_bytes()).unwrap();
        assert_eq!(expiry(&der).as_deref(), Some(EXPIRY));
        for length in 0..der.len() {
            assert_eq!(expiry(&der[..length]), None, "{length}");
        }
        assert_eq!(date("20361231235959"), None);
        assert_eq!(date("2036123123595ö"), None);
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
