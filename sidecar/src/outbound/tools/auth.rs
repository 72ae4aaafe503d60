//! A service's credential as a header. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use thiserror::Error;
use toolcrib_bounds::headers::may_be_credential;
use toolcrib_manifest::{Auth, SecretText};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AuthError {
    #[error("there is no credential")]
    Missing,
    #[error("the credential has characters that a header cannot contain")]
    Unsendable,
    #[error("the credential's header is not allowed for a credential")]
    RefusedHeader,
    #[error("the credential must be exchanged for a token first")]
    NeedsToken,
}

/// Makes the authentication header for all forms of credentials except access tokens.
pub fn header(auth: &Auth) -> Result<(HeaderName, HeaderValue), AuthError> {
    let (name, text) = match auth {
        Auth::Bearer { token, .. } => (AUTHORIZATION, format!("Bearer {}", expose(token)?)),
        Auth::Header { header, token, .. } => (named(header)?, expose(token)?.to_string()),
        Auth::Basic {
            username, password, ..
        } => {
            let value = basic(username.expose(), expose(password)?)?;
            return Ok((AUTHORIZATION, value));
        }
        Auth::Oauth { .. } => return Err(AuthError::NeedsToken),
    };
    Ok((name, sensitive(&text)?))
}

/// `Basic …`.
pub fn basic(user: &str, password: &str) -> Result<HeaderValue, AuthError> {
    let pair = STANDARD.encode(format!("{user}:{password}"));
    sensitive(&format!("Basic {pair}"))
}

/// A header's value that no `Debug` prints.
pub fn sensitive(text: &str) -> Result<HeaderValue, AuthError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| AuthError::Unsendable)?;
    value.set_sensitive(true);
    Ok(value)
}

fn expose(secret: &Option<SecretText>) -> Result<&str, AuthError> {
    let secret = secret.as_ref().ok_or(AuthError::Missing)?;
    Ok(secret.expose())
}

fn named(header: &str) -> Result<HeaderName, AuthError> {
    let name: HeaderName = header.parse().map_err(|_| AuthError::RefusedHeader)?;
    if !may_be_credential(name.as_str()) {
        return Err(AuthError::RefusedHeader);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(auth: &str, expected: Result<(&str, &str), AuthError>) {
        let auth: Auth = serde_json::from_str(auth).unwrap();
        let header = header(&auth);
        let seen = header
            .as_ref()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .map_err(|error| *error);
        assert_eq!(seen, expected, "{auth:?}");
        if let Ok((_, value)) = &header {
            assert_eq!(format!("{value:?}"), "Sensitive");
        }
    }

    #[test]
    fn each_form_is_one_header() {
        check(
            r#"{"type":"bearer","token":"t-1"}"#,
            Ok(("authorization", "Bearer t-1")),
        );
        check(
            r#"{"type":"header","header":"X-Desk-Key","token":"t-2"}"#,
            Ok(("x-desk-key", "t-2")),
        );
        check(
            r#"{"type":"basic","username":"otter","password":"p:w"}"#,
            Ok(("authorization", "Basic b3R0ZXI6cDp3")),
        );
    }

    #[test]
    fn a_credential_that_is_no_header_value_is_an_error() {
        check(r#"{"type":"bearer"}"#, Err(AuthError::Missing));
        check(
            r#"{"type":"bearer","token":"a\r\nHost: b"}"#,
            Err(AuthError::Unsendable),
        );
        for name in [
            "Host",
            "transfer-encoding",
            "X-Claw-ID",
            "X-Toolcrib-A",
            "Content-Encoding",
            "Proxy-Status",
            "a b",
            "",
        ] {
            let auth = format!(r#"{{"type":"header","header":"{name}","token":"t"}}"#);
            check(&auth, Err(AuthError::RefusedHeader));
        }
        check(
            r#"{"type":"oauth","token_url":"https://x","client_id":"c","client_secret":"s"}"#,
            Err(AuthError::NeedsToken),
        );
    }
}
