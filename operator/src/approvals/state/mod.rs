//! The leader's approvals: the watched objects, the reports of pods, and the decisions for them.
//!
//! Here: the index of approvals by agent, the limits of open questions, and what a pod's answer says. Not
//! here: requests and writes.
//!
//! Invariants: an answer decides a question only by the status of its ToolApproval, which names this
//! pod and this question. A yes is sent only while the admission policies are known to hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use toolcrib_compile::ObjectRef;
use toolcrib_crds::DecisionVerdict;
use toolcrib_manifest::{ApprovalRef, Decision, LONGEST_REASON, OpenQuestion, Verdict};

use crate::approvals::open::{Entry, OpenQuestions, QuestionLimit, decrease};
use crate::approvals::plan::{CallAuthority, Protection, QuestionState, denial};
use crate::approvals::reports::QuestionReports;
use crate::approvals::requirements::AgentRequirements;
use crate::approvals::stored::{ApprovalBody, Ending, Progress, StoredApproval, StoredDecision};
use crate::metrics::ApprovalGauges;
use crate::objects::store::{Change, Store};

/// The denials within [`DENIALS`] after which an agent may not ask.
const MOST_DENIALS: usize = 5;
const DENIALS: Duration = Duration::from_secs(3600);
/// Limits the finished ToolApprovals of an agent; above it, the oldest are deleted early.
pub const MOST_FINISHED: usize = 64;
/// The ToolDecisions of a namespace beyond which those about nothing are deleted at once.
const MOST_IN_NAMESPACE: usize = 1_024;
/// Limits the remembered ids of ToolApprovals that somebody deleted. Beyond, a mediator is told later.
const MOST_DELETED: usize = 2_000;
/// The digits of a question's id in the name of its ToolApproval.
const ID_DIGITS: usize = 12;

/// The leader's memory of approvals. The stores are filled by every replica.
#[derive(Debug, Default)]
pub struct Approvals {
    pub approvals: Store<StoredApproval>,
    pub decisions: Store<StoredDecision>,
    memory: Mutex<Memory>,
    gauges: ApprovalGauges,
}

#[derive(Debug, Default)]
struct Memory {
    /// This replica works as leader.
    leads: bool,
    protection: Protection,
    /// The ToolApprovals of each agent.
    agents: HashMap<ObjectRef, BTreeSet<ObjectRef>>,
    /// The ToolDecisions that name a ToolApproval.
    decisions: HashMap<ObjectRef, BTreeSet<ObjectRef>>,
    /// The number of the ToolDecisions of each namespace.
    decision_counts: HashMap<String, usize>,
    open: OpenQuestions,
    reports: QuestionReports,
    /// The open ToolApprovals that somebody deleted.
    deleted: BTreeMap<ObjectRef, DeletedApproval>,
    /// Who may approve the calls of each compiled agent.
    requirements: HashMap<ObjectRef, Arc<AgentRequirements>>,
}

/// What is left of an open ToolApproval that somebody deleted.
#[derive(Debug)]
struct DeletedApproval {
    /// Uid of the pod that asked.
    pod: String,
    call_digest: String,
}

/// Returns the name of the ToolApproval of an agent's question. It is the same each time, so that a
/// question that is asked twice is one object.
pub fn name(agent: &str, id: &str) -> String {
    let mut digest = hex::encode(Sha256::digest(id));
    digest.truncate(ID_DIGITS);
    format!("{agent}-{digest}")
}

impl Approvals {
    pub fn new(gauges: ApprovalGauges) -> Self {
        Self {
            gauges,
            ..Self::default()
        }
    }

    /// Whether both kinds are listed.
    pub fn synced(&self) -> bool {
        self.approvals.synced() && self.decisions.synced()
    }

    /// Begins a tenure. Drops what an earlier one knew besides the watched objects.
    pub fn begin(&self) {
        let mut memory = self.memory.lock();
        *memory = Memory {
            leads: true,
            ..Memory::default()
        };
        for approval in self.approvals.all() {
            memory.put(&approval);
        }
        for decision in self.decisions.all() {
            memory.put_decision(&decision);
        }
        self.count(&memory);
    }

