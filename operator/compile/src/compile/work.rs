//! The findings and withheld items that one compilation collects.

use crate::compilation::files::Files;
use crate::compilation::secrets::references_in;
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
    /// Keeps the sources of the credentials that the files hold, and sorts what is withheld.
    pub fn keep_used(&mut self, files: &Files) {
        let used = references_in(files);
        self.sources
            .0
            .retain(|reference, _| used.contains(reference));
        self.withheld.sort();
        self.withheld.dedup();
    }

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
