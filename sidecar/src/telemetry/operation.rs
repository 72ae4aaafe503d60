//! The metrics of one model call, from its begin to the last byte of its reply
//! ([`crate::metrics::otel`]).
//!
//! Invariant: a model's name becomes a label only if an object of the cluster names the model, since
//! runners choose the others.

use std::sync::Arc;
use std::time::Instant;

use toolcrib_dialect::{Dialect, Usage};

use super::error_word;
use super::spans::provider_name;
use crate::config::Version;
use crate::metrics::Metrics;
use crate::metrics::otel::{OTHER, ServingModel};
use crate::outbound::model::{Candidate, ModelError};

/// A model call that runs. It is counted when this is dropped, as canceled if no end was noted.
#[derive(Debug)]
pub struct ModelOperation {
    metrics: Arc<Metrics>,
    dialect: Dialect,
    version: Arc<Version>,
    model: ServingModel,
    began: Instant,
    error: &'static str,
}

impl ModelOperation {
    /// `first` is asked first; [`ModelOperation::served_by`] names another.
    pub fn begin(
        metrics: &Arc<Metrics>,
        version: &Arc<Version>,
        dialect: Dialect,
        first: &Candidate,
    ) -> Self {
        Self {
            metrics: metrics.clone(),
            dialect,
            model: labels(version, dialect, first),
            version: version.clone(),
            began: Instant::now(),
            error: "canceled",
        }
    }

    /// Notes the candidate that answers.
    pub fn served_by(&mut self, candidate: &Candidate) {
        self.model = labels(&self.version, self.dialect, candidate);
    }

    /// Counts the tokens that the provider reported, if it reported any.
    pub fn used(&self, usage: Usage) {
        let (input, output) = (usage.prompt_tokens, usage.completion_tokens);
        self.metrics.model_tokens(&self.model, input, output);
    }

    /// Ends with a whole reply.
    pub fn answered(mut self) {
        self.error = "";
    }

    /// Ends with a reply that cannot be decoded.
    pub fn malformed(mut self) {
        self.error = "malformed";
    }

    /// Ends with a reply that broke off.
    pub fn interrupted(mut self) {
        self.error = "interrupted";
    }

    /// Ends without a reply.
    pub fn failed(mut self, error: &ModelError) {
        self.error = error_word(error);
    }
}

impl Drop for ModelOperation {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.metrics
            .model_operation(self.model.clone(), self.error, took);
    }
}

fn labels(version: &Version, dialect: Dialect, candidate: &Candidate) -> ServingModel {
    let is_named = version.agent.models.as_ref().is_some_and(|models| {
        let named = models.allowed.iter().chain(&models.default);
        named.chain(&models.fallbacks).any(|it| candidate.is(it))
    });
    let model = match is_named {
        true => candidate.model.clone(),
        false => OTHER.to_string(),
    };
    ServingModel::chat(provider_name(dialect), candidate.provider.clone(), model)
}
