//! The tools that may run now. Checked at each dispatch, just before the write-ahead line.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use toolcrib_manifest::{Floor, Tier};

use crate::calls::call::ManagedCall;
use crate::calls::outcome::{Certainty, ToolFailure, ToolOutcome};
use crate::codes::ResultCode;
use crate::tools::catalog::{Catalog, CatalogTool};
use crate::tools::offer::Offer;

/// The loaded catalog, reduced by the link's allowlist (`floor`). The floor can deny, never grant:
/// only names of the catalog are looked up in it.
#[derive(Clone, Debug)]
pub struct Authority {
    catalog: Arc<Catalog>,
    floor: Option<Arc<BTreeMap<String, String>>>,
    offer: Arc<Offer>,
}

/// The current version of a call's tool, with its current credential.
#[derive(Clone, Debug)]
pub struct LiveTool {
    tool: Arc<CatalogTool>,
}

/// The reason for which a call may not run, or may no longer run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("{tool} is no longer granted")]
    Withdrawn { tool: String },
    #[error("{tool} has changed since it was presented")]
    Changed { tool: String },
    #[error("{tool} needs an approval, which is not available")]
    Elevated { tool: String },
    #[error("{tool} has a restriction that this release does not know")]
    UnknownRequirement { tool: String },
}

impl Authority {
    pub fn new(catalog: Arc<Catalog>, floor: Option<&Floor>) -> Self {
        let mut authority = Self {
            catalog,
            floor: floor.map(|floor| Arc::new(floor.tools.clone())),
            offer: Arc::default(),
        };
        authority.offer = Arc::new(authority.offer_beside(&HashSet::new()));
        authority
    }

    /// Returns the tool if this call may run at this moment.
    pub fn permits(&self, call: &ManagedCall) -> Result<LiveTool, Denial> {
        let tool = || call.name().to_string();
        let Some(live) = self.catalog.get(call.name()) else {
            return Err(match self.catalog.withheld_code(call.name()) {
                Some(ResultCode::UnsupportedRequirement) => {
                    Denial::UnknownRequirement { tool: tool() }
                }
                _ => Denial::Withdrawn { tool: tool() },
            });
        };
        if !self.on_floor(live) {
            return Err(Denial::Withdrawn { tool: tool() });
        }
        if live.digest != call.digest() {
            return Err(Denial::Changed { tool: tool() });
        }
        if live.tier == Tier::Elevated {
            return Err(Denial::Elevated { tool: tool() });
        }
        Ok(LiveTool { tool: live.clone() })
    }

    /// The tools that a request may be shown.
    pub(crate) fn offer(&self) -> &Arc<Offer> {
        &self.offer
    }

    /// The same tools, for a runner that has tools with these names.
    pub(crate) fn offer_beside(&self, runner: &HashSet<String>) -> Offer {
        Offer::new(&self.catalog, |tool| self.on_floor(tool), runner)
    }

    fn on_floor(&self, tool: &CatalogTool) -> bool {
        match &self.floor {
            None => true,
            Some(floor) => floor.get(tool.name()) == Some(&tool.digest),
        }
    }
}

impl LiveTool {
    pub fn tool(&self) -> &toolcrib_manifest::Tool {
        &self.tool.tool
    }

    pub fn catalog_tool(&self) -> &CatalogTool {
        &self.tool
    }
}

impl Denial {
    pub fn code(&self) -> ResultCode {
        match self {
            Denial::Withdrawn { .. } | Denial::Changed { .. } | Denial::Elevated { .. } => {
                ResultCode::PermissionDenied
            }
            Denial::UnknownRequirement { .. } => ResultCode::UnsupportedRequirement,
        }
    }
}

impl From<Denial> for ToolFailure {
    fn from(denied: Denial) -> Self {
        ToolFailure::new(denied.code(), Certainty::NeverRan, denied.to_string())
    }
}

impl From<Denial> for ToolOutcome {
    fn from(denied: Denial) -> Self {
        ToolOutcome::Failed(denied.into())
    }
}
