//! What is kept of a ToolApproval and of a ToolDecision.
//!
//! Invariant: the arguments of a call are never kept, only their length. They are skipped while an object
//! is decoded. An object whose spec cannot be decoded has no body: nobody can decide about it.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::Resource;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use toolcrib_compile::ObjectRef;
use toolcrib_crds::{
    ConditionStatus, ConditionType, ObjectIdentity, PolicyRequirement, RuleRequirement,
    StateReason, ToolApproval, ToolApprovalStatus, ToolDecision, ToolDecisionSpec,
};

use crate::objects::decode::MetaOf;

/// A ToolApproval without its arguments.
#[derive(Clone, Debug)]
pub struct StoredApproval {
    meta: ObjectMeta,
    /// `None`: the object cannot be decoded.
    pub body: Option<Box<ApprovalBody>>,
}

/// Spec and status of a ToolApproval without the arguments.
#[derive(Clone, Debug)]
pub struct ApprovalBody {
    pub agent: ObjectIdentity,
    pub pod: ObjectIdentity,
    pub tool: String,
    pub call_digest: String,
    pub entry_digest: String,
    /// Empty once the approval is finished.
    pub rules: Vec<RuleRequirement>,
    /// Empty once the approval is finished.
    pub policies: Vec<PolicyRequirement>,
    pub requested_at: Timestamp,
    pub expires_at: Timestamp,
    pub request_id: String,
    pub argument_bytes: usize,
    pub status: ToolApprovalStatus,
}

/// The state of a ToolApproval, by its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Persons may decide.
    Pending,
    /// The mediator may make the call.
    Approved,
    /// Nothing follows; since this time.
    Finished(Ending, Timestamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Denied,
    Expired,
    Withdrawn,
    Used,
}

/// Returns the condition of a type if it is True.
fn true_condition(conditions: &[Condition], of: ConditionType) -> Option<&Condition> {
    let mut found = conditions.iter().filter(|it| it.type_ == of.as_str());
    found.find(|it| it.status == ConditionStatus::True.as_str())
}

/// Returns the state that conditions say.
pub fn progress(conditions: &[Condition]) -> Progress {
    if let Some(used) = true_condition(conditions, ConditionType::Used) {
        return Progress::Finished(Ending::Used, used.last_transition_time.0);
    }
    let Some(decided) = true_condition(conditions, ConditionType::Decided) else {
        return Progress::Pending;
    };
    let is = |reason: StateReason| decided.reason == reason.as_str();
    let ending = if is(StateReason::Approved) {
        return Progress::Approved;
    } else if is(StateReason::Denied) {
        Ending::Denied
    } else if is(StateReason::Expired) {
        Ending::Expired
    } else {
        Ending::Withdrawn
    };
    Progress::Finished(ending, decided.last_transition_time.0)
}

impl ApprovalBody {
    pub fn progress(&self) -> Progress {
        progress(&self.status.conditions)
    }

    /// Returns whether the mediator may still make the call, now or after a decision.
    pub fn is_open(&self) -> bool {
        !matches!(self.progress(), Progress::Finished(..))
    }

    /// The message of the condition `Decided`.
    pub fn why_decided(&self) -> &str {
        let decided = true_condition(&self.status.conditions, ConditionType::Decided);
        decided.map_or("", |decided| &decided.message)
    }
}

impl StoredApproval {
    pub fn key(&self) -> ObjectRef {
        key(&self.meta)
    }

    pub fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    /// The agent, by namespace and name.
    pub fn agent(&self) -> Option<ObjectRef> {
        let body = self.body.as_ref()?;
        let namespace = self.meta.namespace.as_deref().unwrap_or_default();
        Some(ObjectRef::new(namespace, &*body.agent.name))
    }

    /// The body, while the approval is open.
    pub fn open(&self) -> Option<&ApprovalBody> {
        self.body.as_deref().filter(|body| body.is_open())
    }
}

/// A ToolDecision.
#[derive(Clone, Debug)]
pub struct StoredDecision {
    meta: ObjectMeta,
    /// `None`: the object cannot be decoded.
    pub body: Option<Box<DecisionBody>>,
}

#[derive(Clone, Debug)]
pub struct DecisionBody {
    pub spec: ToolDecisionSpec,
    /// The status of the condition `Counted`; `None` until the controller has written it.
    pub counted: Option<bool>,
    /// The object is owned by its ToolApproval.
    pub is_owned: bool,
    pub created: Option<Timestamp>,
}