    /// Ends the work as leader.
    pub fn end(&self) {
        let mut memory = self.memory.lock();
        memory.leads = false;
        self.gauges.pending.set(0);
        self.gauges.off.set(0);
    }

    /// Sets the metric of open questions. A standby, which sees the same objects, reports none.
    fn count(&self, memory: &Memory) {
        if memory.leads {
            let open = memory.open.len();
            let open = i64::try_from(open).unwrap_or(i64::MAX);
            self.gauges.pending.set(open);
        }
    }

    /// Applies a change of a ToolApproval that the store has already.
    pub fn approval_changed(&self, change: &Change<StoredApproval>) {
        let mut memory = self.memory.lock();
        let key = change.key();
        let pod = |it: &Arc<StoredApproval>| it.body.as_ref().map(|body| body.pod.uid.clone());
        if let Some(old) = &change.old {
            memory.take(old);
            if change.new.is_none()
                && let Some(body) = old.open()
                && memory.deleted.len() < MOST_DELETED
            {
                let deleted = DeletedApproval {
                    pod: body.pod.uid.clone(),
                    call_digest: body.call_digest.clone(),
                };
                memory.deleted.insert(key, deleted);
            }
        }
        if let Some(new) = &change.new {
            memory.put(new);
        }
        let pods: BTreeSet<String> = [&change.old, &change.new]
            .into_iter()
            .flatten()
            .filter_map(pod)
            .collect();
        for pod in pods {
            memory.wake(&pod);
        }
        self.count(&memory);
    }

    /// Applies a change of a ToolDecision that the store has already. Returns the ToolApprovals that old
    /// and new version name.
    pub fn decision_changed(&self, change: &Change<StoredDecision>) -> BTreeSet<ObjectRef> {
        let mut memory = self.memory.lock();
        if let Some(old) = &change.old {
            memory.take_decision(old);
        }
        if let Some(new) = &change.new {
            memory.put_decision(new);
        }
        let versions = [&change.old, &change.new].into_iter().flatten();
        versions.filter_map(|it| it.approval()).collect()
    }

    /// Returns every ToolApproval, and those that decisions name.
    pub fn all(&self) -> BTreeSet<ObjectRef> {
        let mut all: BTreeSet<ObjectRef> = self.approvals.all().iter().map(|it| it.key()).collect();
        all.extend(self.memory.lock().decisions.keys().cloned());
        all
    }

    /// Whether a question is open.
    pub fn has_open(&self) -> bool {
        self.memory.lock().open.len() > 0
    }

    /// Returns the open ToolApprovals of an agent.
    pub fn open_of(&self, agent: &ObjectRef) -> Vec<ObjectRef> {
        let memory = self.memory.lock();
        let all = memory.agents.get(agent).into_iter().flatten();
        let open = all.filter(|key| self.get(key).is_some_and(|it| it.open().is_some()));
        open.cloned().collect()
    }

    pub fn get(&self, key: &ObjectRef) -> Option<Arc<StoredApproval>> {
        self.approvals.get(&key.namespace, &key.name)
    }

    /// Returns the ToolDecisions that name a ToolApproval, oldest first.
    pub fn decisions_on(&self, approval: &ObjectRef) -> Vec<Arc<StoredDecision>> {
        let keys = self.memory.lock().decisions.get(approval).cloned();
        let keys = keys.unwrap_or_default().into_iter();
        let mut decisions: Vec<Arc<StoredDecision>> = keys
            .filter_map(|key| self.decisions.get(&key.namespace, &key.name))
            .collect();
        decisions.sort_by_cached_key(|it| {
            let created = it.body.as_ref().and_then(|body| body.created);
            (created, it.key().name)
        });
        decisions
    }

    /// Whether a namespace has so many ToolDecisions that none about nothing is kept.
    pub fn has_too_many_decisions(&self, namespace: &str) -> bool {
        let memory = self.memory.lock();
        let count = memory.decision_counts.get(namespace);
        count.is_some_and(|count| *count > MOST_IN_NAMESPACE)
    }

