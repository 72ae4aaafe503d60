//! The output: the grants for review, the tests, the remarks, and all of them as JSON.

use std::collections::BTreeMap;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use toolcrib_bounds::listed;
use toolcrib_compile::{Compilation, Effect, Inputs, ObjectRef, Plan};
use toolcrib_manifest::Identity;

use super::cases::{self, Cases, Decider};
use super::change;
use super::evidence::Evidence;
use super::grant::{ProposedGrant, UsedTool, calls_of};
use super::limits::Limit;
use super::offers::OfferedTool;
use crate::args::{ProposeArgs, ProposeOutput};
use crate::commands::plan;
use crate::print::{self, Color, Output};

/// Limits the names that a comment lists.
const LISTED: usize = 100;

/// Names from the record, safe to print.
pub fn plain_names<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    names.map(print::brief).collect()
}

fn grant_names(grants: &[ObjectRef]) -> Vec<String> {
    let names = grants.iter().map(|key| format!("ToolGrant {key}"));
    names.collect()
}

/// The data of every output format.
pub struct Proposal<'p> {
    pub args: &'p ProposeArgs,
    pub agent: &'p ObjectRef,
    pub before: &'p Compilation,
    pub after: Compilation,
    /// The objects after the change.
    pub objects: &'p Inputs,
    pub planned: Plan,
    /// The grants that name the agent now.
    pub present: Vec<ObjectRef>,
    /// Grants in `present` with times, rates or `when`.
    pub conditional: Vec<ObjectRef>,
    pub offers: &'p BTreeMap<String, OfferedTool>,
    pub evidence: &'p Evidence,
    pub used: &'p [UsedTool<'p>],
    pub grants: &'p [ProposedGrant],
}

