//! Model providers with well-known addresses.

use clap::ValueEnum;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum KnownProvider {
    /// api.anthropic.com, ANTHROPIC_API_KEY
    Anthropic,
    /// api.openai.com, OPENAI_API_KEY
    Openai,
    /// openrouter.ai, OPENROUTER_API_KEY
    Openrouter,
    /// api.x.ai, XAI_API_KEY
    Xai,
}

impl KnownProvider {
    pub const ALL: [KnownProvider; 4] = [
        KnownProvider::Anthropic,
        KnownProvider::Openai,
        KnownProvider::Openrouter,
        KnownProvider::Xai,
    ];

    /// The prefix of its models: `anthropic/claude-sonnet-4`.
    pub fn name(self) -> &'static str {
        match self {
            KnownProvider::Anthropic => "anthropic",
            KnownProvider::Openai => "openai",
            KnownProvider::Openrouter => "openrouter",
            KnownProvider::Xai => "xai",
        }
    }

    /// The usual variable of its key.
    pub fn variable(self) -> &'static str {
        match self {
            KnownProvider::Anthropic => "ANTHROPIC_API_KEY",
            KnownProvider::Openai => "OPENAI_API_KEY",
            KnownProvider::Openrouter => "OPENROUTER_API_KEY",
            KnownProvider::Xai => "XAI_API_KEY",
        }
    }

    pub fn host(self) -> &'static str {
        match self {
            KnownProvider::Anthropic => "api.anthropic.com",
            KnownProvider::Openai => "api.openai.com",
            KnownProvider::Openrouter => "openrouter.ai",
            KnownProvider::Xai => "api.x.ai",
        }
    }

    /// The `spec.endpoints` of its ModelProvider.
    pub fn endpoints(self) -> Value {
        match self {
            KnownProvider::Anthropic => {
                json!([{"dialect": "Anthropic", "url": "https://api.anthropic.com/v1"}])
            }
            KnownProvider::Openai => {
                json!([{"dialect": "OpenAI", "url": "https://api.openai.com/v1", "responses": true}])
            }
            KnownProvider::Openrouter => {
                json!([{"dialect": "OpenAI", "url": "https://openrouter.ai/api/v1"}])
            }
            KnownProvider::Xai => json!([{"dialect": "OpenAI", "url": "https://api.x.ai/v1"}]),
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    pub fn by_variable(variable: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|known| known.variable() == variable)
    }
}
