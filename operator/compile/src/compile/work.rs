//! The findings and withheld items that one compilation collects.

use crate::compile::credential::Sources;
use crate::diagnostics::MESSAGE;
use crate::{Code, Diagnostics, WithheldItem};

/// Limits the withheld items of one agent; status shows 64.
const MAX_WITHHELD: usize = 2_048;

/// The findings and withheld items that one compilation collects.
#[derive(Default)]
pub(crate) struct Work {
    pub found: Diagnostics,
    pub sources: Sources,
    pub withheld: Vec<WithheldItem>,
}

impl Work {
    /// Whether other findings and withheld items are dropped, so their messages need not be
    /// written.
    pub fn is_full(&self) -> bool {
        self.found.is_full() && self.withheld.len() >= MAX_WITHHELD
    }

    /// Records a withheld item, up to [`MAX_WITHHELD`]: a grant can name thousands of missing
    /// tools, which would take more memory than the given ones.
    pub fn withhold(&mut self, what: String, code: Code, message: String) {
        if self.withheld.len() >= MAX_WITHHELD {
            return;
        }
        self.withheld.push(WithheldItem {
            what,
            code,
            message: toolcrib_bounds::cut(&message, MESSAGE).into_owned(),
        });
    }
}
