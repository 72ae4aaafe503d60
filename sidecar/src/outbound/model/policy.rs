//! The providers that may serve a request, in order. Pure.
//!
//! A ref is `provider/model`. The model's part may contain slashes, the provider's may not. Not
//! here: the failover itself ([`crate::outbound::model::client`]).

use thiserror::Error;
use toolcrib_dialect::Dialect;
use toolcrib_manifest::{Endpoint, EndpointDialect, Provider, UnknownModel};
use toolcrib_rules::models::matches_each;

use crate::config::{EffectiveConfig, Version};

/// One provider that may serve the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub provider: String,
    /// The model's name without its provider.
    pub model: String,
    pub base_url: String,
}

impl Candidate {
    pub fn reference(&self) -> String {
        [self.provider.as_str(), "/", &self.model].concat()
    }

    /// True if `reference` is `provider/model` of this candidate.
    pub fn is(&self, reference: &str) -> bool {
        let model = reference.strip_prefix(self.provider.as_str());
        model.and_then(|it| it.strip_prefix('/')) == Some(&self.model)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    #[error(
        "no model is named, and the agent has no default; name one, or have models.default set"
    )]
    Missing,
    #[error("model `{asked}` is not allowed; allowed: {}", listed(.allowed))]
    NotAllowed { asked: String, allowed: Vec<String> },
    /// `allowed` has the globs of each policy of the cluster.
    #[error(
        "model `{asked}` is not allowed; policies of the cluster allow models that match {}",
        each(.allowed)
    )]
    NotMatching {
        asked: String,
        allowed: Vec<Vec<String>>,
    },
    /// The policy allows no model at all.
    #[error(
        "model `{asked}` cannot be served: this agent has no usable ModelProvider; \
         `kubectl describe agent {agent} --namespace {namespace}` says why"
    )]
    NoProvider {
        asked: String,
        agent: String,
        namespace: String,
    },
    /// The name has no provider, the agent has no policy, and none or several providers speak the
    /// request's dialect.
    #[error("model `{asked}` needs its provider; ask for one of: {}", .forms.join(", "))]
    Ambiguous { asked: String, forms: Vec<String> },
    /// The requested model's provider does not speak the request's dialect.
    #[error("the provider of `{0}` does not speak this API")]
    Dialect(String),
}

/// Returns the requested model first, then the fallbacks that speak the same dialect.
pub fn candidates(
    now: &EffectiveConfig,
    version: &Version,
    dialect: Dialect,
    asked: Option<&str>,
) -> Result<Vec<Candidate>, PolicyError> {
    let models = version.agent.models.as_ref();
    let reference = select(now, version, dialect, asked)?;
    let not_allowed = || not_allowed(now, version, asked.unwrap_or(&reference));
    let (name, model, found) = in_force(now, version, &reference).ok_or_else(not_allowed)?;
    let endpoint =
        endpoint(found, dialect).ok_or_else(|| PolicyError::Dialect(reference.clone()))?;
    let mut candidates = vec![candidate(name, model, endpoint)];
    for fallback in models.iter().flat_map(|models| &models.fallbacks) {
        let Some((name, model, found)) = in_force(now, version, fallback) else {
            continue;
        };
        let Some(endpoint) = self::endpoint(found, dialect) else {
            continue;
        };
        let candidate = candidate(name, model, endpoint);
        if !candidates.contains(&candidate) {
            candidates.push(candidate);
        }
    }
    Ok(candidates)
}

/// Splits a ref; `None` unless its provider and model are in force.
fn in_force<'a>(
    now: &EffectiveConfig,
    version: &'a Version,
    reference: &'a str,
) -> Option<(&'a str, &'a str, &'a Provider)> {
    let (name, model) = reference.split_once('/')?;
    let provider = version.providers.get(name)?;
    (now.provider_stands(name) && now.model_stands(reference)).then_some((name, model, provider))
}

/// Returns whether the agent may request every model of its providers that cluster policies allow.
pub fn is_open(version: &Version) -> bool {
    let models = version.agent.models.as_ref();
    models.is_none_or(|models| !models.matching.is_empty())
}

/// Returns whether an agent that lists no models may request this one now.
pub fn may_request(now: &EffectiveConfig, version: &Version, reference: &str) -> bool {
    now.model_stands(reference) && matches_each(matching(version), reference)
}

/// The models that an agent with a list may request by name, and the default.
pub fn allowed(now: &EffectiveConfig, version: &Version) -> Vec<String> {
    let Some(models) = &version.agent.models else {
        return Vec::new();
    };
    let default = models.default.iter();
    let default = default.filter(|default| !models.allowed.contains(default));
    let stands = |reference: &&String| in_force(now, version, reference).is_some();
    let named = models.allowed.iter().chain(default);
    named.filter(stands).cloned().collect()
}

