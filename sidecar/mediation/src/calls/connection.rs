//! Causes of a failed connection to a service or a provider, in words for the record.
//!
//! Causes are found by the types of errors, never by their texts: texts and names of a certificate
//! are the server's bytes. Not here: errors of the mediator's resolver and its HTTP client.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

use rustls::{CertificateError, InvalidMessage};
use serde::{Deserialize, Serialize};
use toolcrib_record::Connection;

/// A failed connection, for the record and the log. Never shown to the model: it names a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionFailure {
    pub cause: ConnectionCause,
    /// `scheme://host:port`; where the manifest has a proxy, the address behind it.
    pub address: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionCause {
    /// Nothing listens at the address.
    Refused,
    NameNotFound,
    /// No name server is configured, or none gives a usable answer.
    NameServer,
    /// The name or the literal address leads to this machine, the link-local range or a metadata
    /// service.
    AddressRefused,
    TimedOut,
    /// The port does not speak TLS.
    TlsNotSpoken,
    /// No trusted CA signed the server's certificate.
    TlsUnknownCa,
    /// The server presents a CA certificate as its own, as a self-signed one often is.
    TlsCaAsServer,
    TlsExpired,
    TlsNotYetValid,
    /// The certificate is for another host.
    TlsOtherHost,
    /// Any other failure of TLS.
    Tls,
    /// The connection was established and broke off.
    Reset,
    /// The network or the host cannot be reached.
    NoRoute,
    Other,
}

impl ConnectionCause {
    /// Returns the cause that one error of a chain shows by its type.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(tls(error));
        }
        let error = error.downcast_ref::<io::Error>()?;
        // `source` skips the inner error, so it is looked at here.
        if let Some(cause) = error.get_ref().and_then(|inner| Self::of(inner)) {
            return Some(cause);
        }
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the system has many other errors, and new ones"
        )]
        match error.kind() {
            ErrorKind::ConnectionRefused => Some(Self::Refused),
            ErrorKind::TimedOut => Some(Self::TimedOut),
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Some(Self::NoRoute),
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof => Some(Self::Reset),
            _ => None,
        }
    }
}

/// Returns the cause of a failed handshake.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library has many other errors, and new ones"
)]
fn tls(error: &rustls::Error) -> ConnectionCause {
    match error {
        rustls::Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => ConnectionCause::TlsNotSpoken,
        rustls::Error::InvalidCertificate(error) => certificate(error),
        _ => ConnectionCause::Tls,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library has many other errors, and new ones"
)]
fn certificate(error: &CertificateError) -> ConnectionCause {
    match error {
        // Two CAs of one name differ in their keys: the signature then does not fit.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            ConnectionCause::TlsUnknownCa
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ConnectionCause::TlsExpired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ConnectionCause::TlsNotYetValid
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ConnectionCause::TlsOtherHost
        }
        CertificateError::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
            Some(webpki::Error::CaUsedAsEndEntity) => ConnectionCause::TlsCaAsServer,
            _ => ConnectionCause::Tls,
        },
        _ => ConnectionCause::Tls,
    }
}

/// The word of a cause in the record.
struct Word(ConnectionCause);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.serialize(f)
    }
}

impl From<&ConnectionFailure> for Connection {
    fn from(failure: &ConnectionFailure) -> Self {
        Self {
            cause: Word(failure.cause).to_string().into(),
            address: failure.address.clone(),
        }
    }
}

impl fmt::Display for ConnectionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionCause::Refused => "connection refused",
            ConnectionCause::NameNotFound => "the name does not resolve",
            ConnectionCause::NameServer => "no name server resolves the name",
            ConnectionCause::AddressRefused => "the host leads to an address that is not dialled",
            ConnectionCause::TimedOut => "timed out",
            ConnectionCause::TlsNotSpoken => "the port does not speak TLS",
            ConnectionCause::TlsUnknownCa => "no trusted CA signed the server's certificate",
            ConnectionCause::TlsCaAsServer => "the server's certificate is a CA certificate",
            ConnectionCause::TlsExpired => "the server's certificate has expired",
            ConnectionCause::TlsNotYetValid => "the server's certificate is not yet valid",
            ConnectionCause::TlsOtherHost => "the server's certificate is for another host",
            ConnectionCause::Tls => "TLS failed",
            ConnectionCause::Reset => "the connection broke off",
            ConnectionCause::NoRoute => "no route to the host",
            ConnectionCause::Other => "the connection failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_tls_failure_has_its_cause() {
        let ca_as_server = rustls::OtherError(Arc::new(webpki::Error::CaUsedAsEndEntity));
        let cases: [(rustls::Error, ConnectionCause); 9] = [
            (
                InvalidMessage::InvalidContentType.into(),
                ConnectionCause::TlsNotSpoken,
            ),
            (
                CertificateError::UnknownIssuer.into(),
                ConnectionCause::TlsUnknownCa,
            ),
            (
                CertificateError::BadSignature.into(),
                ConnectionCause::TlsUnknownCa,
            ),
            (
                CertificateError::Other(ca_as_server).into(),
                ConnectionCause::TlsCaAsServer,
            ),
            (
                CertificateError::Expired.into(),
                ConnectionCause::TlsExpired,
            ),
            (
                CertificateError::NotValidYet.into(),
                ConnectionCause::TlsNotYetValid,
            ),
            (
                CertificateError::NotValidForName.into(),
                ConnectionCause::TlsOtherHost,
            ),
            (CertificateError::Revoked.into(), ConnectionCause::Tls),
            (rustls::Error::DecryptError, ConnectionCause::Tls),
        ];
        for (error, cause) in cases {
            assert_eq!(ConnectionCause::of(&error), Some(cause), "{error}");
            // The HTTP client passes it on inside an error of the system.
            let outer = io::Error::new(ErrorKind::InvalidData, error);
            assert_eq!(ConnectionCause::of(&outer), Some(cause), "{outer}");
        }
    }

    #[test]
    fn another_error_has_no_cause() {
        assert_eq!(ConnectionCause::of(&fmt::Error), None);
        assert_eq!(ConnectionCause::of(&io::Error::other("full")), None);
    }
}
