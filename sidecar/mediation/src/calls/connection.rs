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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The server's answer is no HTTP.
    NotHttp,
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

    /// Returns the cause that an error of the HTTP library shows: by whether the answer ended early,
    /// and whether it could not be parsed.
    pub fn of_http(is_incomplete: bool, is_unparsable: bool) -> Option<Self> {
        match (is_incomplete, is_unparsable) {
            (true, _) => Some(Self::Reset),
            (false, true) => Some(Self::NotHttp),
            (false, false) => None,
        }
    }

    /// What the user can do about it, for a server that is called from a pod.
    pub fn advice(self) -> &'static str {
        match self {
            ConnectionCause::Refused => "check that the server runs and listens at this port",
            ConnectionCause::NameNotFound => {
                "check the host's spelling; a Service of another namespace is NAME.NAMESPACE.svc"
            }
            ConnectionCause::NameServer => {
                "check that the cluster's DNS runs; the chart's value dns.nameServers names it"
            }
            ConnectionCause::AddressRefused => {
                "name a Service or a public host; loopback, link-local and metadata addresses are never dialled"
            }
            ConnectionCause::TimedOut => {
                "check that the server runs, and whether a NetworkPolicy or a firewall stops the connection"
            }
            ConnectionCause::TlsNotSpoken => {
                "write http:// for a server without TLS, or name its port with TLS"
            }
            ConnectionCause::TlsUnknownCa => {
                "name the CA in caFrom of the Surface or ModelProvider"
            }
            ConnectionCause::TlsCaAsServer => {
                "give the server a certificate that its CA signed, and name the CA in caFrom"
            }
            ConnectionCause::TlsExpired => "renew the server's certificate",
            ConnectionCause::TlsNotYetValid => "check the clocks of the server and of the node",
            ConnectionCause::TlsOtherHost => {
                "call the server by a name in its certificate, or give it a certificate for this host"
            }
            ConnectionCause::Tls => {
                "check that the server speaks TLS 1.2 or 1.3; its log may say more"
            }
            ConnectionCause::Reset => "see the log of the server, which closed the connection",
            ConnectionCause::NotHttp => {
                "check the port, since a server of another protocol listens there"
            }
            ConnectionCause::NoRoute => "check the address, and the routes of the node",
            ConnectionCause::Other => "see the server's log",
        }
    }

    /// The cause and the advice, for the log and the status.
    pub fn with_advice(self) -> String {
        format!("{self}: {}", self.advice())
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
            ConnectionCause::NotHttp => "the server does not speak HTTP",
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
