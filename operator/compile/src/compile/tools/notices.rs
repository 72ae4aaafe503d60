//! What users hear of a tool that is granted: its tier, approvals, and limits that are tried out.

use toolcrib_crds::PolicyRequirement;
use toolcrib_manifest::Tier;

use super::rules::{LiftedLimits, MAX_RULES};
use crate::compilation::GrantSource;
use crate::compile::authority::policies::PolicyName;
use crate::compile::authority::policies::surfaces::TrialFinding;
use crate::compile::work::Work;
use crate::diagnostics::finding::Finding;
use crate::{Code, Kind, ObjectRef, Subject};

/// The harm that calls of a tool can do, and the policies that ask for an approval of each call.
pub(super) struct Risk {
    pub tier: Tier,
    pub approval: Vec<PolicyRequirement>,
}

pub(super) fn within_maximum(tier: Tier, max_tier: Tier) -> Result<(), Finding> {
    if tier <= max_tier {
        return Ok(());
    }
    let denied = match tier {
        Tier::Elevated => ", and a person must then approve each call",
        Tier::ReadOnly | Tier::Workspace | Tier::System => "",
    };
    let name = tier.name();
    Err(Finding::new(
        "spec.policy.maxTier",
        Code::TierAboveMaximum,
        format!(
            "is {name}, above the agent's maximum {}: set policy.maxTier: {name} in the Agent, or in ToolDefaults if the Agent sets none{denied}; or, if the tool is not that dangerous, let the Surface's owner lower it in spec.tiers",
            max_tier.name()
        ),
    ))
}

/// Returns the finding at `field` for a granted tool that is Elevated.
pub(crate) fn needs_approval(field: &str, tool: &str) -> Finding {
    Finding::new(
        field,
        Code::NeedsApproval,
        format!(
            "{tool} is Elevated, so a person must approve each call: give people in this namespace the chart's role for approvers; or, if the tool is not that dangerous, its surface's owner can lower it in spec.tiers"
        ),
    )
}

/// Reports a tool that needs approvals although its grants need not ask for them.
pub(super) fn report_approval(
    agent: &ObjectRef,
    grant: &GrantSource,
    tool: &str,
    risk: &Risk,
    work: &mut Work,
) {
    let on_agent = Subject::new(Kind::Agent, agent);
    let on_grant = Subject::new(grant.kind, &grant.key);
    if risk.tier == Tier::Elevated {
        needs_approval("spec.surfaces", tool).report(&on_agent, &mut work.found);
        needs_approval("spec.tools", tool).report(&on_grant, &mut work.found);
        return;
    }
    let Some(first) = risk.approval.first() else {
        return;
    };
    let message = format!(
        "a person must approve each call of {tool}, since {} asks for it (spec.requireApproval): give people in this namespace the chart's role for approvers, or ask an admin of the cluster to change the policy",
        PolicyName(&first.policy)
    );
    let found = &mut work.found;
    found.add(&on_agent, "spec.surfaces", Code::NeedsApproval, message);
}

/// Reports the policies that would deny a tool or feed of the agent, and returns their names.
pub(super) fn tried_out(
    agent: &ObjectRef,
    what: &str,
    policies: Vec<TrialFinding<'_>>,
    work: &mut Work,
) -> Vec<String> {
    let subject = Subject::new(Kind::Agent, agent);
    let report = |TrialFinding { policy, finding }: TrialFinding<'_>| {
        let message = format!("{what} {}", finding.message);
        work.found
            .add(&subject, finding.field, finding.code, message);
        policy.to_owned()
    };
    policies.into_iter().map(report).collect()
}

/// Warns on both grants of a tool, if one of them tries out its limits.
pub(super) fn lifted_limits(lifted: &LiftedLimits, tool: &str, work: &mut Work) {
    let LiftedLimits { audit, enforced } = lifted;
    let [on_audit, on_enforced] = [audit, enforced].map(|it| Subject::new(it.kind, &it.key));
    let of_audit = format!(
        "{tool} is limited by {on_enforced} too, and while its limits are tried out here, calls outside of those run as well: remove enforcement: Audit to have both refuse"
    );
    let of_enforced = format!(
        "{tool} may be called outside of these limits, since {on_audit} tries out its own: remove enforcement: Audit there to have both refuse"
    );
    for (subject, message) in [(on_audit, of_audit), (on_enforced, of_enforced)] {
        let found = &mut work.found;
        found.add(&subject, "spec.tools", Code::AuditLiftsLimits, message);
    }
}

pub(super) fn too_many_rules(tool: &str) -> String {
    format!(
        "{tool} has more than {MAX_RULES} rules, so those of the last grants in name order are withheld: remove some, or merge grants with the same limits"
    )
}