impl StoredDecision {
    pub fn key(&self) -> ObjectRef {
        key(&self.meta)
    }

    /// The ToolApproval that the decision names.
    pub fn approval(&self) -> Option<ObjectRef> {
        let body = self.body.as_ref()?;
        let namespace = self.meta.namespace.as_deref().unwrap_or_default();
        Some(ObjectRef::new(namespace, &*body.spec.approval.name))
    }
}

fn key(meta: &ObjectMeta) -> ObjectRef {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    ObjectRef::new(text(&meta.namespace), text(&meta.name))
}

/// Keeps identity, version and times.
fn slim(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        creation_timestamp: meta.creation_timestamp.clone(),
        deletion_timestamp: meta.deletion_timestamp.clone(),
        ..ObjectMeta::default()
    }
}

/// The bytes of a text that is not kept.
struct Length(usize);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Measure;
        impl Visitor<'_> for Measure {
            type Value = Length;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Length, E> {
                Ok(Length(text.len()))
            }
        }
        deserializer.deserialize_str(Measure)
    }
}

#[derive(Deserialize)]
struct WholeApproval {
    spec: ApprovalSpec,
    status: Option<ToolApprovalStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApprovalSpec {
    agent: ObjectIdentity,
    pod: ObjectIdentity,
    tool: String,
    arguments: Length,
    call_digest: String,
    entry_digest: String,
    #[serde(default)]
    rules: Vec<RuleRequirement>,
    #[serde(default)]
    policies: Vec<PolicyRequirement>,
    requested_at: Time,
    expires_at: Time,
    #[serde(rename = "requestID")]
    request_id: String,
}

impl From<WholeApproval> for ApprovalBody {
    fn from(whole: WholeApproval) -> Self {
        let WholeApproval { spec, status } = whole;
        let body = Self {
            agent: spec.agent,
            pod: spec.pod,
            tool: spec.tool,
            call_digest: spec.call_digest,
            entry_digest: spec.entry_digest,
            rules: spec.rules,
            policies: spec.policies,
            requested_at: spec.requested_at.0,
            expires_at: spec.expires_at.0,
            request_id: spec.request_id,
            argument_bytes: spec.arguments.0,
            status: status.unwrap_or_default(),
        };
        if body.is_open() {
            return body;
        }
        Self {
            rules: Vec::new(),
            policies: Vec::new(),
            ..body
        }
    }
}

#[derive(Deserialize)]
struct WholeDecision {
    spec: ToolDecisionSpec,
    status: Option<WithConditions>,
}

#[derive(Deserialize)]
struct WithConditions {
    #[serde(default)]
    conditions: Vec<Condition>,
}

impl DecisionBody {
    fn of(whole: WholeDecision, meta: &ObjectMeta) -> Self {
        let WholeDecision { spec, status } = whole;
        let conditions = status.map(|status| status.conditions).unwrap_or_default();
        let counted = ConditionType::Counted.as_str();
        let counted = conditions.iter().find(|it| it.type_ == counted);
        let mut owners = meta.owner_references.iter().flatten();
        Self {
            counted: counted.map(|it| it.status == ConditionStatus::True.as_str()),
            is_owned: owners.any(|owner| owner.uid == spec.approval.uid),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            spec,
        }
    }
}

impl<'de> Deserialize<'de> for StoredApproval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let meta: MetaOf<ToolApproval> =
            serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        let whole = serde_json::from_str::<WholeApproval>(raw.get());
        Ok(Self {
            meta: slim(meta.meta()),
            body: whole.ok().map(|whole| Box::new(whole.into())),
        })
    }
}

impl<'de> Deserialize<'de> for StoredDecision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let meta: MetaOf<ToolDecision> =
            serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        let whole = serde_json::from_str::<WholeDecision>(raw.get());
        let body = whole.ok().map(|it| DecisionBody::of(it, meta.meta()));
        Ok(Self {
            meta: slim(meta.meta()),
            body: body.map(Box::new),
        })
    }
}

macro_rules! stored {
    ($($stored:ty => $kind:ty;)+) => {$(
        impl Resource for $stored {
            type DynamicType = ();
            type Scope = <$kind as Resource>::Scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$kind>::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                <$kind>::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                <$kind>::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                <$kind>::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.meta
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.meta
            }
        }
    )+};
}

