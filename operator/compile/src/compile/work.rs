//! What one compilation collects on its way.

use crate::compile::credential::Sources;
use crate::diagnostics::MESSAGE;
use crate::{Code, Diagnostics, Withheld};

/// Entries of what is withheld from one agent; status shows 64.
const MAX_WITHHELD: usize = 2_048;

/// What one compilation collects on its way.
#[derive(Default)]
pub(crate) struct Work {
    pub found: Diagnostics,
    pub sources: Sources,
    pub withheld: Vec<Withheld>,
}

impl Work {
    /// Notes what is not given. Of more than [`MAX_WITHHELD`] the first are noted: grants that name
    /// thousands of tools in vain would take more memory than all that is given.
    pub fn withhold(&mut self, what: String, code: Code, message: String) {
        if self.withheld.len() >= MAX_WITHHELD {
            return;
        }
        self.withheld.push(Withheld {
            what,
            code,
            message: toolcrib_bounds::cut(&message, MESSAGE).into_owned(),
        });
    }
}
