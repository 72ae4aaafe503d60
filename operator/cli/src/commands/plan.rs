//! `plan`: the gains and losses of agents if the files were applied.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::Context as _;
use toolcrib_bounds::count;
use toolcrib_compile::{
    AgentPlan, Change, Diagnostic, Effect, Fate, Inputs, Kind, LoadResult, ObjectRef, Plan,
    Severity, compile_all, near,
};

use crate::print::Output;
use crate::{
    args::{AssumedArgs, PlanArgs},
    cluster::{Scope, Session, WithoutCluster},
    failure::Failure,
    operator,
    print::{self, Color},
    sources,
};

/// Exit code for a difference that the user wants to fail on.
const REFUSED: u8 = 3;

pub fn plan(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let (files, before, after) = if args.against.is_empty() {
        against_cluster(args)?
    } else {
        against_files(args)?
    };
    print::findings(&files, &new_findings(&before, &after));
    check_agent(args, &before, &after)?;
    let mut plan = toolcrib_compile::plan(&before, &after);
    plan.agents.retain(|planned| wanted(args, planned));
    let text = match args.output {
        Output::Table => table(&plan, Color::of_stdout()),
        Output::Json | Output::Yaml => {
            let counts = serde_json::json!({
                "gains": plan.count(Effect::Gain),
                "losses": plan.count(Effect::Loss),
                "changes": plan.count(Effect::Change),
            });
            let value = serde_json::json!({"agents": plan.agents, "counts": counts});
            print::value(&value, args.output)?
        }
    };
    print::to_stdout(&text).context("cannot write to standard output")?;
    let any = |may: fn(&Change) -> bool| {
        let mut changes = plan.agents.iter().flat_map(|planned| &planned.changes);
        changes.any(may)
    };
    let refused = args.fail_on_loss && any(Change::may_take)
        || args.fail_on_gain && any(Change::may_give)
        || args.fail_on_change && !plan.is_empty();
    let mut findings = files.diagnostics.iter();
    let is_broken = findings.any(|found| found.severity == Severity::Error);
    Ok(ExitCode::from(if refused {
        REFUSED
    } else {
        u8::from(is_broken)
    }))
}

/// Refuses a name that no agent has before or after the change: its plan would always be empty.
fn check_agent(args: &PlanArgs, before: &Inputs, after: &Inputs) -> Result<(), Failure> {
    let Some(name) = &args.agent else {
        return Ok(());
    };
    let namespace = args.cluster.namespace.as_ref();
    let keys = [before, after].map(|inputs| inputs.agents().map(|(key, _)| key));
    let keys: BTreeSet<&ObjectRef> = keys.into_iter().flatten().collect();
    let fits = |key: &&ObjectRef| {
        key.name == *name && namespace.is_none_or(|namespace| key.namespace == *namespace)
    };
    if keys.iter().any(fits) {
        return Ok(());
    }
    let meant = near::other(name, keys.iter().map(|key| &*key.name));
    let known: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let known = match known.is_empty() {
        true => "none".to_owned(),
        false => known.join(", "),
    };
    Err(Failure::usage(format_args!(
        "no agent {name} before or after the change{meant}; there are: {known}"
    )))
}

type LoadedSides = (LoadResult, Inputs, Inputs);

fn against_files(args: &PlanArgs) -> Result<LoadedSides, Failure> {
    let namespace = args.cluster.namespace.as_deref();
    let settings = operator::settings(&args.files.operator);
    let files = sources::loaded_into(&args.files.paths, namespace, settings.clone())?;
    let mut before = sources::loaded_into(&args.against, namespace, settings)?.inputs;
    let mut after = if args.prune {
        files.inputs.clone()
    } else {
        before.overlaid(&files.inputs)
    };
    let assumed = AssumedArgs {
        secrets: true,
        ..args.assumed
    };
    sources::assume(&mut [&mut before, &mut after], assumed)?;
    Ok((files, before, after))
}

