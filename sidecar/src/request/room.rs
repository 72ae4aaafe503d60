//! Room for bodies in memory, within the bound of all requests together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolcrib_mediation::{RunnerCode, RunnerError};

/// The room that one request has taken for its bodies. Dropping the value gives it back.
#[derive(Debug)]
pub struct BodyRoom {
    bodies: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl BodyRoom {
    pub fn new(bodies: Arc<Semaphore>) -> Self {
        Self { bodies, held: None }
    }

    /// Makes room for at least `bytes` in all; an error if there is none.
    pub fn hold(&mut self, bytes: usize) -> Result<(), RunnerError> {
        let held = self.held.as_ref().map_or(0, |it| it.num_permits());
        let more = bytes.div_ceil(1024).saturating_sub(held);
        if more == 0 {
            return Ok(());
        }
        let more = u32::try_from(more).map_err(|_| overloaded())?;
        let permit = self.bodies.clone().try_acquire_many_owned(more);
        let permit = permit.map_err(|_| overloaded())?;
        match &mut self.held {
            Some(held) => held.merge(permit),
            None => self.held = Some(permit),
        }
        Ok(())
    }

    /// Gives all room back.
    pub fn release(&mut self) {
        self.held = None;
    }
}

pub fn overloaded() -> RunnerError {
    RunnerError::new(
        RunnerCode::Overloaded,
        "too many requests are running; try again later",
    )
}
