//! Connections, credentials and current secrets for the clients of a context.
//!
//! Not here: the requests that a client can make ([`crate::outbound::tools::client`]).

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use toolcrib_manifest::{Auth, ServiceSettings};
use toolcrib_mediation::{Certainty, ResultCode, Scrubber, ToolFailure};
use url::Url;

use super::credential::{Credential, CredentialError, credential};
use super::granted::GrantedTool;
use super::oauth::{AccessToken, Tokens};
use crate::config::CurrentConfig;
use crate::outbound::tools::unanswered;
use crate::outbound::transport::{Destination, Transport};
use crate::outbound::{Outbound, OutboundError, error};

/// Connections and credentials for the calls of tools. Only a client of [`crate::outbound::tools::client`] and the
/// requests that it made hold one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Services<'a> {
    pub(super) outbound: &'a Outbound,
    pub(super) tokens: &'a Tokens,
    /// Its scrubber is read after the answer has arrived, since it then knows this call's token.
    pub(super) current: &'a CurrentConfig,
}

impl Services<'_> {
    /// The base URL of the tool's MCP server, and the client for it.
    pub(super) fn connections(
        self,
        tool: &GrantedTool,
    ) -> Result<(Arc<Destination>, reqwest::Client), ToolFailure> {
        self.connect(tool, Outbound::towards_service)
    }

    /// The base URL of the tool's HTTP service, and the transport to it.
    pub(super) fn transport(
        self,
        tool: &GrantedTool,
    ) -> Result<(Arc<Destination>, Transport), ToolFailure> {
        self.connect(tool, Outbound::transport_to_service)
    }

    fn connect<C>(
        self,
        tool: &GrantedTool,
        towards: impl Fn(&Outbound, &Url, Option<&ServiceSettings>) -> Result<C, OutboundError>,
    ) -> Result<(Arc<Destination>, C), ToolFailure> {
        let to = self.outbound.url(&tool.entry().execution.base_url);
        let to = to.map_err(|_| tool.unusable("its address is no URL"))?;
        let client = towards(self.outbound, &to.url, tool.settings());
        let client = client.map_err(|error| match error {
            OutboundError::AddressRefused(connection) => {
                let failure = ToolFailure::unreachable(tool.name());
                unanswered(tool.name(), failure, connection)
            }
            OutboundError::Ca(_) | OutboundError::Proxy | OutboundError::Build(_) => {
                tracing::error!(
                    tool = tool.name(),
                    error = error.to_string(),
                    "HTTP client not created, tool withheld"
                );
                tool.unusable("its transport settings cannot be used")
            }
        })?;
        Ok((to, client))
    }

    pub(super) fn scrubber(self) -> Arc<Scrubber> {
        self.current.scrubber()
    }

    /// The tool's current credential. Stops waiting for a token at `deadline`.
    pub(super) async fn credential(
        self,
        tool: &GrantedTool,
        deadline: Instant,
    ) -> Result<Option<Credential>, ToolFailure> {
        let Some(auth) = &tool.entry().execution.auth else {
            return Ok(None);
        };
        let found = credential(auth, tool.settings(), self.tokens);
        let Ok(found) = timeout_at(deadline, found).await else {
            // Nothing has been sent to the service yet.
            let failure = ToolFailure::new(
                ResultCode::Timeout,
                Certainty::Unreached,
                format!(
                    "{} was not called: its credential did not come in time",
                    tool.name()
                ),
            );
            return Err(without_token(tool, auth, failure));
        };
        found.map(Some).map_err(|error| {
            let (code, certainty) = match error {
                CredentialError::Header(_) => (ResultCode::UnsupportedTool, Certainty::NeverRan),
                CredentialError::Token(ref error) if error.is_transient() => {
                    (ResultCode::RequestFailed, Certainty::Unreached)
                }
                CredentialError::Token(_) => (ResultCode::RequestFailed, Certainty::NeverRan),
            };
            let failure = ToolFailure::new(
                code,
                certainty,
                format!("{} was not called: {error}", tool.name()),
            );
            match error.connection() {
                Some(connection) => failure.because(connection.clone()),
                None => failure,
            }
        })
    }

    /// Handles a 401 to the token. `Some`: trying again can help, since the next call gets another
    /// token.
    pub(super) fn refused(self, name: &str, token: &AccessToken) -> Option<ToolFailure> {
        self.tokens.forget(token);
        token.reused.then(|| {
            ToolFailure::new(
                ResultCode::Http(401),
                Certainty::Transient,
                format!("{name} did not take the access token; the next call brings a new one"),
            )
        })
    }
}

/// Logs that a token's issuer did not answer in time, and adds it to `failure` for the record. Only
/// tokens are waited for.
fn without_token(tool: &GrantedTool, auth: &Auth, failure: ToolFailure) -> ToolFailure {
    let Auth::Oauth { token_url, .. } = auth else {
        return failure;
    };
    let connection = error::timed_out(token_url);
    tracing::warn!(
        tool = tool.name(),
        cause = connection.cause.with_advice(),
        address = connection.address,
        "token issuer did not answer in time"
    );
    failure.because(connection)
}