    /// Returns the finished ToolApprovals of an agent beyond [`MOST_FINISHED`], oldest first.
    pub fn surplus(&self, agent: &ObjectRef) -> Vec<ObjectRef> {
        let keys = self.memory.lock().agents.get(agent).cloned();
        let keys = keys.unwrap_or_default();
        if keys.len() <= MOST_FINISHED {
            return Vec::new();
        }
        let ends =
            keys.into_iter()
                .filter_map(|key| match self.get(&key)?.body.as_ref()?.progress() {
                    Progress::Finished(_, since) => Some((since, key)),
                    Progress::Pending | Progress::Approved => None,
                });
        let mut ends: Vec<(Timestamp, ObjectRef)> = ends.collect();
        ends.sort_unstable();
        ends.truncate(ends.len().saturating_sub(MOST_FINISHED));
        ends.into_iter().map(|(_, key)| key).collect()
    }

    /// Returns whether persons have denied the agent so often that it may not ask now.
    pub fn is_denied(&self, agent: &ObjectRef, now: Timestamp) -> bool {
        let keys = self.memory.lock().agents.get(agent).cloned();
        let denials = keys.unwrap_or_default().into_iter().filter(|key| {
            let progress = self
                .get(key)
                .and_then(|it| Some(it.body.as_ref()?.progress()));
            let Some(Progress::Finished(Ending::Denied, since)) = progress else {
                return false;
            };
            now.duration_since(since).unsigned_abs() < DENIALS
        });
        denials.count() >= MOST_DENIALS
    }

    /// Counts a question as open before its ToolApproval is created, if it is within the limits.
    pub fn reserve(&self, key: &ObjectRef, entry: Entry) -> Result<(), QuestionLimit> {
        let mut memory = self.memory.lock();
        memory.open.check(&entry)?;
        memory.open.insert(key.clone(), entry);
        self.count(&memory);
        Ok(())
    }

    /// Counts a question no more, unless its ToolApproval exists and is open.
    pub fn release(&self, key: &ObjectRef) {
        let mut memory = self.memory.lock();
        match self.get(key) {
            Some(approval) => memory.put(&approval),
            None => memory.open.remove(key),
        }
        self.count(&memory);
    }

    /// Whether somebody deleted the ToolApproval of a question that was open.
    pub fn was_deleted(&self, key: &ObjectRef) -> bool {
        self.memory.lock().deleted.contains_key(key)
    }

    pub fn protection(&self) -> Protection {
        self.memory.lock().protection.clone()
    }

    /// Sets whether the admission policies hold. Returns whether that changed.
    pub fn set_protection(&self, protection: Protection) -> bool {
        let mut memory = self.memory.lock();
        if memory.leads {
            let is_off = protection != Protection::Holds;
            self.gauges.off.set(i64::from(is_off));
        }
        let changed = memory.protection != protection;
        memory.protection = protection;
        changed
    }

    /// Sets who may approve the calls of an agent.
    pub fn set_requirements(&self, agent: &ObjectRef, requirements: AgentRequirements) {
        let mut memory = self.memory.lock();
        let requirements = Arc::new(requirements);
        memory.requirements.insert(agent.clone(), requirements);
    }

    /// Returns who may approve the calls of an agent; `None` until this leader has compiled it.
    pub fn requirements(&self, agent: &ObjectRef) -> Option<Arc<AgentRequirements>> {
        self.memory.lock().requirements.get(agent).map(Arc::clone)
    }

    /// Drops the requirements of a deleted Agent.
    pub fn agent_gone(&self, agent: &ObjectRef) {
        self.memory.lock().requirements.remove(agent);
    }

    /// Notes that a pod asks a question.
    pub fn note_question(&self, pod: &str, id: &str) {
        let mut memory = self.memory.lock();
        memory.reports.note_question(pod, id, Instant::now());
    }

