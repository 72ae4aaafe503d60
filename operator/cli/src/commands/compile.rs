//! `compile`: the objects that the operator would write.

use std::process::ExitCode;

use anyhow::Context as _;
use toolcrib_compile::{
    Compilation, Diagnostic, Inputs, check_defaults, check_grant, check_provider, check_surface,
    compile_all,
};

use crate::print::Format;
use crate::{
    args::CompileArgs,
    failure::Failure,
    print,
    sources::{self, ObjectScope, ObjectSource},
};

pub fn compile(args: &CompileArgs) -> Result<ExitCode, Failure> {
    let objects = sources::objects(&args.source, ObjectScope::Namespace)?;
    let (loaded, namespace) = (&objects.loaded, &objects.namespace);
    if matches!(objects.from, ObjectSource::Files) && loaded.inputs.is_without_ours() {
        return Err(Failure::usage(
            "no object of toolcrib.dev in the files: name files with Agents, Surfaces or ToolGrants with -f",
        ));
    }
    if let Some(agent) = &args.agent {
        sources::find_agent(loaded, agent, namespace.as_deref(), &objects.from)?;
    }
    let all = compile_all(&loaded.inputs);
    let wanted = |compilation: &&Compilation| {
        let agent = &compilation.agent;
        args.agent.as_ref().is_none_or(|name| agent.name == *name)
            && namespace
                .as_ref()
                .is_none_or(|namespace| agent.namespace == *namespace)
    };
    let compilations: Vec<&Compilation> = all.values().filter(wanted).collect();

    // For one agent, only its own findings; for all, also those of objects that no agent uses.
    let mut found: Vec<Diagnostic> = compilations
        .iter()
        .flat_map(|compilation| compilation.diagnostics.clone())
        .collect();
    if args.agent.is_none() {
        found.extend(of_objects(&loaded.inputs));
    }
    let findings = print::findings(loaded, &found);
    let text = match args.output {
        Format::Table => rows(&compilations),
        Format::Yaml | Format::Json => {
            let objects: Vec<_> = compilations
                .iter()
                .flat_map(|compilation| compilation.objects())
                .collect();
            print::objects(&objects, args.output)?
        }
    };
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(findings.exit_code())
}

/// Returns the findings on each object by itself.
pub(super) fn of_objects(inputs: &Inputs) -> Vec<Diagnostic> {
    let surfaces = inputs
        .surfaces()
        .filter_map(|(key, _)| check_surface(inputs, key));
    let grants = inputs
        .grants()
        .filter_map(|(key, _)| check_grant(inputs, key));
    let defaults = inputs
        .defaults()
        .filter_map(|(key, _)| check_defaults(inputs, key));
    let providers = inputs
        .providers()
        .filter_map(|(key, _)| check_provider(inputs, key));
    surfaces
        .flat_map(|report| report.diagnostics)
        .chain(grants.flat_map(|report| report.diagnostics))
        .chain(defaults.flat_map(|report| report.diagnostics))
        .chain(providers.flat_map(|report| report.diagnostics))
        .collect()
}

fn rows(compilations: &[&Compilation]) -> String {
    let mut rows = Vec::new();
    for compilation in compilations {
        let agent = compilation.agent.to_string();
        for tool in &compilation.tools {
            rows.push(vec![
                agent.clone(),
                tool.name.clone(),
                tool.tier.name().to_string(),
                tool.credential.name().to_string(),
                format!("{} {}", tool.grant.kind.name(), tool.grant.key),
            ]);
        }
        for withheld in &compilation.withheld {
            let why = format!("withheld: {}", withheld.code.name());
            rows.push(vec![
                agent.clone(),
                withheld.what.clone(),
                "-".into(),
                "-".into(),
                why,
            ]);
        }
        if compilation.tools.is_empty() && compilation.withheld.is_empty() {
            rows.push(vec![
                agent,
                "-".into(),
                "-".into(),
                "-".into(),
                "no grant".into(),
            ]);
        }
    }
    print::table(&["AGENT", "TOOL", "TIER", "CREDENTIAL", "GIVEN BY"], &rows)
}
