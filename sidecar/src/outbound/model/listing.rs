//! The models that providers offer, for agents whose policy allows every model.
//!
//! Providers are asked each time; nothing is cached. A provider that does not answer is left out
//! of the list. Its answer does not retire keys, since a key may serve models and not list them.

use std::time::{Duration, Instant};

use http::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::time::timeout;
use toolcrib_manifest::{EndpointDialect, Provider};

use super::client::{ModelClient, credential};
use crate::outbound::{Outbound, body, error};

/// Longest wait for one provider.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of one provider's list; a longer one is not read.
const LONGEST: usize = 1024 * 1024;
/// Most models of one provider that are listed.
const MOST: usize = 1000;
/// Most bytes of a model's name.
const LONGEST_NAME: usize = 256;

#[derive(Deserialize)]
struct List {
    data: Vec<ModelEntry>,
}

#[derive(Deserialize)]
struct ModelEntry {
    id: String,
}

impl ModelClient {
    /// Returns `provider/model` for each model that these providers list.
    pub async fn listed<'a>(
        &self,
        outbound: &Outbound,
        providers: impl Iterator<Item = (&'a str, &'a Provider)>,
    ) -> Vec<String> {
        let mut all = Vec::new();
        for (name, provider) in providers {
            let listed = timeout(PATIENCE, self.of_provider(outbound, name, provider)).await;
            let listed = listed.unwrap_or_else(|_| Err("it did not answer in time".to_string()));
            match listed {
                Ok(ids) => all.extend(ids.iter().map(|id| format!("{name}/{id}"))),
                Err(why) => {
                    tracing::warn!(
                        provider = name,
                        why,
                        "listing models failed, provider left out"
                    );
                }
            }
        }
        all
    }

    async fn of_provider(
        &self,
        outbound: &Outbound,
        name: &str,
        provider: &Provider,
    ) -> Result<Vec<String>, String> {
        let endpoint = provider.endpoints.first().ok_or("it has no endpoint")?;
        let lease = self.pool().lease(name, provider, Instant::now());
        let lease = lease.map_err(|_| "none of its keys can be used now")?;
        let ca = provider.tls.as_ref().and_then(|tls| tls.ca.as_deref());
        let address = format!("{}/models", endpoint.base_url.trim_end_matches('/'));
        let to = outbound
            .url(&address)
            .map_err(|_| "its address is no URL")?;
        let client = outbound
            .towards(&to.url, ca, provider.proxy.as_deref())
            .map_err(|error| error.to_string())?;
        let mut request = client.get(to.url.clone());
        match endpoint.dialect {
            EndpointDialect::Openai => {}
            EndpointDialect::Anthropic => {
                let version = HeaderName::from_static("anthropic-version");
                request = request.header(version, HeaderValue::from_static("2023-06-01"));
            }
        }
        match credential(provider.auth, &lease) {
            Ok(Some((name, value))) => request = request.header(name, value),
            Ok(None) => {}
            Err(_) => return Err("its key cannot be sent".to_string()),
        }
        let unconnected = |error: reqwest::Error| error::failure(&error).cause.to_string();
        let response = request.send().await.map_err(unconnected)?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("it answered with status {}", status.as_u16()));
        }
        let body = body::prefix(response.into(), LONGEST).await;
        let body = body.map_err(|error| error::body_failure(&error, &to.url).cause.to_string())?;
        let list: List =
            serde_json::from_slice(&body).map_err(|_| "its answer is not a list of models")?;
        let ids = list.data.into_iter().map(|listed| listed.id);
        let named = ids.filter(|id| !id.is_empty() && id.len() <= LONGEST_NAME);
        Ok(named.take(MOST).collect())
    }
}