/// Resolves a requested name to one ref.
fn select(
    now: &EffectiveConfig,
    version: &Version,
    dialect: Dialect,
    asked: Option<&str>,
) -> Result<String, PolicyError> {
    let models = version.agent.models.as_ref();
    let default = models.and_then(|models| models.default.as_ref());
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else {
        return default.cloned().ok_or(PolicyError::Missing);
    };
    let Some(models) = models else {
        return unrestricted(now, version, dialect, asked);
    };
    if !models.matching.is_empty() {
        return unrestricted(now, version, dialect, asked);
    }
    let known = |reference: &str| {
        models.allowed.iter().any(|allowed| allowed == reference)
            || models.default.as_deref() == Some(reference)
    };
    if known(asked) {
        return Ok(asked.to_string());
    }
    let prefixed = asked
        .split_once('/')
        .is_some_and(|(provider, _)| version.providers.contains_key(provider));
    if !prefixed {
        let mut ends = models
            .allowed
            .iter()
            .chain(models.default.as_ref())
            .filter(|reference| {
                reference
                    .split_once('/')
                    .is_some_and(|(_, model)| model == asked)
            })
            .collect::<Vec<_>>();
        ends.dedup();
        if let [only] = ends[..] {
            return Ok(only.clone());
        }
        if let (UnknownModel::Default, Some(default)) = (models.unknown, default) {
            return Ok(default.clone());
        }
    }
    Err(not_allowed(now, version, asked))
}

fn not_allowed(now: &EffectiveConfig, version: &Version, asked: &str) -> PolicyError {
    let allowed = allowed(now, version);
    if allowed.is_empty() && !version.providers.keys().any(|it| now.provider_stands(it)) {
        return no_provider(version, asked);
    }
    let matching = matching(version);
    if !matching.is_empty() {
        return PolicyError::NotMatching {
            asked: asked.to_string(),
            allowed: matching.to_vec(),
        };
    }
    PolicyError::NotAllowed {
        asked: asked.to_string(),
        allowed,
    }
}

fn no_provider(version: &Version, asked: &str) -> PolicyError {
    PolicyError::NoProvider {
        asked: asked.to_string(),
        agent: version.agent.agent.clone(),
        namespace: version.agent.namespace.clone(),
    }
}

/// Resolves a name for an agent that lists no models: it may request every model of every provider
/// that cluster policies allow. An unprefixed name goes to the only provider of the dialect that
/// may serve it.
fn unrestricted(
    now: &EffectiveConfig,
    version: &Version,
    dialect: Dialect,
    asked: &str,
) -> Result<String, PolicyError> {
    let matching = matching(version);
    let prefixed = asked
        .split_once('/')
        .is_some_and(|(provider, _)| version.providers.contains_key(provider));
    let forms: Vec<String> = if prefixed {
        vec![asked.to_string()]
    } else {
        let speaking = version
            .providers
            .iter()
            .filter(|(_, provider)| endpoint(provider, dialect).is_some());
        speaking
            .map(|(name, _)| format!("{name}/{asked}"))
            .collect()
    };
    if forms.is_empty() {
        return Err(match version.providers.is_empty() {
            true => no_provider(version, asked),
            false => PolicyError::Dialect(asked.to_string()),
        });
    }
    let left = forms.into_iter();
    let left: Vec<String> = left.filter(|it| matches_each(matching, it)).collect();
    match <[String; 1]>::try_from(left) {
        Ok([only]) => Ok(only),
        Err(left) if left.is_empty() => Err(not_allowed(now, version, asked)),
        Err(forms) => Err(PolicyError::Ambiguous {
            asked: asked.to_string(),
            forms,
        }),
    }
}

/// The lists of globs that policies of the cluster set for an agent that lists no models.
fn matching(version: &Version) -> &[Vec<String>] {
    let models = version.agent.models.as_ref();
    models.map_or(&[], |models| &models.matching)
}

fn each(lists: &[Vec<String>]) -> String {
    let lists = lists.iter().map(|globs| globs.join(", "));
    lists.collect::<Vec<_>>().join("; and ")
}

fn listed(allowed: &[String]) -> String {
    match allowed {
        [] => "none; have models.allowed of the Agent's policy name one".to_string(),
        named => named.join(", "),
    }
}

fn endpoint(provider: &Provider, dialect: Dialect) -> Option<&Endpoint> {
    provider
        .endpoints
        .iter()
        .find(|endpoint| match (dialect, endpoint.dialect) {
            (Dialect::OpenaiChat, EndpointDialect::Openai)
            | (Dialect::AnthropicMessages, EndpointDialect::Anthropic) => true,
            (Dialect::OpenaiResponses, EndpointDialect::Openai) => endpoint.responses,
            (Dialect::AnthropicMessages, EndpointDialect::Openai)
            | (Dialect::OpenaiChat | Dialect::OpenaiResponses, EndpointDialect::Anthropic) => false,
        })
}

fn candidate(provider: &str, model: &str, endpoint: &Endpoint) -> Candidate {
    Candidate {
        provider: provider.to_string(),
        model: model.to_string(),
        base_url: endpoint.trimmed_url().to_owned(),
    }
}
