//! The providers that an agent's models can select, with their keys.

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_bounds::headers::HeaderPattern;
use toolcrib_crds::{ModelProvider, ProviderAuth};
use toolcrib_manifest as manifest;
use toolcrib_rules::models::may_serve;

use crate::compile::credential::{Sources, allow};
use crate::compile::effective::Effective;
use crate::compile::work::Work;
use crate::diagnostics::finding::Finding;
use crate::near::Suggestions;
use crate::routes::address::{self, Address};
use crate::routes::route::Route;
use crate::surface::read_ca;
use crate::{Code, Diagnostics, Kind, ObjectRef, Objects, SecretKeyRef, Subject};

/// The providers of one agent.
#[derive(Default)]
pub(crate) struct Providers {
    pub usable: BTreeMap<String, manifest::Provider>,
    /// The reason for which the first model or provider that the agent asks for is not served.
    pub unserved: Option<String>,
}

/// Returns the usable providers of the agent's namespace that its models can select. `denied`: the
/// reason for which policies allow no model, if they allow none.
pub(crate) fn providers(
    objects: &dyn Objects,
    agent: &ObjectRef,
    effective: &Effective,
    denied: Option<&str>,
    work: &mut Work,
) -> Providers {
    let namespace = &*agent.namespace;
    let (models, models_subject) = (effective.models.as_ref(), &effective.models_subject);
    let (sources, found) = (&mut work.sources, &mut work.found);
    let is_selected = selected(models);
    let all = objects.providers_in(namespace);
    let mut usable = BTreeMap::new();
    let mut unusable = BTreeMap::new();
    for (key, provider) in &all {
        if !is_selected(&key.name) {
            continue;
        }
        let subject = Subject::new(Kind::ModelProvider, key);
        match provider_of(objects, &subject, provider, sources, found) {
            Some(compiled) => {
                usable.insert(key.name.clone(), compiled);
            }
            // The finding reported last is the one that made it unusable.
            None => {
                if let Some(cause) = found.last_error_of(&subject) {
                    let why = cannot_be_used(key, &cause.field, &cause.message);
                    unusable.insert(key.name.clone(), why);
                }
            }
        }
    }
    let unserved = match models {
        Some(models) => {
            let why = |reference: &str, suggestions: &mut Suggestions| {
                let names = all.iter().map(|(key, _)| key.name.as_str());
                unserved(objects, namespace, reference, &unusable, names, suggestions)
            };
            check_refs(models, models_subject, denied, &usable, why, found)
        }
        None => None,
    };
    Providers {
        unserved: unserved
            .or_else(|| unusable.into_values().next())
            .or_else(|| denied.map(str::to_owned)),
        usable,
    }
}

fn cannot_be_used(provider: &ObjectRef, field: &str, why: &str) -> String {
    let subject = Subject::new(Kind::ModelProvider, provider);
    let place = if field.is_empty() { "" } else { ": " };
    format!("{subject} cannot be used: {field}{place}{why}")
}

/// Returns why no provider serves the model `reference`. `names` are the namespace's providers.
fn unserved<'a>(
    objects: &dyn Objects,
    namespace: &str,
    reference: &str,
    unusable: &BTreeMap<String, String>,
    names: impl Iterator<Item = &'a str>,
    suggestions: &mut Suggestions,
) -> String {
    let mut meant = String::new();
    if let Some((provider, model)) = reference.split_once('/') {
        if let Some(why) = unusable.get(provider) {
            return why.clone();
        }
        let key = ObjectRef::new(namespace, provider);
        if let Some(why) = objects.unusable(Kind::ModelProvider, &key) {
            return cannot_be_used(&key, "", &why.reason);
        }
        if let Some(known) = suggestions.nearest(provider, names) {
            meant = format!(" (did you mean {known}/{model}?)");
        }
    }
    format!(
        "no usable ModelProvider of the namespace serves {reference:?}{meant}: write it as provider/model, with the name of a ModelProvider"
    )
}

/// Returns a test of a provider's name: whether the agent may ask for a model of it.
pub(crate) fn selected(models: Option<&manifest::Models>) -> impl Fn(&str) -> bool {
    // Collected once: an agent may list many models, and its namespace may have many providers.
    let named: Option<BTreeSet<&str>> = models.map(|models| {
        refs(models)
            .filter_map(|(_, name)| provider_name(name))
            .collect()
    });
    let matching = models.map_or(&[][..], |models| &models.matching[..]);
    move |provider| {
        named.as_ref().is_none_or(|named| {
            named.contains(provider) || (!matching.is_empty() && may_serve(matching, provider))
        })
    }
}