    /// Notes what a pod reports. Returns the ToolApprovals on which it has news.
    pub fn report(
        &self,
        agent: &ObjectRef,
        pod: &str,
        questions: &[OpenQuestion],
    ) -> Vec<ObjectRef> {
        let mut memory = self.memory.lock();
        memory.reports.merge(pod, questions, Instant::now());
        let Some(keys) = memory.agents.get(agent) else {
            return Vec::new();
        };
        let news = keys.iter().filter(|key| {
            let approval = self.get(key);
            let open = approval.as_ref().and_then(|approval| approval.open());
            open.is_some_and(|body| {
                body.pod.uid == pod
                    && match memory.reports.question_state(pod, &body.request_id) {
                        QuestionState::Unknown | QuestionState::Open => false,
                        QuestionState::Used(_) | QuestionState::Gone => true,
                    }
            })
        });
        news.cloned().collect()
    }

    /// Forgets a deleted pod. Returns the ToolApprovals that it has asked for and that are open.
    pub fn pod_gone(&self, pod: &str) -> Vec<ObjectRef> {
        let mut memory = self.memory.lock();
        memory.reports.remove_pod(pod);
        memory.deleted.retain(|_, deleted| deleted.pod != pod);
        memory.open.of_pod(pod)
    }

    /// Returns what the pod that asked reports about a question.
    pub fn question_state(&self, body: &ApprovalBody) -> QuestionState {
        let memory = self.memory.lock();
        memory
            .reports
            .question_state(&body.pod.uid, &body.request_id)
    }

    /// Returns whether the call can still be approved, as far as the agent's compilation says.
    pub fn authority(&self, agent: &ObjectRef, body: &ApprovalBody) -> CallAuthority {
        match self.requirements(agent) {
            None => CallAuthority::Unknown,
            Some(requirements) => requirements.authority(body),
        }
    }

    /// Returns the decisions for a pod's answer, and notes that they are sent.
    pub fn decisions_for(&self, agent: &ObjectRef, pod: &str) -> Vec<Decision> {
        let now = Instant::now();
        let mut memory = self.memory.lock();
        let named = memory.reports.questions(pod, now);
        let decisions = named.iter().filter_map(|question| {
            let key = ObjectRef::new(&*agent.namespace, name(&agent.name, question.id));
            let deleted = memory.deleted.get(&key).filter(|it| it.pod == pod);
            let missing = question.is_missing || deleted.is_some();
            let known = self.approvals.get(&key.namespace, &key.name);
            let known = known.filter(|it| {
                let body = it.body.as_deref();
                body.is_some_and(|body| body.pod.uid == pod && body.request_id == question.id)
            });
            let is_protected = memory.protection == Protection::Holds;
            match known {
                Some(approval) => decision(&approval, question.is_used, is_protected),
                None if missing && !question.is_used => Some(Decision {
                    id: question.id.to_owned(),
                    call_digest: deleted.map_or_else(String::new, |it| it.call_digest.clone()),
                    verdict: Verdict::Withdrawn,
                    approval: None,
                    decided_by: Vec::new(),
                    reason: "its ToolApproval does not exist".to_owned(),
                }),
                None => None,
            }
        });
        let decisions: Vec<Decision> = decisions.collect();
        let ids: Vec<&str> = decisions.iter().map(|it| &*it.id).collect();
        memory.reports.note_answer(pod, ids.into_iter(), now);
        decisions
    }

    /// Returns once there is a decision for a question that the pod reports as open, and that was not sent
    /// to it within the last second.
    pub async fn decided(&self, agent: &ObjectRef, pod: &str) {
        let wake = self.memory.lock().reports.wake(pod);
        let Some(wake) = wake else {
            return std::future::pending().await;
        };
        loop {
            let woken = wake.notified();
            tokio::pin!(woken);
            // Registers before the look, so that no decision in between is missed.
            woken.as_mut().enable();
            match self.due(agent, pod) {
                None => woken.await,
                Some(at) if at <= Instant::now() => return,
                Some(at) => tokio::select! {
                    () = woken => {}
                    () = tokio::time::sleep_until(at) => {}
                },
            }
        }
    }

