//! Reads the credential for a registry from a docker config's `auths`. Credential helpers are not
//! started, since that would run a program that a file names.
//!
//! Invariant: no error shows a part of the file's values.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    #[error("is not a docker config: line {line}, column {column}")]
    Config { line: usize, column: usize },
    #[error(
        "leaves the credential of {registry} to the helper {helper}, which is not started: name a config that has it in `auths` with --docker-config"
    )]
    Helper { registry: String, helper: String },
    #[error("has a credential of {0} that is no `auth` of user and password")]
    Form(String),
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    auths: BTreeMap<String, Entry>,
    creds_store: Option<String>,
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    /// Base64 of `user:password`.
    auth: Option<String>,
    identitytoken: Option<String>,
}

/// Returns the registry's credential; anonymous if the config does not mention the registry.
pub fn credential(config: &str, registry: &str) -> Result<RegistryAuth, CredentialError> {
    // The error of serde_json may quote a value.
    let config: Config = serde_json::from_str(config).map_err(|error| CredentialError::Config {
        line: error.line(),
        column: error.column(),
    })?;
    let left_to = |helper: &String| CredentialError::Helper {
        registry: registry.to_owned(),
        helper: helper.clone(),
    };
    let wanted = host(registry);
    if let Some((_, helper)) = config
        .cred_helpers
        .iter()
        .find(|(of, _)| host(of) == wanted)
    {
        return Err(left_to(helper));
    }
    let Some((_, entry)) = config.auths.iter().find(|(of, _)| host(of) == wanted) else {
        return Ok(RegistryAuth::Anonymous);
    };
    match (&entry.auth, &entry.identitytoken, &config.creds_store) {
        (Some(auth), None, _) if !auth.is_empty() => {
            basic(auth).ok_or_else(|| CredentialError::Form(registry.to_owned()))
        }
        // An entry without a value means that the helper holds it.
        (_, None, Some(helper)) => Err(left_to(helper)),
        _ => Err(CredentialError::Form(registry.to_owned())),
    }
}

fn basic(auth: &str) -> Option<RegistryAuth> {
    let text = String::from_utf8(STANDARD.decode(auth).ok()?).ok()?;
    let (user, password) = text.trim_end_matches('\0').split_once(':')?;
    Some(RegistryAuth::Basic(user.to_owned(), password.to_owned()))
}

/// Removes the scheme and path: Docker writes its own registry as a URL, and others did too.
fn host(registry: &str) -> &str {
    let (_, rest) = registry.split_once("://").unwrap_or(("", registry));
    match rest.split('/').next().unwrap_or(rest) {
        "docker.io" | "registry-1.docker.io" => "index.docker.io",
        host => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `b3R0ZXI6ZmlzaDpib25l` decodes to otter:fish:bone.
    const CONFIG: &str = r#"{
        "auths": {
            "https://index.docker.io/v1/": {"auth": "b3R0ZXI6ZmlzaDpib25l"},
            "pond.test:5000": {"auth": "aGVyb246ZnJvZw=="},
            "lake.test": {},
            "sea.test": {"auth": "", "identitytoken": "secret-7"},
            "bog.test": {"auth": "secret-8"}
        },
        "credsStore": "desktop",
        "credHelpers": {"cloud.test": "cloud"}
    }"#;

    fn basic(user: &str, password: &str) -> Result<RegistryAuth, CredentialError> {
        Ok(RegistryAuth::Basic(user.into(), password.into()))
    }

    #[test]
    fn a_registry_has_its_own_credential() {
        assert_eq!(credential(CONFIG, "docker.io"), basic("otter", "fish:bone"));
        assert_eq!(credential(CONFIG, "pond.test:5000"), basic("heron", "frog"));
        for other in ["pond.test", "test:5000", "x.pond.test:5000"] {
            assert_eq!(
                credential(CONFIG, other),
                Ok(RegistryAuth::Anonymous),
                "{other}"
            );
        }
        assert_eq!(credential("{}", "pond.test"), Ok(RegistryAuth::Anonymous));
    }

    #[test]
    fn unusable_credentials_are_reported_without_a_value() {
        let message = |registry: &str| credential(CONFIG, registry).unwrap_err().to_string();
        assert!(message("cloud.test").contains("helper cloud"));
        assert!(message("lake.test").contains("helper desktop"));
        assert!(message("sea.test").contains("no `auth`"));
        assert!(message("bog.test").contains("no `auth`"));
        let all = ["sea.test", "bog.test"].map(message).concat();
        assert!(!all.contains("secret"), "{all}");
        let broken = credential(r#"{"auths": "secret-9"}"#, "pond.test").unwrap_err();
        assert_eq!(
            broken.to_string(),
            "is not a docker config: line 1, column 20"
        );
    }
}
