//! The token that clients must present, if one is required. Its file contains nothing else.
//!
//! The file is read at each request, so a new token is valid at once. While the file is unusable,
//! every request is refused.

use std::path::PathBuf;
use std::{fs, io};

use http::HeaderMap;
use thiserror::Error;
use toolcrib_sidecar::config::identity;

/// Minimum length of the token, in bytes. A shorter one could be guessed: every client that reaches
/// the port may try.
const SHORTEST: usize = 16;

#[derive(Debug, Error)]
pub enum TokenError {
    #[error("the token file cannot be read")]
    Unreadable(#[from] io::Error),
    #[error(
        "the token file has fewer than {SHORTEST} characters: make it with `openssl rand -hex 32`"
    )]
    Short,
    #[error(
        "the token file has a placeholder: put the token into the Secret that is mounted as this file, for example with envsubst"
    )]
    Placeholder,
}

#[derive(Debug)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// Checks that the file contains a usable token now.
    pub fn new(path: PathBuf) -> Result<Self, TokenError> {
        let file = Self(path);
        file.token()?;
        Ok(file)
    }

    pub fn accepts(&self, headers: &HeaderMap) -> bool {
        match self.token() {
            Ok(token) => identity::presents(headers, token.as_bytes()),
            Err(error) => {
                tracing::error!(
                    error = error.to_string(),
                    "token file not usable, request refused"
                );
                false
            }
        }
    }

    fn token(&self) -> Result<String, TokenError> {
        let text = fs::read_to_string(&self.0)?;
        let token = text.trim_end_matches(['\r', '\n']);
        if token.starts_with("${") {
            return Err(TokenError::Placeholder);
        }
        if token.len() < SHORTEST {
            return Err(TokenError::Short);
        }
        Ok(token.to_owned())
    }
}
