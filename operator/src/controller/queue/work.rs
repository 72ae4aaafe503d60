//! The keys of the queues: Toolcrib's objects that are to be reconciled, and ToolApprovals.

use toolcrib_compile::{Kind, ObjectRef, Subject};

use super::fair_queue::InLane;
use super::{Key, Step};

/// A piece of work: the reconcile of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work {
    pub kind: WorkKind,
    pub key: ObjectRef,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkKind {
    /// Compiled, written and reported.
    Agent,
    /// Like the kinds below, only checked and reported.
    Surface,
    ToolGrant,
    ToolDefaults,
    ModelProvider,
    ClusterToolPolicy,
}

impl WorkKind {
    pub fn kind(self) -> Kind {
        match self {
            WorkKind::Agent => Kind::Agent,
            WorkKind::Surface => Kind::Surface,
            WorkKind::ToolGrant => Kind::ToolGrant,
            WorkKind::ToolDefaults => Kind::ToolDefaults,
            WorkKind::ModelProvider => Kind::ModelProvider,
            WorkKind::ClusterToolPolicy => Kind::ClusterToolPolicy,
        }
    }

    pub fn work(self, key: ObjectRef) -> Work {
        Work { kind: self, key }
    }
}

impl Work {
    pub fn subject(&self) -> Subject {
        Subject::new(self.kind.kind(), &self.key)
    }

    pub fn is_agent(&self) -> bool {
        self.kind == WorkKind::Agent
    }
}

impl InLane for Work {
    fn lane(&self) -> &str {
        &self.key.namespace
    }
}

impl Key for Work {
    /// Agents begin with `Publish`, since their mediators wait for the allowlist.
    fn begins(&self) -> Step {
        match self.kind {
            WorkKind::Agent => Step::Publish,
            WorkKind::Surface
            | WorkKind::ToolGrant
            | WorkKind::ToolDefaults
            | WorkKind::ModelProvider
            | WorkKind::ClusterToolPolicy => Step::Write,
        }
    }
}

/// A ToolApproval about which something may have to be written, even if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApprovalWork(pub ObjectRef);

impl InLane for ApprovalWork {
    fn lane(&self) -> &str {
        &self.0.namespace
    }
}

impl Key for ApprovalWork {
    fn begins(&self) -> Step {
        Step::Write
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::KINDS;

    #[test]
    fn each_kind_of_work_has_a_metric_label() {
        let kinds = [
            WorkKind::Agent,
            WorkKind::Surface,
            WorkKind::ToolGrant,
            WorkKind::ToolDefaults,
            WorkKind::ModelProvider,
            WorkKind::ClusterToolPolicy,
        ];
        assert_eq!(kinds.map(|kind| kind.kind().name()), KINDS);
    }
}