    /// Returns when an answer with a decision is due; `None`: there is no decision.
    fn due(&self, agent: &ObjectRef, pod: &str) -> Option<Instant> {
        let now = Instant::now();
        let memory = self.memory.lock();
        let is_protected = memory.protection == Protection::Holds;
        let named = memory.reports.questions(pod, now).into_iter();
        let due = named.filter(|it| !it.is_used).filter_map(|question| {
            let key = ObjectRef::new(&*agent.namespace, name(&agent.name, question.id));
            let is_decided = match self.approvals.get(&key.namespace, &key.name) {
                Some(approval) => decision(&approval, false, is_protected).is_some(),
                None => memory.deleted.get(&key).is_some_and(|it| it.pod == pod),
            };
            is_decided.then_some(question.due.unwrap_or(now))
        });
        due.min()
    }
}

impl Memory {
    fn put(&mut self, approval: &StoredApproval) {
        let key = approval.key();
        let Some(agent) = approval.agent() else {
            self.open.remove(&key);
            return;
        };
        self.deleted.remove(&key);
        match approval.open() {
            Some(body) => {
                let entry = Entry {
                    pod: body.pod.uid.clone(),
                    agent: agent.clone(),
                    bytes: body.argument_bytes,
                };
                self.open.insert(key.clone(), entry);
            }
            None => self.open.remove(&key),
        }
        self.agents.entry(agent).or_default().insert(key);
    }

    fn take(&mut self, approval: &StoredApproval) {
        let key = approval.key();
        self.open.remove(&key);
        if let Some(agent) = approval.agent()
            && let Some(keys) = self.agents.get_mut(&agent)
        {
            keys.remove(&key);
            if keys.is_empty() {
                self.agents.remove(&agent);
            }
        }
    }

    fn put_decision(&mut self, decision: &StoredDecision) {
        if let Some(approval) = decision.approval() {
            let namespace = approval.namespace.clone();
            let decisions = self.decisions.entry(approval).or_default();
            if decisions.insert(decision.key()) {
                *self.decision_counts.entry(namespace).or_default() += 1;
            }
        }
    }

    fn take_decision(&mut self, decision: &StoredDecision) {
        if let Some(approval) = decision.approval()
            && let Some(keys) = self.decisions.get_mut(&approval)
        {
            if keys.remove(&decision.key()) {
                decrease(&mut self.decision_counts, &*approval.namespace);
            }
            if keys.is_empty() {
                self.decisions.remove(&approval);
            }
        }
    }

    fn wake(&self, pod: &str) {
        if let Some(wake) = self.reports.wake(pod) {
            wake.notify_waiters();
        }
    }
}

/// The decision that the status of an approval says. A mediator that reports its use is answered until
/// the use is in the status.
fn decision(approval: &StoredApproval, is_used: bool, is_protected: bool) -> Option<Decision> {
    let body = approval.body.as_deref()?;
    let verdict = match body.progress() {
        Progress::Pending | Progress::Finished(Ending::Used, _) => return None,
        Progress::Approved if is_used || is_protected => Verdict::Approved,
        Progress::Approved => return None,
        Progress::Finished(..) if is_used => return None,
        Progress::Finished(Ending::Denied, _) => Verdict::Denied,
        Progress::Finished(Ending::Expired, _) => Verdict::Expired,
        Progress::Finished(Ending::Withdrawn, _) => Verdict::Withdrawn,
    };
    let denied = denial(&body.status);
    let (decided_by, reason) = match (verdict, denied) {
        (Verdict::Denied, Some(denied)) => (vec![denied.username.clone()], &*denied.reason),
        (Verdict::Approved, _) => {
            let approvals = body.status.decisions.iter();
            let approvals = approvals.filter(|it| it.verdict == DecisionVerdict::Approve);
            let names: BTreeSet<&String> = approvals.map(|it| &it.username).collect();
            (names.into_iter().cloned().collect(), "")
        }
        (Verdict::Denied | Verdict::Expired | Verdict::Withdrawn, _) => {
            (Vec::new(), body.why_decided())
        }
    };
    Some(Decision {
        id: body.request_id.clone(),
        call_digest: body.call_digest.clone(),
        verdict,
        approval: Some(ApprovalRef {
            name: approval.key().name,
            uid: approval.uid().to_owned(),
        }),
        decided_by,
        reason: toolcrib_bounds::cut(reason, LONGEST_REASON).into_owned(),
    })
}

#[cfg(test)]
mod tests;
