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
pub struct Provider {
    pub auth: ProviderAuth,
    pub endpoints: Vec<Endpoint>,
    /// A pool, in order of preference.
    #[serde(default)]
    pub keys: Vec<ProviderKey>,
    /// Headers of the runner that go to the provider beside those that always do: names in small
    /// letters, or prefixes that end in `*`. A mediator that does not know it passes all but those
    /// of the hop and of the runner's identity, as its release did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_headers: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Ends before the dialect's resource: `…/v1` + `/chat/completions` | `/messages` | `/responses`.
    pub base_url: String,
    pub dialect: EndpointDialect,
    /// Whether an OpenAI endpoint also serves `/responses`.
    #[serde(default)]
    pub responses: bool,
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

/// Keys have ids so that record and metrics can name them unharmed.
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

/// What may stand in the file: the whole form, or the short form of one provider.
#[derive(Deserialize)]
#[serde(untagged)]
enum ProvidersOnDisk {
    Whole {
        version: u32,
        providers: BTreeMap<String, Provider>,
    },
    Short {
        base_url: String,
        dialect: EndpointDialect,
        #[serde(default = "bearer")]
        auth: ProviderAuth,
        #[serde(default)]
        api_key: Option<SecretText>,
    },
}

fn bearer() -> ProviderAuth {
    ProviderAuth::Bearer
}

impl From<ProvidersOnDisk> for ProvidersFile {
    fn from(file: ProvidersOnDisk) -> Self {
        match file {
            ProvidersOnDisk::Whole { version, providers } => Self { version, providers },
            ProvidersOnDisk::Short {
                base_url,
                dialect,
                auth,
                api_key,
            } => Self {
                version: crate::VERSION,
                providers: BTreeMap::from([(
                    "default".to_string(),
                    Provider {
                        endpoints: vec![Endpoint {
                            dialect,
                            base_url,
                            responses: false,
                        }],
                        auth,
                        keys: api_key
                            .map(|secret| ProviderKey {
                                id: "default".to_string(),
                                secret,
                            })
                            .into_iter()
                            .collect(),
                        pass_headers: Vec::new(),
                        proxy: None,
                        tls: None,
                    },
                )]),
            },
        }
    }
}
