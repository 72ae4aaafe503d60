//! `providers.json`: the model providers that the agent's models can select.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::SecretText;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ProvidersOnDisk")]
pub struct ProvidersFile {
    pub providers: BTreeMap<String, Provider>,
    pub version: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ProviderOnDisk")]
pub struct Provider {
    pub auth: ProviderAuth,
    pub endpoints: Vec<Endpoint>,
    /// A pool of keys, in order of preference.
    #[serde(default)]
    pub keys: Vec<ProviderKey>,
    /// Headers of the runner that go to the provider in addition to the default ones: names in
    /// lower case, or prefixes that end in `*`. A mediator of an earlier release does not know this
    /// field and passes all headers except hop-by-hop headers and those of the runner's identity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_headers: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Base address without the dialect's resource: `…/v1` + `/chat/completions` | `/messages` |
    /// `/responses`.
    pub base_url: String,
    pub dialect: EndpointDialect,
    /// Whether an OpenAI endpoint also serves `/responses`.
    #[serde(default)]
    pub responses: bool,
}

impl Endpoint {
    /// The base address without a slash at its end.
    pub fn trimmed_url(&self) -> &str {
        self.base_url.trim_end_matches('/')
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointDialect {
    Openai,
    Anthropic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderAuth {
    Bearer,
    XApiKey,
    None,
}

/// A key of a provider. The record and the metrics name it by its id, without revealing it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderKey {
    pub id: String,
    pub secret: SecretText,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// PEM bundle that is trusted instead of the public roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

/// The short form of a provider: one endpoint, and one key or none.
#[derive(Deserialize)]
struct ShortProvider {
    base_url: String,
    dialect: EndpointDialect,
    #[serde(default = "bearer")]
    auth: ProviderAuth,
    #[serde(default)]
    api_key: Option<SecretText>,
}

/// The forms of the file: several providers by name, or the short form of one.
#[derive(Deserialize)]
#[serde(untagged)]
enum ProvidersOnDisk {
    Whole {
        version: u32,
        providers: BTreeMap<String, Provider>,
    },
    Short(ShortProvider),
}

/// The forms of one provider: the whole form, or the short form.
#[derive(Deserialize)]
#[serde(untagged)]
enum ProviderOnDisk {
    Whole {
        auth: ProviderAuth,
        endpoints: Vec<Endpoint>,
        #[serde(default)]
        keys: Vec<ProviderKey>,
        #[serde(default)]
        pass_headers: Vec<String>,
        #[serde(default)]
        proxy: Option<String>,
        #[serde(default)]
        tls: Option<Tls>,
    },
    Short(ShortProvider),
}

fn bearer() -> ProviderAuth {
    ProviderAuth::Bearer
}

impl From<ShortProvider> for Provider {
    fn from(short: ShortProvider) -> Self {
        let key = |secret| ProviderKey {
            id: "default".to_string(),
            secret,
        };
        Self {
            auth: short.auth,
            endpoints: vec![Endpoint {
                base_url: short.base_url,
                dialect: short.dialect,
                responses: false,
            }],
            keys: short.api_key.map(key).into_iter().collect(),
            pass_headers: Vec::new(),
            proxy: None,
            tls: None,
        }
    }
}

impl From<ProviderOnDisk> for Provider {
    fn from(provider: ProviderOnDisk) -> Self {
        match provider {
            ProviderOnDisk::Whole {
                auth,
                endpoints,
                keys,
                pass_headers,
                proxy,
                tls,
            } => Self {
                auth,
                endpoints,
                keys,
                pass_headers,
                proxy,
                tls,
            },
            ProviderOnDisk::Short(short) => short.into(),
        }
    }
}

impl From<ProvidersOnDisk> for ProvidersFile {
    fn from(file: ProvidersOnDisk) -> Self {
        match file {
            ProvidersOnDisk::Whole { version, providers } => Self { version, providers },
            ProvidersOnDisk::Short(short) => Self {
                version: crate::VERSION,
                providers: BTreeMap::from([("default".to_string(), short.into())]),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(file: Value) -> ProvidersFile {
        serde_json::from_value(file).expect("providers")
    }

    #[test]
    fn the_short_form_works_for_the_file_and_for_one_provider() {
        let short = json!({"base_url": "https://reef.test/v1", "dialect": "openai",
            "api_key": "never-shown"});
        let whole = json!({"auth": "bearer",
            "endpoints": [{"base_url": "https://reef.test/v1", "dialect": "openai"}],
            "keys": [{"id": "default", "secret": "never-shown"}]});
        let named = |provider: &Value| json!({"version": 1, "providers": {"default": provider}});
        assert_eq!(read(short.clone()), read(named(&whole)));
        assert_eq!(read(named(&short)), read(named(&whole)));
        let neither = json!({"version": 1, "providers": {"default": {"dialect": "openai"}}});
        assert!(serde_json::from_value::<ProvidersFile>(neither).is_err());
    }
}