fn refs(models: &manifest::Models) -> impl Iterator<Item = (String, &str)> {
    let default = models
        .default
        .iter()
        .map(|name| ("spec.models.default".to_owned(), name.as_str()));
    default
        .chain(numbered("allowed", &models.allowed))
        .chain(numbered("fallbacks", &models.fallbacks))
}

fn numbered<'a>(
    field: &'static str,
    names: &'a [String],
) -> impl Iterator<Item = (String, &'a str)> {
    names
        .iter()
        .enumerate()
        .map(move |(index, name)| (format!("spec.models.{field}[{index}]"), name.as_str()))
}

fn provider_name(reference: &str) -> Option<&str> {
    reference.split_once('/').map(|(provider, _)| provider)
}

/// Reports the models that no provider serves, and returns the reason of the first.
fn check_refs(
    models: &manifest::Models,
    subject: &Subject,
    denied: Option<&str>,
    providers: &BTreeMap<String, manifest::Provider>,
    why: impl Fn(&str, &mut Suggestions) -> String,
    found: &mut Diagnostics,
) -> Option<String> {
    if models.allowed.is_empty() && models.default.is_none() && denied.is_none() {
        found.add(
            subject,
            "spec.models",
            Code::ModelNotServed,
            "allows no model: set default or allowed, or leave models out to allow every model of the namespace's providers",
        );
    }
    let mut unserved = None;
    for (field, reference) in refs(models) {
        let provider = provider_name(reference).and_then(|name| providers.get(name));
        if provider.is_none() {
            let message = why(reference, &mut found.suggestions);
            found.add(subject, field, Code::ModelNotServed, message.clone());
            unserved.get_or_insert(message);
        }
    }
    let dialects = |reference: &str| -> Option<Vec<manifest::EndpointDialect>> {
        let provider = providers.get(provider_name(reference)?)?;
        Some(
            provider
                .endpoints
                .iter()
                .map(|endpoint| endpoint.dialect)
                .collect(),
        )
    };
    let Some(spoken) = models.default.as_deref().and_then(dialects) else {
        return unserved;
    };
    for (field, fallback) in numbered("fallbacks", &models.fallbacks) {
        let Some(other) = dialects(fallback) else {
            continue;
        };
        if !other.iter().any(|dialect| spoken.contains(dialect)) {
            found.add(
                subject,
                field,
                Code::FallbackDialectMismatch,
                format!("{fallback:?} speaks none of the default's dialects and nothing is translated: name a fallback of the same dialect"),
            );
        }
    }
    unserved
}

/// Lowers one provider. `None`: it cannot be used, and `found` says why.
pub(crate) fn provider_of(
    objects: &dyn Objects,
    subject: &Subject,
    provider: &ModelProvider,
    sources: &mut Sources,
    found: &mut Diagnostics,
) -> Option<manifest::Provider> {
    let spec = &provider.spec;
    let namespace = &subject.key.namespace;
    let mut destinations = BTreeSet::new();
    let mut endpoints = Vec::new();
    let mut wrong = Vec::new();
    for (index, endpoint) in spec.endpoints.iter().enumerate() {
        let at = format!("spec.endpoints[{index}]");
        let address = address::of_url_in(objects, namespace, &endpoint.url)
            .map_err(|finding| finding.within(&format!("{at}.url")));
        match address {
            Err(finding) => wrong.push(finding),
            Ok(address) => {
                let doubt = address::doubt(objects, namespace, &endpoint.url);
                wrong.extend(doubt.map(|doubt| doubt.within(&format!("{at}.url"))));
                destinations.insert(address.destination());
                endpoints.push(manifest::Endpoint {
                    dialect: endpoint.dialect.into(),
                    base_url: address.base_url,
                    responses: endpoint.responses == Some(true),
                });
            }
        }
    }
    let proxy_url = spec.proxy.as_deref();
    let doubt = proxy_url.and_then(|url| address::doubt(objects, namespace, url));
    wrong.extend(doubt.map(|doubt| doubt.within("spec.proxy")));
    let wrong_address = address::first_wrong(&wrong);
    for finding in wrong {
        finding.report(subject, found);
    }
    let mut findings = Vec::new();
    let ca = read_ca(objects, namespace, spec.tls.as_ref(), &mut findings);
    for finding in findings {
        finding.report(subject, found);
    }
    if let Err(finding) = &ca {
        finding.report(subject, found);
    }
    let ca = ca.ok()?;
    let proxy = match proxy(objects, namespace, provider) {
        Ok(proxy) => proxy,
        Err(finding) => {
            finding.report(subject, found);
            return None;
        }
    };
    if endpoints.is_empty() {
        return None;
    }
    let route = Route {
        destinations,
        ca: ca.as_ref().and_then(|ca| ca.private.clone()),
        proxy: proxy.as_ref().map(Address::destination),
        wrong_address,
    };
    let auth = spec.auth.unwrap_or_else(|| {
        let speaks_openai = spec
            .endpoints
            .iter()
            .any(|endpoint| endpoint.dialect == toolcrib_crds::Dialect::OpenAI);
        if speaks_openai {
            ProviderAuth::Bearer
        } else {
            ProviderAuth::XApiKey
        }
    });
    let keys = match auth {
        ProviderAuth::None => Vec::new(),
        ProviderAuth::Bearer | ProviderAuth::XApiKey => {
            let keys = keys(objects, subject, provider, &route, sources, found);
            if keys.is_empty() {
                return None;
            }
            keys
        }
    };
    Some(manifest::Provider {
        endpoints,
        auth: auth.into(),
        keys,
        pass_headers: pass_headers(subject, provider, found),
        tls: ca.map(|ca| manifest::Tls { ca: Some(ca.pem) }),
        proxy: proxy.map(|proxy| proxy.base_url),
    })
}

