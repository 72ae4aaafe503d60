//! Causes of a failed connection to a service or a provider, in words for the record.

use std::fmt;

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
