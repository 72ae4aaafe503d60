//! Room for the bodies that requests hold, within what all of them together may hold.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolcrib_mediation::{RunnerCode, RunnerError};

/// A request's share of what all bodies together may hold. Given back when it is dropped.
#[derive(Debug)]
pub struct BodyRoom {
    bodies: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl BodyRoom {
    pub fn new(bodies: Arc<Semaphore>) -> Self {
        Self { bodies, held: None }
    }

    /// Makes it at least so large. Errors: there is no room for that.
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

    /// Nothing is held any more.
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
