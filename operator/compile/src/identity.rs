//! The runner's bearer token: its form, and the list of valid tokens for the mediator.
//!
//! Randomness is an argument; the controller stores the token in a Secret.

use std::collections::BTreeMap;

use toolcrib_manifest::{RunnerToken, SecretText};

use crate::canonical::digest::sha256;
use crate::names::{PREVIOUS_TOKEN_PREFIX, TOKEN_KEY};

/// Makes a token from 32 random bytes: `agent:secret`.
pub fn token(agent: &str, random: [u8; 32]) -> SecretText {
    SecretText::new(format!("{agent}:{}", hex::encode(random)))
}

/// Returns the valid tokens in the data of the identity Secret: `token` and every `previous-N`. The
/// ids are the keys. An empty value is not a token.
pub fn runner_tokens(data: &BTreeMap<String, SecretText>) -> Vec<RunnerToken> {
    data.iter()
        .filter(|(key, _)| *key == TOKEN_KEY || key.starts_with(PREVIOUS_TOKEN_PREFIX))
        .filter(|(_, value)| !value.expose().is_empty())
        .map(|(key, value)| RunnerToken {
            id: key.clone(),
            sha256: sha256(value.expose().as_bytes()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_current_and_previous_tokens_are_valid() {
        let data = [
            ("token", "otter:11"),
            ("previous-1", "otter:22"),
            ("previous-2", ""),
            ("note", "otter:33"),
        ]
        .map(|(key, value)| (key.to_owned(), SecretText::new(value)))
        .into();
        let ids: Vec<String> = runner_tokens(&data)
            .into_iter()
            .map(|token| token.id)
            .collect();
        assert_eq!(ids, ["previous-1", "token"]);
    }

    #[test]
    fn the_digest_covers_the_whole_token() {
        let token = token("otter", [7; 32]);
        assert!(token.expose().starts_with("otter:0707"));
        let data = BTreeMap::from([(TOKEN_KEY.to_owned(), token.clone())]);
        assert_eq!(
            runner_tokens(&data)[0].sha256,
            sha256(token.expose().as_bytes())
        );
    }
}
