//! Calls with an owner. Only a round ([`crate::partition`]) and [`crate::LoneCall`] make
//! them, of tools that were presented, so an executor cannot be handed a runner's call.

use toolcrib_manifest::{GrantRef, RawJson, Tier, Transport};

use crate::arguments::{self, Refusal};
use crate::catalog::CatalogTool;
use crate::claw_id::ClawId;
use crate::codes::ResultCode;

/// One call within its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    /// From 1.
    pub round: u32,
    /// The call's place in the model's reply.
    pub index: usize,
}

/// A call that the mediator executes: known, presented, arguments read and validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedCall {
    pub(crate) id: CallId,
    pub(crate) name: String,
    pub(crate) arguments: RawJson,
    pub(crate) service: String,
    pub(crate) transport: Transport,
    pub(crate) tier: Tier,
    pub(crate) read_only: bool,
    pub(crate) grant: Option<GrantRef>,
    pub(crate) digest: String,
    pub(crate) claw_id: String,
}

/// Why a call of a tool that was presented is not made ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unready {
    /// The tool needs an approval.
    Elevated,
    Refused(Refusal),
}

impl Unready {
    /// Other arguments could do.
    pub(crate) fn is_in_arguments(&self) -> bool {
        match self {
            Unready::Elevated => false,
            Unready::Refused(refusal) => refusal.code != ResultCode::UnsupportedTool,
        }
    }
}

impl ManagedCall {
    /// A call of `tool` with arguments as they were written.
    pub(crate) fn read(
        id: CallId,
        arguments: &str,
        tool: &CatalogTool,
        claw_id: &ClawId,
    ) -> Result<Self, Unready> {
        if tool.tier == Tier::Elevated {
            return Err(Unready::Elevated);
        }
        let claw_id = claw_id.towards(&tool.tool);
        let executed = arguments::executed(arguments, tool, &claw_id)
            .and_then(|text| {
                RawJson::from_text(text).map_err(|_| Refusal {
                    code: ResultCode::InvalidArguments,
                    message: "arguments are not JSON".into(),
                    place: None,
                })
            })
            .map_err(Unready::Refused)?;
        Ok(Self {
            id,
            name: tool.name().to_string(),
            arguments: executed,
            service: tool.tool.execution.service.clone(),
            transport: tool.tool.execution.transport,
            tier: tool.tier,
            read_only: tool.is_read_only(),
            grant: tool.tool.extension.grant.clone(),
            digest: tool.digest.clone(),
            claw_id,
        })
    }

    pub fn id(&self) -> CallId {
        self.id
    }

    /// Canonical, `surface.tool`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As executed: `claw_id` is the authenticated identity, or absent.
    pub fn arguments(&self) -> &RawJson {
        &self.arguments
    }

    pub fn service(&self) -> &str {
        &self.service
    }

    pub fn transport(&self) -> Transport {
        self.transport
    }

    pub fn tier(&self) -> Tier {
        self.tier
    }

    pub fn read_only(&self) -> bool {
        self.read_only
    }

    pub fn grant(&self) -> Option<&GrantRef> {
        self.grant.as_ref()
    }

    /// What was presented; authority compares it at dispatch.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The identity towards the tool's service.
    pub fn claw_id(&self) -> &str {
        &self.claw_id
    }
}

/// A call that only the runner may execute. It has no arguments here: nobody in the
/// mediator has any use for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerCall {
    pub(crate) index: usize,
    pub(crate) name: String,
}

impl RunnerCall {
    pub fn index(&self) -> usize {
        self.index
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}
