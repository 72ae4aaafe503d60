//! Why an agent's new files are not written, or give nothing.

use toolcrib_crds::Agent;
use toolcrib_manifest::{Mode, Suspension};

use crate::compilation::files::Files;
use crate::compile::authority::policies::Policies;
use crate::compile::authority::suspension;
use crate::diagnostics;
use crate::objects::Unusable;
use crate::{Code, Diagnostic, Diagnostics, Kind, ObjectRef, Objects, Subject};

/// Whether an agent gets nothing, whatever its grants say.
pub(crate) struct Stop {
    /// The agent is suspended, by itself or by a policy.
    pub suspension: Option<Suspension>,
    /// A policy that may restrict the agent cannot be read, so no files are written.
    pub blocked: Option<Diagnostic>,
}

impl Stop {
    /// Returns and reports what stops the agent.
    pub fn of(
        key: &ObjectRef,
        agent: &Agent,
        policies: &Policies,
        found: &mut Diagnostics,
    ) -> Self {
        let suspension =
            suspension::suspension(key, agent, found).or_else(|| policies.suspension(key, found));
        // A suspended agent has nothing that a policy could withhold.
        let blocked = match &suspension {
            Some(_) => None,
            None => policies.blocks(key),
        };
        found.extend(blocked.clone());
        Self {
            suspension,
            blocked,
        }
    }

    /// True if the agent is compiled as if it had no grants, surfaces and providers. So a
    /// suspension waits for no other object; the files of a blocked agent are not written.
    pub fn is_idle(&self) -> bool {
        self.suspension.is_some() || self.blocked.is_some()
    }
}

/// Reports an Agent over a memory budget. It is compiled without its spec, so it gets nothing: if
/// its older files stayed in force, growing an Agent would freeze a revoked grant.
pub(crate) fn too_expensive(
    objects: &dyn Objects,
    key: &ObjectRef,
    found: &mut Diagnostics,
) -> Option<Diagnostic> {
    let Unusable { code, reason } = objects.unusable(Kind::Agent, key)?;
    let refusal = Diagnostic {
        object: Subject::new(Kind::Agent, key),
        field: String::new(),
        code,
        severity: code.severity(),
        message: reason,
    };
    found.extend([refusal.clone()]);
    Some(refusal)
}

/// Reports an agent without a model: as an error if it holds tools, which no model can call, and as
/// a warning otherwise. A native runner calls tools itself and may get its model from elsewhere.
/// `unserved` is the cause, if a model or provider is at fault.
pub(crate) fn no_model_provider(
    key: &ObjectRef,
    files: &Files,
    unserved: Option<&str>,
    found: &mut Diagnostics,
) -> Option<Diagnostic> {
    match files.agent.mode {
        Mode::Native => return None,
        Mode::Mediated => {}
    }
    // A suspension is reported by itself.
    if !files.providers.providers.is_empty() || files.agent.suspension.is_some() {
        return None;
    }
    let (subject, field) = (Subject::new(Kind::Agent, key), "spec.models");
    if files.tools.tools.is_empty() {
        let message = match unserved {
            Some(why) => format!("requests for a model are refused: {why}"),
            None => format!(
                "requests for a model are refused, since no usable ModelProvider of namespace {} serves one for this agent: create one, correct spec.models, or set mode: Native if its runner gets its model from elsewhere",
                key.namespace
            ),
        };
        let message = toolcrib_bounds::cut(&message, diagnostics::MESSAGE);
        found.add(&subject, field, Code::NoModel, message);
        return None;
    }
    let message = match unserved {
        Some(why) => format!("no model can call the agent's tools: {why}"),
        None => format!(
            "the agent holds tools, and no usable ModelProvider of namespace {} serves a model for it: create one, correct spec.models, or set mode: Native if its runner calls tools over MCP",
            key.namespace
        ),
    };
    let refusal = Diagnostic {
        object: subject,
        field: field.to_owned(),
        code: Code::NoModelProvider,
        severity: Code::NoModelProvider.severity(),
        message: toolcrib_bounds::cut(&message, diagnostics::MESSAGE).into_owned(),
    };
    found.extend([refusal.clone()]);
    Some(refusal)
}
