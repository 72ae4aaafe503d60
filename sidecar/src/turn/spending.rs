//! The use of a model by one model call: its tokens for the agent's budgets, and its tokens and duration for
//! the metrics.
//!
//! Invariant: each call that was prepared ends once, as canceled if no other end is noted.

use toolcrib_dialect::Usage;

use crate::app::App;
use crate::app::budgets::TokenCharge;
use crate::outbound::model::{Candidate, ModelError};
use crate::request::prepare::{ModelRequest, Preparation};
use crate::telemetry::operation::ModelOperation;

/// One model call that runs. The default is no call.
#[derive(Debug, Default)]
pub struct Spending {
    /// `None`: the agent has no budget of tokens.
    charge: Option<TokenCharge>,
    operation: Option<ModelOperation>,
}

impl Spending {
    pub fn begin(app: &App, request: &ModelRequest, prepared: &Preparation) -> Self {
        let operation = prepared.first().map(|first| {
            ModelOperation::begin(&app.metrics, &prepared.version, request.dialect, first)
        });
        Self {
            charge: prepared.charge(&app.budgets),
            operation,
        }
    }

    /// Notes the candidate that answers.
    pub fn served_by(&mut self, candidate: &Candidate) {
        if let Some(operation) = &mut self.operation {
            operation.served_by(candidate);
        }
    }

    /// Notes bytes of the reply.
    pub fn received(&mut self, bytes: usize) {
        if let Some(charge) = &mut self.charge {
            charge.received(bytes);
        }
    }

    /// Ends with a whole reply.
    pub fn answered(self, used: Option<Usage>) {
        if let (Some(mut charge), Some(used)) = (self.charge, used) {
            charge.reported(used);
        }
        if let Some(operation) = self.operation {
            operation.used(used.unwrap_or_default());
            operation.answered();
        }
    }

    /// Ends with a reply that broke off.
    pub fn interrupted(mut self, used: Option<Usage>) {
        self.used_in_part(used);
        if let Some(operation) = self.operation {
            operation.interrupted();
        }
    }

    /// Ends because the runner or the mediator does not want the rest.
    pub fn canceled(mut self, used: Option<Usage>) {
        self.used_in_part(used);
    }

    /// Ends with a reply that cannot be decoded.
    pub fn malformed(self) {
        if let Some(operation) = self.operation {
            operation.malformed();
        }
    }

    /// Ends without a reply.
    pub fn failed(self, error: &ModelError) {
        if let Some(charge) = self.charge {
            charge.failed(error);
        }
        if let Some(operation) = self.operation {
            operation.failed(error);
        }
    }

    fn used_in_part(&mut self, used: Option<Usage>) {
        let Some(used) = used else {
            return;
        };
        if let Some(charge) = &mut self.charge {
            charge.reported_in_part(used);
        }
        if let Some(operation) = &self.operation {
            operation.used(used);
        }
    }
}
