//! Condition types and the reasons that are not diagnostics.
//!
//! A condition with a fault carries a diagnostic's code as its reason (`toolcrib_compile::Code`);
//! the reasons here are for the other cases. Times are arguments: nothing here reads a clock.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Every condition type of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The object's own spec can be served.
    Accepted,
    /// The references of the object exist. Unknown: the operator could not read them.
    Resolved,
    /// The agent's objects are written.
    Compiled,
    /// The agent's pods report that they have loaded these objects.
    InForce,
    /// An Agent is compiled, and no pod has been stale for over two minutes. Another object is
    /// accepted and resolved.
    Ready,
    /// The grant is not suspended, and within its window.
    Active,
    /// A ToolApproval is decided, or can no longer be.
    Decided,
    /// The call of a ToolApproval ran.
    Used,
    /// The ToolDecision counts.
    Counted,
}

impl ConditionType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Resolved => "Resolved",
            Self::Compiled => "Compiled",
            Self::InForce => "InForce",
            Self::Ready => "Ready",
            Self::Active => "Active",
            Self::Decided => "Decided",
            Self::Used => "Used",
            Self::Counted => "Counted",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Why an agent has none of its granted items while no version of its objects was ever written. The
/// condition `Compiled` has the cause.
pub const NOTHING_WRITTEN: &str =
    "the operator could not write the agent's objects yet: the condition Compiled says why";

/// Reasons that are not diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateReason {
    /// Nothing is wrong with the spec.
    Accepted,
    /// All references exist.
    Resolved,
    /// The objects are written.
    Compiled,
    /// The objects could not be written; the operator retries.
    ApplyFailed,
    /// An object with the name of a compiled object has another owner.
    Conflict,
    /// Every running pod has loaded the current manifest.
    InForce,
    /// Some pod has not loaded the current manifest yet.
    Pending,
    /// Some pod has not loaded the current manifest for over two minutes.
    Stale,
    /// Some pod could not load the current manifest.
    ManifestRejected,
    /// The pods have sent no report.
    NoReport,
    /// No pod of the agent runs.
    NoPods,
    /// Some pod was created for an earlier Agent of this name, and has that Agent's token.
    TokenReplaced,
    /// Some pod's program presents a token that its mediator refuses.
    TokenRefused,
    /// A model provider refuses the only key that some pod's mediator has for it.
    ProviderKeyRefused,
    /// The last requests of some pod got no answer from a model provider.
    ProviderUnreachable,
    /// The last calls of some pod got no answer from a service.
    ServiceUnreachable,
    /// A budget of the agent is used up.
    BudgetUsedUp,
    /// Some pod has the agent's label and no mediator.
    NoMediator,
    /// Every granted tool and feed is withheld.
    AllWithheld,
    /// A condition that Ready depends on is not met.
    NotCompiled,
    /// The agent is ready.
    Ready,
    /// The agent or grant is suspended, as its spec says.
    Suspended,
    /// The grant gives something now.
    Active,
    /// The grant's time has not begun.
    NotYet,
    /// The grant's time is over, or nobody decided about a call in time.
    Expired,
    /// Persons approved the call.
    Approved,
    /// A person denied the call.
    Denied,
    /// The pod, the rule or the ToolApproval is gone, so the call cannot run.
    Withdrawn,
    /// The approved call ran and succeeded.
    Succeeded,
    /// The approved call ran and failed.
    Failed,
    /// The approved call was sent, and its result is not known.
    Unknown,
    /// The decision counts.
    Counted,
    /// The user is none of those who may approve the call.
    NotAnApprover,
    /// The decision is about another call.
    OtherDigest,
    /// The approval was decided before.
    AlreadyDecided,
    /// There is no such approval.
    Gone,
    /// The chart's admission policies are not in force, so no decision can be trusted.
    NotProtected,
    /// The operator failed on this object by an error of its own; it retries.
    InternalError,
}