impl Proposal<'_> {
    /// The text for standard output.
    pub fn answer(&self) -> anyhow::Result<String> {
        match self.args.output {
            ProposeOutput::Yaml => self.text(),
            ProposeOutput::Tests => {
                let tests = self.tests()?.context(
                    "no call can be decided: correct the findings above, or resume the agent",
                )?;
                print::annotated(&tests.head, &tests.object, &tests.notes)
            }
            ProposeOutput::Json => print::value(&self.value()?, Output::Json),
        }
    }

    /// The grants as YAML.
    fn text(&self) -> anyhow::Result<String> {
        let mut texts = Vec::new();
        for (index, grant) in self.grants.iter().enumerate() {
            let head = match index {
                0 => self.head(),
                _ => vec!["More entries than one grant may have.".to_owned()],
            };
            texts.push(print::annotated(&head, &grant.object, &grant.notes)?);
        }
        Ok(texts.join("---\n"))
    }

    fn head(&self) -> Vec<String> {
        let calls = self.evidence.calls;
        let times = match self.evidence.span {
            Some((first, last)) => format!(", of a record from {first} to {last}"),
            None => String::new(),
        };
        let mut head = vec![format!(
            "Proposed for Agent {} by {} that succeeded{times}. Review it: nothing is applied.",
            self.agent,
            calls_of(calls.succeeded)
        )];
        if calls.all() > calls.succeeded {
            head.push(format!(
                "Left out: {} failed, {} denied, {} with an unknown outcome.",
                calls.failed, calls.denied, calls.unknown
            ));
        }
        for (what, names) in [
            ("Called, and never with success", self.unsuccessful()),
            (
                "Called, and not offered by the agent's surfaces now",
                plain_names(self.evidence.unoffered.iter()),
            ),
            ("Granted now, and not used", self.unused()),
        ] {
            if !names.is_empty() {
                head.push(format!("{what}: {}.", listed(&names, LISTED)));
            }
        }
        if !self.conditional.is_empty() {
            head.push(format!(
                "Times, rates and `when` of {} are not in it, since no record shows them: add them if they should hold.",
                listed(grant_names(&self.conditional), LISTED)
            ));
        }
        head
    }

    /// The offered tools whose calls never succeeded.
    fn unsuccessful(&self) -> Vec<String> {
        let tools = self.evidence.tools.iter();
        let failed = tools.filter(|(_, tool)| tool.calls.succeeded == 0);
        plain_names(failed.map(|(name, _)| name.as_str()))
    }

    fn unused(&self) -> Vec<String> {
        let is_used = |name: &str| self.used.iter().any(|tool| tool.called == name);
        let tools = self.before.tools.iter().map(|tool| tool.name.as_str());
        plain_names(tools.filter(|name| !is_used(name)))
    }

    fn tests(&self) -> anyhow::Result<Option<Cases>> {
        if self.after.suspension().is_some() {
            return Ok(None);
        }
        let is_pod = self.after.files.agent.identity == Identity::Pod;
        let decider = Decider {
            inputs: self.objects,
            compilation: &self.after,
            pod: self.evidence.pod.as_deref().filter(|_| is_pod),
            // Other grants may have windows; the proposed ones have none. So the record's end decides.
            now: self
                .evidence
                .span
                .map_or(Timestamp::UNIX_EPOCH, |(_, last)| last),
        };
        let arguments = match self.args.arguments {
            true => cases::Arguments::Recorded,
            false => cases::Arguments::MadeUp,
        };
        cases::cases(&decider, self.used, self.offers, arguments)
    }

    /// Prints the effects of the change on standard error.
    pub fn remarks(&self) {
        let tools: Vec<&str> = self.used.iter().map(|tool| tool.called).collect();
        for (source, tool) in change::still_given(&self.after, &self.keys(), &tools) {
            eprintln!(
                "note: {} {} also gives {}, without the limits of this grant",
                source.kind.name(),
                source.key,
                print::plain(&tool)
            );
        }
        let present = grant_names(&self.present);
        match present.is_empty() {
            true => eprintln!("plan, if it is added:"),
            false => eprintln!(
                "plan, if it replaces what {} gives to this agent:",
                listed(&present, LISTED)
            ),
        }
        eprint!("{}", plan::table(&self.planned, Color::Off));
    }

    fn keys(&self) -> Vec<ObjectRef> {
        let names = self
            .grants
            .iter()
            .map(|grant| &grant.object["metadata"]["name"]);
        names
            .filter_map(|name| Some(ObjectRef::new(self.agent.namespace.clone(), name.as_str()?)))
            .collect()
    }

    /// The answer for programs.
    fn value(&self) -> anyhow::Result<Value> {
        let tests = self.tests()?;
        let grants: Vec<&Value> = self.grants.iter().map(|grant| &grant.object).collect();
        let tools: Vec<Value> = self.used.iter().map(of_tool).collect();
        Ok(json!({
            "agent": self.agent,
            "calls": self.evidence.calls,
            "first": self.evidence.span.map(|(first, _)| first.to_string()),
            "last": self.evidence.span.map(|(_, last)| last.to_string()),
            "grants": grants,
            "tools": tools,
            "neverSucceeded": self.unsuccessful(),
            "notOffered": plain_names(self.evidence.unoffered.iter()),
            "notUsed": self.unused(),
            "tests": tests.map(|tests| tests.object),
            "plan": {
                "agents": self.planned.agents,
                "counts": {
                    "gains": self.planned.count(Effect::Gain),
                    "losses": self.planned.count(Effect::Loss),
                    "changes": self.planned.count(Effect::Change),
                },
            },
        }))
    }
}

fn of_tool(tool: &UsedTool<'_>) -> Value {
    let arguments = tool.limits.iter().map(|argument| {
        let (limit, open) = match &argument.limit {
            Limit::Pin(_) => ("pin", None),
            Limit::OneOf(_) => ("enum", None),
            Limit::Range(..) => ("bounds", None),
            Limit::Open(reason) => ("open", Some(reason.words())),
        };
        json!({"name": argument.name, "calls": argument.calls, "limit": limit, "because": open})
    });
    json!({
        "name": tool.called,
        "calls": tool.evidence.calls,
        "arguments": arguments.collect::<Vec<_>>(),
    })
}
