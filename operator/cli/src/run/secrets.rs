//! Adds credentials from the command line to the Secrets of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;

use anyhow::Context as _;
use toolcrib_compile::{
    Compilation, Kind, LoadResult, ObjectRef, Presence, SecretFacts, SecretKeyRef, Subject,
    allowlist, credential_value,
};
use toolcrib_manifest::SecretText;

use crate::args::{RunArgs, SecretFrom, ValueFrom};
use crate::failure::Failure;
use crate::print;

pub type Values = BTreeMap<SecretKeyRef, SecretText>;

/// Reads the values. A Secret that is not in the files is added with consent to every destination
/// that the files have for it: the user who holds the value has agreed by naming it. A Secret of
/// the files keeps its label and annotations, and only gets the value.
pub fn add(loaded: &mut LoadResult, given: &[SecretFrom]) -> anyhow::Result<()> {
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

/// Prints the hosts that get a credential of the command line, and asks for consent to several:
/// the files name the hosts, and another person may have written them.
pub fn confirm(compilation: &Compilation, args: &RunArgs) -> Result<(), Failure> {
    let mut several = false;
    for secret in &args.secret {
        let reference = &secret.reference;
        let Some(source) = compilation.sources.get(reference) else {
            eprintln!("note: --secret {reference}: nothing that the agent has uses it");
            continue;
        };
        // The route also names a private CA that vouches for the hosts.
        let hosts: Vec<_> = source
            .route
            .iter()
            .filter(|part| part.contains("://"))
            .map(|host| print::plain(host))
            .collect();
        several |= hosts.len() > 1;
        eprintln!("note: --secret {reference} goes to {}", hosts.join(", "));
    }
    if !several || args.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "a credential of --secret goes to several hosts: if it may, say --yes",
        ));
    }
    match print::confirm("Send it to all of these hosts?")? {
        true => Ok(()),
        false => Err(Failure::usage("nothing was sent, and nothing started")),
    }
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
        .with_context(|| format!("--secret {reference}: the value is not text"))?;
    anyhow::ensure!(
        !value.expose().is_empty(),
        "--secret {reference}: the value is empty"
    );
    Ok(value)
}
