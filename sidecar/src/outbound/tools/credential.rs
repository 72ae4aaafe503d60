//! The credential of a service on a request: a header, made from the secret or from a fetched
//! token.

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use thiserror::Error;
use toolcrib_manifest::{Auth, ServiceSettings};
use toolcrib_mediation::ConnectionFailure;

use super::auth::AuthError;
use super::oauth::{AccessToken, ClientCredentials, TokenError, Tokens};
use crate::outbound::tools::auth;

/// The header that authenticates one request.
#[derive(Debug)]
pub struct Credential {
    pub name: HeaderName,
    pub value: HeaderValue,
    /// The access token, if one was fetched.
    pub token: Option<AccessToken>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CredentialError {
    #[error(transparent)]
    Header(#[from] AuthError),
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl CredentialError {
    /// The failure of the connection to a token's issuer, if that is the reason.
    pub fn connection(&self) -> Option<&ConnectionFailure> {
        match self {
            CredentialError::Token(error) => error.connection(),
            CredentialError::Header(_) => None,
        }
    }
}

/// Makes the current credential. `settings` are those of the surface.
pub async fn credential(
    auth: &Auth,
    settings: Option<&ServiceSettings>,
    tokens: &Tokens,
) -> Result<Credential, CredentialError> {
    let Auth::Oauth {
        token_url,
        client_id,
        client_secret,
        file: _,
        resource,
        scopes,
    } = auth
    else {
        let (name, value) = auth::header(auth)?;
        return Ok(Credential {
            name,
            value,
            token: None,
        });
    };
    let credentials = ClientCredentials {
        token_url,
        client_id,
        client_secret: client_secret.as_ref().ok_or(AuthError::Missing)?,
        resource: resource.as_deref(),
        scopes,
    };
    let token = tokens.token(credentials, settings).await?;
    Ok(Credential {
        name: AUTHORIZATION,
        value: token.header()?,
        token: Some(token),
    })
}
