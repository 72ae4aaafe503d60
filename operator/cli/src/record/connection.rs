//! A connection that failed, as a record has it, in words.

use std::fmt;

use serde::de::IntoDeserializer;
use serde::de::value::Error;
use serde::{Deserialize, Serialize};
use toolcrib_bounds::cut;
use toolcrib_mediation::ConnectionCause;
use toolcrib_record::Connection;

use super::MAX_NAME;
use crate::print;

/// A connection to a service or a provider that failed. Displays `connection refused at ADDRESS`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedConnection {
    /// The word of a [`ConnectionCause`], or of one that a newer mediator knows.
    pub cause: String,
    /// `scheme://host:port`.
    pub address: String,
}

impl FailedConnection {
    pub fn of(connection: &Connection) -> Self {
        let Connection { cause, address } = connection;
        Self {
            cause: cut(cause, MAX_NAME).into_owned(),
            address: cut(address, MAX_NAME).into_owned(),
        }
    }

    /// The cause; `None` if a newer mediator wrote it.
    pub fn known_cause(&self) -> Option<ConnectionCause> {
        let word = IntoDeserializer::<Error>::into_deserializer(&*self.cause);
        ConnectionCause::deserialize(word).ok()
    }
}

impl fmt::Display for FailedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = print::plain(&self.address);
        match self.known_cause() {
            Some(cause) => write!(f, "{cause} at {address}"),
            None => write!(f, "{} at {address}", print::plain(&self.cause)),
        }
    }
}