stored! {
    StoredApproval => ToolApproval;
    StoredDecision => ToolDecision;
}

#[cfg(test)]
pub mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The JSON of a pending ToolApproval of agent `otter`.
    pub fn approval(name: &str) -> Value {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolApproval",
            "metadata": {"name": name, "namespace": "pond", "uid": format!("uid-{name}"),
                "resourceVersion": "1", "creationTimestamp": "2026-11-27T09:00:00Z",
                "annotations": {"long": "x".repeat(4096)},
                "managedFields": [{"manager": "x".repeat(4096)}]},
            "spec": {
                "agent": {"name": "otter", "uid": "uid-otter"},
                "pod": {"name": "otter-0", "uid": "uid-otter-0"},
                "tool": "kelp.dive", "tier": "System",
                "arguments": format!(r#"{{"text":"{}"}}"#, "\u{e9}".repeat(8_000)),
                "callDigest": "c1:call", "entryDigest": "v1:entry",
                "rules": [{"kind": "ToolGrant", "grant": "deep", "rule": "r1:deep",
                    "approval": {"approvers": {"users": ["heron"]}}}],
                "requestedAt": "2026-11-27T09:00:00Z", "expiresAt": "2026-11-27T10:00:00Z",
                "requestID": "00112233445566778899aabbccddeeff",
            },
        })
    }

    pub fn read<K: serde::de::DeserializeOwned>(object: &Value) -> K {
        serde_json::from_str(&object.to_string()).expect("it has a name")
    }

    pub fn decided(reason: &str) -> Value {
        json!({"conditions": [{"type": "Decided", "status": "True", "reason": reason,
            "message": "", "lastTransitionTime": "2026-11-27T09:02:00Z"}]})
    }

    #[test]
    fn an_approval_is_kept_without_its_arguments_within_two_kibibytes() {
        let object = approval("otter-1").to_string();
        let bytes = object.into_bytes();
        let mut kept = None;
        let info = allocation_counter::measure(|| {
            kept = Some(serde_json::from_slice::<StoredApproval>(&bytes).expect("an approval"));
        });
        let kept = kept.expect("decoded");
        let body = kept.body.as_deref().expect("a body");
        assert_eq!(body.argument_bytes, 16_000 + r#"{"text":""}"#.len());
        assert!(!format!("{kept:?}").contains('\u{e9}'));
        let held = usize::try_from(info.bytes_current).expect("more is held than before");
        assert!(held + size_of::<StoredApproval>() <= 2048, "{held}");
    }

    #[test]
    fn an_object_that_cannot_be_decoded_has_no_body() {
        let mut object = approval("otter-1");
        object["spec"]["expiresAt"] = json!("soon");
        let kept: StoredApproval = read(&object);
        assert_eq!(
            (kept.key().name.as_str(), kept.body.is_none()),
            ("otter-1", true)
        );
    }

    #[test]
    fn conditions_say_the_progress() {
        let mut object = approval("otter-1");
        let mut check = |status: Value, expected: Progress| {
            object["status"] = status;
            let kept: StoredApproval = read(&object);
            let body = kept.body.expect("a body");
            assert_eq!(body.progress(), expected);
            assert_eq!(body.rules.is_empty(), !body.is_open());
        };
        let at = "2026-11-27T09:02:00Z".parse().expect("a time");
        check(Value::Null, Progress::Pending);
        let mut pending = decided("NotProtected");
        pending["conditions"][0]["status"] = json!("False");
        check(pending, Progress::Pending);
        check(decided("Approved"), Progress::Approved);
        check(decided("Denied"), Progress::Finished(Ending::Denied, at));
        check(decided("Expired"), Progress::Finished(Ending::Expired, at));
        check(
            decided("Withdrawn"),
            Progress::Finished(Ending::Withdrawn, at),
        );
        let mut used = decided("Approved");
        let conditions = used["conditions"].as_array_mut().expect("a list");
        conditions.push(
            json!({"type": "Used", "status": "True", "reason": "Succeeded",
            "message": "", "lastTransitionTime": "2026-11-27T09:02:00Z"}),
        );
        check(used, Progress::Finished(Ending::Used, at));
    }
}
