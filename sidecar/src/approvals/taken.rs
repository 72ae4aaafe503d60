//! An approval that its call is using.

use std::sync::Arc;

use toolcrib_manifest::ApprovalUse;
use toolcrib_mediation::{Approval, ApprovalNeed, ResultCode};
use toolcrib_record::UsedApproval;

use super::Approvals;

/// An approval that was given out. When this is dropped, the operator hears what became of the call. A call
/// that was not sent was refused, although a person approved it.
#[derive(Debug)]
pub struct TakenApproval {
    approvals: Arc<Approvals>,
    need: ApprovalNeed,
    line: UsedApproval,
    used: ApprovalUse,
    /// The result of a call that was refused before it was sent.
    code: Option<ResultCode>,
}

impl TakenApproval {
    pub(super) fn new(approvals: &Arc<Approvals>, id: &str, approval: Approval) -> Self {
        Self {
            approvals: approvals.clone(),
            need: approval.need,
            line: UsedApproval {
                question: id.to_owned(),
                name: approval.object.name,
                uid: approval.object.uid,
                decided_by: approval.decided_by,
            },
            used: ApprovalUse::Refused,
            code: None,
        }
    }

    /// The need for which the approval was asked.
    pub fn need(&self) -> &ApprovalNeed {
        &self.need
    }

    /// The approval for the intent line of its call.
    pub fn line(&self) -> &UsedApproval {
        &self.line
    }

    /// The call was decided again, and refused.
    pub fn refused(&mut self, code: ResultCode) {
        self.code = Some(code);
    }

    /// The intent line is written, and the call is about to be sent.
    pub fn sent(&mut self) {
        self.used = ApprovalUse::Unknown;
    }

    pub fn finished(&mut self, is_success: bool) {
        self.used = match is_success {
            true => ApprovalUse::Succeeded,
            false => ApprovalUse::Failed,
        };
    }
}

impl Drop for TakenApproval {
    fn drop(&mut self) {
        self.approvals
            .used(&self.line.question, self.used, self.code);
    }
}
