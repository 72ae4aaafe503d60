//! Credentials from the command line, as if their Secrets stood among the files.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use toolcrib_compile::{
    Inputs, Kind, Loaded, ObjectRef, Presence, SecretFacts, SecretKeyRef, Subject,
};
use toolcrib_manifest::SecretText;
use url::Url;

use crate::args::{SecretFrom, ValueFrom};

pub type Values = BTreeMap<SecretKeyRef, SecretText>;

/// Reads the values. A Secret that is not in the files becomes one that may be sent wherever
/// the files send it: whoever holds the value on this machine has said so. One that is in the
/// files keeps its own label and hosts, and only its value is replaced.
pub fn add(loaded: &mut Loaded, given: &[SecretFrom]) -> anyhow::Result<()> {
    let mut keys: BTreeMap<ObjectRef, BTreeSet<String>> = BTreeMap::new();
    for secret in given {
        let reference = &secret.reference;
        loaded.secrets.insert(reference.clone(), read(secret)?);
        keys.entry(reference.secret.clone())
            .or_default()
            .insert(reference.key.clone());
    }
    let hosts = hosts(&loaded.inputs);
    for (secret, keys) in keys {
        if loaded
            .origins
            .contains_key(&Subject::new(Kind::Secret, &secret))
        {
            continue;
        }
        let facts = SecretFacts {
            labelled: true,
            hosts: hosts.clone(),
            keys: Some(keys),
            uid: String::new(),
            resource_version: String::new(),
        };
        loaded.inputs.set_secret(secret, Presence::Present(facts));
    }
    Ok(())
}

fn read(secret: &SecretFrom) -> anyhow::Result<SecretText> {
    let text = match &secret.value {
        ValueFrom::Variable(name) => std::env::var(name)
            .with_context(|| format!("--secret {}: variable {name}", secret.reference))?,
        ValueFrom::File(path) => std::fs::read_to_string(path)
            .with_context(|| format!("--secret {}: {}", secret.reference, path.display()))?,
    };
    let text = text.strip_suffix('\n').unwrap_or(&text);
    anyhow::ensure!(
        !text.is_empty(),
        "--secret {}: the value is empty",
        secret.reference
    );
    Ok(SecretText::new(text))
}

/// Every host that a surface or provider of the files is at, as a Secret's annotation would
/// name it.
fn hosts(inputs: &Inputs) -> BTreeSet<String> {
    let of_url = |url: &str| Some(Url::parse(url).ok()?.host_str()?.to_ascii_lowercase());
    let surfaces = inputs.surfaces().filter_map(|(key, surface)| {
        match (&surface.spec.service, &surface.spec.url) {
            (Some(service), _) => Some(format!("{}.{}.svc", service.name, key.namespace)),
            (None, Some(url)) => of_url(url),
            (None, None) => None,
        }
    });
    let providers = inputs
        .providers()
        .flat_map(|(_, provider)| &provider.spec.endpoints)
        .filter_map(|endpoint| of_url(&endpoint.url));
    surfaces.chain(providers).collect()
}
