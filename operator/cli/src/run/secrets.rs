//! Credentials from the command line, as if their Secrets stood among the files.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use toolcrib_compile::{
    Kind, Loaded, ObjectRef, Presence, SecretFacts, SecretKeyRef, Subject, allowlist,
    credential_value,
};
use toolcrib_manifest::SecretText;

use crate::args::{SecretFrom, ValueFrom};

pub type Values = BTreeMap<SecretKeyRef, SecretText>;

/// Reads the values. A Secret that is not in the files becomes one that may be sent wherever
/// the files send it: whoever holds the value on this machine has said so. One that is in the
/// files keeps its own label and annotations, and only its value is replaced.
pub fn add(loaded: &mut Loaded, given: &[SecretFrom]) -> anyhow::Result<()> {
    let mut keys: BTreeMap<ObjectRef, BTreeSet<String>> = BTreeMap::new();
    for secret in given {
        let reference = &secret.reference;
        loaded.secrets.insert(reference.clone(), read(secret)?);
        keys.entry(reference.secret.clone())
            .or_default()
            .insert(reference.key.clone());
    }
    let allowlist = allowlist(&loaded.inputs);
    for (secret, keys) in keys {
        if loaded
            .origins
            .contains_key(&Subject::new(Kind::Secret, &secret))
        {
            continue;
        }
        let facts = SecretFacts {
            labelled: true,
            allowlist: allowlist.clone(),
            keys: Some(keys),
            uid: String::new(),
            resource_version: String::new(),
        };
        loaded.inputs.set_secret(secret, Presence::Present(facts));
    }
    Ok(())
}

fn read(secret: &SecretFrom) -> anyhow::Result<SecretText> {
    let reference = &secret.reference;
    let bytes = match &secret.value {
        ValueFrom::Variable(name) => std::env::var(name)
            .with_context(|| format!("--secret {reference}: variable {name}"))?
            .into_bytes(),
        ValueFrom::File(path) => std::fs::read(path)
            .with_context(|| format!("--secret {reference}: {}", path.display()))?,
    };
    let value = credential_value(bytes)
        .with_context(|| format!("--secret {reference}: the value is no text"))?;
    anyhow::ensure!(
        !value.expose().is_empty(),
        "--secret {reference}: the value is empty"
    );
    Ok(value)
}
