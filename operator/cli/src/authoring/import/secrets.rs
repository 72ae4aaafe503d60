//! The Secrets that the objects refer to, with their values only on request.

use std::collections::BTreeMap;

use serde_json::json;
use toolcrib_compile::names;

use crate::print::Document;

use super::SecretValues;
use super::finding::Findings;
use super::pod::LineValue;
use super::variables::{Template, Values};

#[derive(Default)]
pub struct Secrets(BTreeMap<String, Entry>);

#[derive(Default)]
struct Entry {
    /// The host to which mediators may send it. `None`: no mediator gets it.
    host: Option<String>,
    keys: BTreeMap<String, LineValue<Template>>,
}

impl Secrets {
    /// Adds a credential that a mediator sends to `host`. Without a template, its value is the
    /// variable named like the key.
    pub fn credential(
        &mut self,
        secret: &str,
        host: &str,
        key: &str,
        value: Option<&LineValue<Template>>,
    ) {
        let entry = self.0.entry(secret.to_owned()).or_default();
        entry.host = Some(host.to_owned());
        let value = value
            .cloned()
            .unwrap_or_else(|| LineValue::new(0, Template::variable(&variable_name(secret, key))));
        entry.keys.entry(key.to_owned()).or_insert(value);
    }

    /// Adds a value that a container reads from its environment.
    pub fn environment(&mut self, secret: &str, key: &str, value: &LineValue<Template>) {
        let entry = self.0.entry(secret.to_owned()).or_default();
        entry.keys.entry(key.to_owned()).or_insert(value.clone());
    }

    pub fn has(&self, secret: &str, key: &str) -> bool {
        self.0
            .get(secret)
            .is_some_and(|entry| entry.keys.contains_key(key))
    }

    pub fn documents(
        &self,
        namespace: &str,
        values: &Values,
        wanted: SecretValues,
        found: &mut Findings,
    ) -> Vec<Document> {
        self.0
            .iter()
            .map(|(name, entry)| {
                let data: BTreeMap<&String, String> = entry
                    .keys
                    .iter()
                    .map(|(key, template)| (key, text(template, name, values, wanted, found)))
                    .collect();
                let mut metadata = json!({"name": name, "namespace": namespace});
                let comment = match &entry.host {
                    Some(host) => {
                        metadata["labels"] = json!({names::CREDENTIAL_LABEL: names::TRUE});
                        metadata["annotations"] = json!({names::HOSTS_ANNOTATION: host});
                        format!("Mediators send this to {host} and nowhere else.")
                    }
                    None => "For a container's environment; no mediator sends this.".to_owned(),
                };
                Document::new(json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": metadata,
                    "stringData": data,
                }))
                .with_comment(comment)
            })
            .collect()
    }
}

fn text(
    template: &LineValue<Template>,
    secret: &str,
    values: &Values,
    wanted: SecretValues,
    found: &mut Findings,
) -> String {
    match wanted {
        SecretValues::Placeholders => template.value.to_string(),
        SecretValues::Written => match template.value.filled(values) {
            Ok(value) => value.expose().to_owned(),
            Err(variable) => {
                found.error(
                    template.line,
                    format!("{variable} has no value in the .env file, so Secret {secret} is not complete: add it there"),
                );
                template.value.to_string()
            }
        },
    }
}

/// Returns a variable's name for a key. It has the Secret's name too, since two surfaces with a
/// key such as `token` must not share a variable.
fn variable_name(secret: &str, key: &str) -> String {
    let is_variable = key
        .chars()
        .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    if is_variable {
        return key.to_owned();
    }
    let whole = format!("{secret}_{key}").to_ascii_uppercase();
    whole
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}
