//! The token of those who may call, where there is one: a file that holds nothing else.
//!
//! It is read with each request, so that another one in its place counts at once. One that
//! cannot be used lets nobody in.

use std::path::PathBuf;
use std::{fs, io};

use http::HeaderMap;
use thiserror::Error;
use toolcrib_sidecar::config::identity;

/// A shorter one could be guessed: whoever reaches the port may try.
const SHORTEST: usize = 16;

#[derive(Debug, Error)]
pub enum TokenError {
    #[error("the file of the token cannot be read")]
    Unreadable(#[from] io::Error),
    #[error(
        "the file of the token holds fewer than {SHORTEST} characters: make it with `openssl rand -hex 32`"
    )]
    Short,
    #[error(
        "the file of the token holds a placeholder: put the token in its place, as with envsubst"
    )]
    Placeholder,
}

#[derive(Debug)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// One that can be used now.
    pub fn new(path: PathBuf) -> Result<Self, TokenError> {
        let file = Self(path);
        file.token()?;
        Ok(file)
    }

    pub fn lets_in(&self, headers: &HeaderMap) -> bool {
        match self.token() {
            Ok(token) => identity::presents(headers, token.as_bytes()),
            Err(error) => {
                tracing::error!(error = error.to_string(), "nobody is let in");
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