impl StateReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Resolved => "Resolved",
            Self::Compiled => "Compiled",
            Self::ApplyFailed => "ApplyFailed",
            Self::Conflict => "Conflict",
            Self::InForce => "InForce",
            Self::Pending => "Pending",
            Self::Stale => "Stale",
            Self::ManifestRejected => "ManifestRejected",
            Self::NoReport => "NoReport",
            Self::NoPods => "NoPods",
            Self::TokenReplaced => "TokenReplaced",
            Self::TokenRefused => "TokenRefused",
            Self::ProviderKeyRefused => "ProviderKeyRefused",
            Self::ProviderUnreachable => "ProviderUnreachable",
            Self::ServiceUnreachable => "ServiceUnreachable",
            Self::BudgetUsedUp => "BudgetUsedUp",
            Self::NoMediator => "NoMediator",
            Self::AllWithheld => "AllWithheld",
            Self::NotCompiled => "NotCompiled",
            Self::Ready => "Ready",
            Self::Suspended => "Suspended",
            Self::Active => "Active",
            Self::NotYet => "NotYet",
            Self::Expired => "Expired",
            Self::Approved => "Approved",
            Self::Denied => "Denied",
            Self::Withdrawn => "Withdrawn",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
            Self::Counted => "Counted",
            Self::NotAnApprover => "NotAnApprover",
            Self::OtherDigest => "OtherDigest",
            Self::AlreadyDecided => "AlreadyDecided",
            Self::Gone => "Gone",
            Self::NotProtected => "NotProtected",
            Self::InternalError => "InternalError",
        }
    }
}

/// The name of a reason. It comes from a closed enum: [`StateReason`], or the enum of diagnostic
/// codes, which implements `From` for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonName(pub &'static str);

impl From<StateReason> for ReasonName {
    fn from(reason: StateReason) -> Self {
        Self(reason.as_str())
    }
}

/// Limits the bytes of a condition's message; the API server allows 32768.
const MAX_MESSAGE: usize = 4096;

/// Returns a condition as of `now`. A long message is cut visibly.
pub fn condition(
    type_: ConditionType,
    status: ConditionStatus,
    reason: impl Into<ReasonName>,
    message: impl Into<String>,
    observed_generation: Option<i64>,
    now: Time,
) -> Condition {
    Condition {
        type_: type_.as_str().to_string(),
        status: status.as_str().to_string(),
        reason: reason.into().0.to_string(),
        message: toolcrib_bounds::cut(&message.into(), MAX_MESSAGE).into_owned(),
        observed_generation,
        last_transition_time: now,
    }
}

/// Sets a condition in its list. The transition time changes only with the status, so that an
/// unchanged state leaves the object unchanged.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    match conditions.iter_mut().find(|old| old.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

/// A Toolcrib object with conditions in its status.
pub trait HasConditions: kube::Resource<DynamicType = ()> {
    fn conditions(&self) -> &[Condition];
}

macro_rules! conditioned {
    ($($kind:ident),+) => {$(
        impl HasConditions for crate::$kind {
            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |status| &status.conditions)
            }
        }
    )+};
}

conditioned!(
    Agent,
    ClusterToolPolicy,
    ModelProvider,
    Surface,
    ToolApproval,
    ToolDecision,
    ToolDefaults,
    ToolGrant
);

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64, status: ConditionStatus) -> Condition {
        let now = Time(Timestamp::from_second(second).unwrap());
        condition(
            ConditionType::Ready,
            status,
            StateReason::Ready,
            "",
            Some(7),
            now,
        )
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let mut conditions = vec![at(1, ConditionStatus::True)];
        set(&mut conditions, at(2, ConditionStatus::True));
        assert_eq!(conditions, [at(1, ConditionStatus::True)]);
        set(&mut conditions, at(3, ConditionStatus::False));
        assert_eq!(conditions, [at(3, ConditionStatus::False)]);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let message = condition(
            ConditionType::Ready,
            ConditionStatus::True,
            StateReason::Ready,
            "é".repeat(5_000),
            None,
            Time(Timestamp::UNIX_EPOCH),
        )
        .message;
        assert!(message.len() <= MAX_MESSAGE && message.ends_with(" …"));
    }
}
