//! ModelProviders: from `cllama-env`, from the models that agents name, or from `--provider`.

use std::collections::BTreeMap;

use serde_json::json;

use super::Translation;
use super::requests::AgentRequest;
use crate::authoring::import::finding::{Cause, Weight};
use crate::authoring::import::pod::{LineValue, Models};
use crate::authoring::import::providers::KnownProvider;
use crate::authoring::import::variables::Template;
use crate::print::Document;

impl Translation<'_> {
    pub(super) fn providers(&mut self, requests: &[AgentRequest<'_>]) -> Vec<Document> {
        let mut wanted: BTreeMap<KnownProvider, Option<LineValue<Template>>> = BTreeMap::new();
        let pod = self.pod;
        let env = requests
            .iter()
            .filter_map(|request| request.service.agent.as_ref())
            .flat_map(|agent| &agent.requests.cllama_env)
            .chain(&pod.defaults.cllama_env);
        for (variable, value) in env {
            match KnownProvider::by_variable(variable) {
                Some(provider) => {
                    wanted
                        .entry(provider)
                        .or_default()
                        .get_or_insert_with(|| value.clone());
                }
                None => self.found.warning(
                    value.line,
                    format!("cllama-env: {variable} is not translated: it is not a known provider's key; write a ModelProvider by hand if it is one"),
                ),
            }
        }
        for request in requests {
            for reference in request.models.iter().flat_map(refs) {
                let name = reference.split('/').next().unwrap_or_default();
                match KnownProvider::by_name(name) {
                    _ if self.given.existing.providers.contains(name) => {}
                    Some(provider) => {
                        wanted.entry(provider).or_default();
                    }
                    None if !reference.contains('/') => self.found.error_once(
                        request.line,
                        format!("the model {reference} names no provider: write PROVIDER/MODEL, such as openai/{reference}"),
                        Cause::Provider(name.to_owned()),
                    ),
                    None => self.found.error_once(
                        request.line,
                        format!("the provider {name} of model {reference} is not known: write a ModelProvider of that name and give it with -f"),
                        Cause::Provider(name.to_owned()),
                    ),
                }
            }
        }
        for provider in &self.given.providers {
            wanted.entry(*provider).or_default();
        }
        if wanted.is_empty() && self.given.existing.providers.is_empty() {
            for provider in KnownProvider::ALL {
                if self.given.values.contains_key(provider.variable()) {
                    self.found.note(
                        0,
                        format!(
                            "the model provider is {}, since the .env file has {}",
                            provider.name(),
                            provider.variable()
                        ),
                    );
                    wanted.insert(provider, None);
                }
            }
        }
        let causes = self.found.causes();
        let is_said = causes.iter().any(|it| matches!(it, Cause::Provider(_)));
        let is_none = wanted.is_empty() && self.given.existing.providers.is_empty();
        if is_none && !is_said && !requests.is_empty() {
            self.found.add_cause(
                0,
                Weight::Note,
                "no model provider is named: give --provider, or cllama-env in the file, or an .env file with its key",
                Cause::AnyProvider,
            );
        }
        wanted
            .into_iter()
            .filter(|(provider, _)| !self.given.existing.providers.contains(provider.name()))
            .map(|(provider, value)| {
                let secret = format!("{}-key", provider.name());
                self.secrets.credential(
                    &secret,
                    provider.host(),
                    provider.variable(),
                    value.as_ref(),
                );
                let spec = json!({
                    "endpoints": provider.endpoints(),
                    "apiKeys": [{"secretKeyRef": {"name": secret, "key": provider.variable()}}],
                });
                Document::new(self.object("ModelProvider", provider.name(), spec))
            })
            .collect()
    }
}

pub(super) fn refs(models: &Models) -> impl Iterator<Item = &String> {
    models
        .primary
        .iter()
        .chain(&models.fallbacks)
        .chain(&models.others)
}