/// Compares with the cluster. A surface's change may concern agents of any namespace, so all
/// namespaces are read if the user may read them.
fn against_cluster(args: &PlanArgs) -> Result<LoadedSides, Failure> {
    sources::exist(&args.files.paths)?;
    let session = Session::open(&args.cluster, &args.files.operator, WithoutCluster::Against)?;
    let files = sources::loaded_into(
        &args.files.paths,
        Some(session.default_namespace()),
        operator::settings(&args.files.operator),
    )?;
    let touched = namespaces(&files);
    let cluster = if args.cluster.namespace.is_some() {
        session.read(Scope::Namespaces(touched.clone()), Some(&files.inputs))?
    } else {
        session.read_widely(touched.clone(), Some(&files.inputs))?
    };
    cluster.print_notes();
    let mut before = cluster.loaded.inputs;
    let mut after = if args.prune {
        before.without_ours(&touched).overlaid(&files.inputs)
    } else {
        before.overlaid(&files.inputs)
    };
    sources::assume(&mut [&mut before, &mut after], args.assumed)?;
    Ok((files, before, after))
}

/// Returns the namespaces of the objects in the files.
fn namespaces(files: &LoadResult) -> BTreeSet<String> {
    files
        .origins
        .keys()
        .filter(|subject| subject.kind != Kind::Namespace)
        .map(|subject| subject.key.namespace.clone())
        .collect()
}

fn wanted(args: &PlanArgs, planned: &AgentPlan) -> bool {
    let fits = |wanted: &Option<String>, name: &String| {
        wanted.as_ref().is_none_or(|wanted| wanted == name)
    };
    fits(&args.agent, &planned.agent.name)
        && fits(&args.cluster.namespace, &planned.agent.namespace)
}

/// Returns the findings that are there after the change and not before.
pub fn new_findings(before: &Inputs, after: &Inputs) -> Vec<Diagnostic> {
    let found = |inputs| -> BTreeSet<Diagnostic> {
        compile_all(inputs)
            .into_values()
            .flat_map(|compilation| compilation.diagnostics)
            .collect()
    };
    let known = found(before);
    found(after).difference(&known).cloned().collect()
}

/// The gains and losses as a table, with their numbers.
pub fn table(plan: &Plan, color: Color) -> String {
    if plan.is_empty() {
        return "nothing changes for any agent\n".to_owned();
    }
    let mut rows = Vec::new();
    for planned in &plan.agents {
        let agent = planned.agent.to_string();
        let of_agent = |effect: &str, why: String| {
            vec![agent.clone(), effect.to_owned(), "agent".to_owned(), why]
        };
        match planned.fate {
            Fate::Kept => {}
            Fate::Created => rows.push(of_agent("created", String::new())),
            Fate::Deleted => {
                let why = "its pods are denied everything".to_owned();
                rows.push(of_agent("deleted", why));
            }
            Fate::Unreadable => rows.push(of_agent("unreadable", String::new())),
        }
        rows.extend(
            planned
                .suspended
                .iter()
                .map(|why| of_agent("suspended", why.clone())),
        );
        rows.extend(
            planned
                .refused
                .iter()
                .map(|why| of_agent("refused", why.clone())),
        );
        for change in &planned.changes {
            rows.push(vec![
                agent.clone(),
                change.effect.to_string(),
                change.what(),
                why(change),
            ]);
        }
        for unknown in &planned.unknown {
            let why = "could not be read: what depends on it is not certain".to_owned();
            rows.push(vec![
                agent.clone(),
                "unknown".to_owned(),
                unknown.clone(),
                why,
            ]);
        }
    }
    let mut text = print::table(&["AGENT", "EFFECT", "WHAT", "WHY"], &rows);
    text = color.words(&text, &[("gains", Color::GREEN), ("loses", Color::RED)]);
    let gains = count(plan.count(Effect::Gain), "gain");
    let losses = count(plan.count(Effect::Loss), "loss");
    let changes = count(plan.count(Effect::Change), "other change");
    let mut all = plan.agents.iter().flat_map(|planned| &planned.changes);
    let note = match all.any(Change::replaces_rules) {
        true => {
            "limits that differ may give or take calls: they count for --fail-on-gain and --fail-on-loss\n"
        }
        false => "",
    };
    format!("{text}\n{gains}, {losses}, {changes}\n{note}")
}

fn why(change: &Change) -> String {
    match change.effect {
        Effect::Gain if !change.is_of_calls() && !change.because.is_empty() => {
            format!("by {}", change.because.join("; "))
        }
        Effect::Gain | Effect::Loss => change.because.join("; "),
        Effect::Change => {
            let details: Vec<String> = change.shown_details().map(ToString::to_string).collect();
            details.join("; ")
        }
    }
}
