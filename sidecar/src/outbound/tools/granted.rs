//! A tool of the manifest with the permission for one call.

use std::sync::Arc;

use toolcrib_manifest::{HttpMethod, ReadMethod, ServiceSettings, Tier, Tool as Entry, Transport};
use toolcrib_mediation::{CatalogTool, Certainty, LiveTool, ResultCode, ToolFailure, http_method};

use crate::config::Version;

/// A tool of the manifest with the permission for one call.
#[derive(Debug)]
pub struct GrantedTool {
    live: LiveTool,
    version: Arc<Version>,
    access: Access,
}

/// The access that a call needs from its context.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    Read(Operation<ReadMethod>),
    Write(Operation<HttpMethod>),
}

/// The transport of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation<M> {
    Http(M),
    Mcp,
}

impl GrantedTool {
    /// Fails if the tool's entry describes no transport.
    pub fn new(live: LiveTool, version: Arc<Version>) -> Result<Self, ToolFailure> {
        let entry = live.tool();
        let operation = match entry.execution.transport {
            Transport::Http => Operation::Http(http_method(entry)?),
            Transport::Mcp => Operation::Mcp,
        };
        let access = match (live.catalog_tool().tier, operation) {
            (Tier::ReadOnly, Operation::Mcp) => Access::Read(Operation::Mcp),
            (Tier::ReadOnly, Operation::Http(method)) => match method.reading() {
                Some(method) => Access::Read(Operation::Http(method)),
                None => Access::Write(operation),
            },
            (Tier::Workspace | Tier::System | Tier::Elevated, _) => Access::Write(operation),
        };
        Ok(Self {
            live,
            version,
            access,
        })
    }

    /// The access that a call of the tool needs from its context.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// The canonical name, `surface.tool`.
    pub(super) fn name(&self) -> &str {
        self.catalog_tool().name()
    }

    pub(super) fn entry(&self) -> &Entry {
        self.live.tool()
    }

    pub(super) fn catalog_tool(&self) -> &CatalogTool {
        self.live.catalog_tool()
    }

    /// The settings of the tool's surface.
    pub(super) fn settings(&self) -> Option<&ServiceSettings> {
        self.version.services.get(&self.entry().execution.service)
    }

    /// The failure of a tool whose entry cannot be called.
    pub(super) fn unusable(&self, what: &str) -> ToolFailure {
        ToolFailure::new(
            ResultCode::UnsupportedTool,
            Certainty::NeverRan,
            format!("{}: {what}", self.name()),
        )
    }
}
