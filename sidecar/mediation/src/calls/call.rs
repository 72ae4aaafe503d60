//! Calls with an owner. Only a round ([`crate::partition`]) and [`crate::DirectCall`] create them,
//! from presented tools, so an executor never gets a runner's call.

use jiff::Timestamp;
use toolcrib_manifest::{GrantRef, RawJson, Tier, Transport};

use crate::calls::arguments::{self, Refusal};
use crate::calls::claw_id::ClawId;
use crate::codes::ResultCode;
use crate::tools::offer::OfferedTool;
use crate::tools::rules::{AllowedBy, WouldDeny};

/// One call within its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    /// Counts from 1.
    pub round: u32,
    /// Index of the call in the model's reply.
    pub index: usize,
}

impl CallId {
    /// The id of the attempt in the record.
    pub fn in_request(self, request_id: &str) -> String {
        let Self { round, index } = self;
        format!("{request_id}-{round}-{index}")
    }
}

/// A call that the mediator executes: its tool was presented, its arguments are read and validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedCall {
    pub(crate) id: CallId,
    /// The attempt whose id is the idempotency key: this one, or the one that it repeats. `None`: the
    /// tool's service recognizes no repetition.
    pub(crate) first_attempt: Option<CallId>,
    pub(crate) name: String,
    pub(crate) arguments: RawJson,
    pub(crate) service: String,
    pub(crate) transport: Transport,
    pub(crate) tier: Tier,
    pub(crate) read_only: bool,
    pub(crate) grant: Option<GrantRef>,
    /// The rule that its arguments met when the tool was presented.
    pub(crate) allowed_by: Option<AllowedBy>,
    /// The policy of the cluster that would deny the tool if it were not tried out.
    pub(crate) denying_policy: Option<String>,
    pub(crate) digest: String,
    pub(crate) claw_id: String,
}

/// The reason for which a call of a presented tool cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unready(pub(crate) Refusal);

impl Unready {
    /// Returns true if other arguments could be accepted.
    pub(crate) fn is_in_arguments(&self) -> bool {
        ![ResultCode::UnsupportedTool, ResultCode::PermissionDenied].contains(&self.0.code)
    }
}

impl ManagedCall {
    /// Reads a call of `tool`; `arguments` are as the model or the runner wrote them. `now` is the
    /// time at which the tool was presented.
    pub(crate) fn read(
        id: CallId,
        arguments: &str,
        offered: &OfferedTool,
        claw_id: &ClawId,
        now: Timestamp,
    ) -> Result<Self, Unready> {
        let tool = offered.catalog_tool();
        let claw_id = claw_id.towards(&tool.tool);
        let executed = arguments::executed(arguments, offered, &claw_id, now);
        let executed = executed.map_err(Unready)?;
        let arguments = RawJson::from_text(executed.text).map_err(|_| {
            Unready(Refusal {
                code: ResultCode::InvalidArguments,
                message: "arguments are not JSON".into(),
                place: None,
            })
        })?;
        Ok(Self {
            id,
            first_attempt: tool.recognizes_repetitions().then_some(id),
            name: tool.name().to_string(),
            arguments,
            service: tool.tool.execution.service.clone(),
            transport: tool.tool.execution.transport,
            tier: tool.tier,
            read_only: tool.is_read_only(),
            grant: tool.tool.extension.grant.clone(),
            allowed_by: executed.allowed_by,
            denying_policy: tool.denying_policy().map(str::to_owned),
            digest: tool.digest.clone(),
            claw_id,
        })
    }

    pub fn id(&self) -> CallId {
        self.id
    }

    /// The key by which the tool's service recognizes a repetition of this call, if it does: the id of
    /// the first attempt in the record.
    pub fn idempotency_key(&self, request_id: &str) -> Option<String> {
        let first = self.first_attempt?;
        Some(first.in_request(request_id))
    }

    /// Canonical name, `surface.tool`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The arguments as executed: `claw_id` is the authenticated identity, or absent.
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

    /// The refusal that the call would have if no policy and no rule were tried out. `allowed_by`:
    /// the rule by which its dispatch was permitted.
    pub fn would_deny(&self, allowed_by: Option<&AllowedBy>) -> Option<WouldDeny> {
        WouldDeny::of(&self.name, self.denying_policy.as_deref(), allowed_by)
    }

    /// Returns whether the call met the rule with this digest when it was read.
    pub(crate) fn was_met_when_read(&self, digest: &str) -> bool {
        let met = self.allowed_by.as_ref();
        met.is_some_and(|it| it.rule == digest && it.would_deny().is_none())
    }

    /// The refusal that the call would have had when it was read if no rule were tried out.
    pub(crate) fn refused_when_read(&self) -> Option<(ResultCode, &str)> {
        self.allowed_by.as_ref()?.would_deny()
    }

    /// The grant of the tool's entry; a tool with rules has one for each ([`crate::LiveTool`]).
    pub fn grant(&self) -> Option<&GrantRef> {
        self.grant.as_ref()
    }

    /// Digest of the presented tool; authority compares it at dispatch.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The identity that the tool's service sees.
    pub fn claw_id(&self) -> &str {
        &self.claw_id
    }
}

/// A call that only the runner may execute. It carries no arguments, because the mediator has no
/// use for them.
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