/// Returns the header names that can be passed on. Others are dropped: the provider works without.
fn pass_headers(
    subject: &Subject,
    provider: &ModelProvider,
    found: &mut Diagnostics,
) -> Vec<String> {
    let mut passed = Vec::new();
    for (index, name) in provider.spec.pass_headers.iter().enumerate() {
        match HeaderPattern::parse(name) {
            Some(pattern) => passed.push(pattern.as_str().to_owned()),
            None => Finding::new(
                format!("spec.passHeaders[{index}]"),
                Code::HeaderMappingRefused,
                format!(
                    "{name:?} is never passed: it is not the name or prefix of a header, or one that \
                     frames, addresses, identifies or authenticates; remove it"
                ),
            )
            .report(subject, found),
        }
    }
    passed
}

/// Returns the proxy's address. A refused address withholds the provider, because bypassing the
/// proxy would take another route than the owner chose.
fn proxy(
    objects: &dyn Objects,
    namespace: &str,
    provider: &ModelProvider,
) -> Result<Option<Address>, Finding> {
    let Some(url) = &provider.spec.proxy else {
        return Ok(None);
    };
    address::of_url_in(objects, namespace, url)
        .map(Some)
        .map_err(|finding| finding.within("spec.proxy"))
}

fn keys(
    objects: &dyn Objects,
    subject: &Subject,
    provider: &ModelProvider,
    route: &Route,
    sources: &mut Sources,
    found: &mut Diagnostics,
) -> Vec<manifest::ProviderKey> {
    if provider.spec.api_keys.is_empty() {
        found.add(
            subject,
            "spec.apiKeys",
            Code::InvalidValue,
            "is missing: name a Secret's key, or set auth: None",
        );
    }
    let mut keys: Vec<manifest::ProviderKey> = Vec::new();
    let mut ids = BTreeSet::new();
    for (index, entry) in provider.spec.api_keys.iter().enumerate() {
        let field = format!("spec.apiKeys[{index}].secretKeyRef");
        let Some(key) = &entry.secret_key_ref.key else {
            found.add(
                subject,
                format!("{field}.key"),
                Code::SecretKeyUnspecified,
                "is missing: name the Secret's key",
            );
            continue;
        };
        let secret = ObjectRef::new(
            subject.key.namespace.clone(),
            entry.secret_key_ref.name.clone(),
        );
        let reference = SecretKeyRef::new(secret, key.clone());
        let id = format!("{}/{key}", reference.secret.name);
        if ids.contains(&id) {
            found.add(
                subject,
                field,
                Code::Duplicate,
                "names the same key as an entry before: remove it",
            );
            continue;
        }
        match allow(objects, &reference, route, &field, sources) {
            Ok(()) => {
                ids.insert(id.clone());
                keys.push(manifest::ProviderKey {
                    id,
                    secret: reference.placeholder(),
                });
            }
            Err(finding) => finding.report(subject, found),
        }
    }
    keys
}
