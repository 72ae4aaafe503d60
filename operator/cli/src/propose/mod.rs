//! `propose`: the narrowest ToolGrant that would have allowed the calls of an agent.
//!
//! [`sources`] reads the objects and the calls, [`offers`] has the tools of the agent's surfaces,
//! [`evidence`] and [`values`] have the recorded calls and values of each, [`limits`] derives the
//! limits, [`grant`] and [`cases`] write the texts for review, [`change`] makes the objects with
//! the new grants, [`answer`] the output. Nothing is applied. Not here: the lines of records
//! ([`crate::record`]), and the decision on a call ([`crate::policy`]).
//!
//! Invariant: the same record and objects give the same bytes, in any order of the calls.

mod answer;
mod cases;
mod change;
pub mod evidence;
pub mod grant;
mod limits;
pub mod offers;
mod sources;
mod values;

use std::process::ExitCode;

use anyhow::Context as _;
use toolcrib_compile::{ObjectRef, compile};
use toolcrib_crds::{ToolGrant, refusals};

use self::answer::Proposal;
use self::evidence::Evidence;
use self::grant::ProposedGrant;
use crate::args::{ProposeArgs, ProposeOutput};
use crate::commands::plan;
use crate::failure::Failure;
use crate::print::{self, Findings};
use crate::record;

pub fn propose(args: &ProposeArgs) -> Result<ExitCode, Failure> {
    let (loaded, agent) = sources::objects(args)?;
    let before = &loaded.inputs;
    let compilation = compile(before, &agent).context("the agent cannot be compiled")?;
    sources::refuse_pods_in_files(args, &compilation)?;
    let offers = offers::offers(before, &agent);
    let record = sources::of_agent(&args.record, &agent);
    let (evidence, statistics) = sources::collect(&record, &agent, &offers)?;
    let used = grant::used(&evidence, &offers, args.bounds);
    let present = change::present(before, &agent);
    let name = match &args.name {
        Some(name) => name.clone(),
        None => format!("{}-proposed", agent.name),
    };
    let grants = grant::grants(&agent, &name, &used, &change::feeds(&present))?;
    if grants.is_empty() {
        return Err(nothing_used(&agent, &evidence));
    }
    let after = change::replaced(before, &agent, &typed(&grants)?);
    let findings = print::findings(&loaded, &plan::new_findings(before, &after));
    let proposal = Proposal {
        args,
        agent: &agent,
        before: &compilation,
        after: compile(&after, &agent).context("the agent cannot be compiled with the grant")?,
        objects: &after,
        planned: toolcrib_compile::plan(before, &after),
        present: present.iter().map(|(key, _)| (*key).clone()).collect(),
        conditional: change::conditional(&present),
        offers: &offers,
        evidence: &evidence,
        used: &used,
        grants: &grants,
    };
    print::to_stdout(&proposal.answer()?).context("cannot write to standard output")?;
    let code = record::remarks(&args.record, &statistics, false);
    if args.output == ProposeOutput::Yaml {
        proposal.remarks();
    }
    Ok(match findings {
        Findings::Clean => code,
        Findings::Errors => findings.exit_code(),
    })
}

fn nothing_used(agent: &ObjectRef, evidence: &Evidence) -> Failure {
    let calls = grant::calls_of(evidence.calls.all());
    let unoffered: Vec<String> = answer::plain_names(evidence.unoffered.iter());
    Failure::Failed(match unoffered.is_empty() {
        true => anyhow::anyhow!(
            "{agent} has {calls} in this record and none succeeded, so there is nothing to grant: choose a longer span"
        ),
        false => anyhow::anyhow!(
            "no tool that {agent} called is offered by its surfaces now ({}): correct spec.surfaces of the agent",
            unoffered.join(", ")
        ),
    })
}

/// The grants as their kind. Each is one that the API server accepts.
fn typed(grants: &[ProposedGrant]) -> anyhow::Result<Vec<ToolGrant>> {
    let mut typed = Vec::new();
    for grant in grants {
        if let Some(refusal) = refusals("ToolGrant", &grant.object).first() {
            anyhow::bail!(
                "the API server would refuse the proposed grant: {}: {}",
                refusal.field,
                refusal.message
            );
        }
        typed.push(grant.typed()?);
    }
    Ok(typed)
}
