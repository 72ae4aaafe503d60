//! `test`: policy tests as files.
//!
//! A [`file::ToolTest`] states whether an agent's call with certain arguments is allowed or denied,
//! and for which reason. This module does not decide that: the operator's compiler compiles the
//! agent, and the mediator's own turn handles the call, up to the request that it would send.
//! Nothing is sent.

mod call;
mod file;
mod verdict;

use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use toolcrib_compile::{Compilation, LoadResult, ObjectRef, Origin, compile, near};

use crate::print::Output;
use crate::{
    args::{AssumedArgs, TestArgs},
    failure::Failure,
    print, sources,
};
pub use call::{Call, Outcome, call};
pub use file::{API_VERSION, KIND, Verdict};
use file::{Case, ToolTest};
use verdict::Difference;

/// One case and its outcome.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// `namespace/name` of the ToolTest.
    test: String,
    case: String,
    agent: ObjectRef,
    call: String,
    passed: bool,
    /// The expectations that were not met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<Difference>,
    actual: call::Outcome,
    #[serde(skip)]
    origin: Origin,
    #[serde(skip)]
    arguments: String,
}

pub fn test(args: &TestArgs) -> Result<ExitCode, Failure> {
    let mut loaded = sources::loaded(&args.files)?;
    let assumed = AssumedArgs {
        secrets: true,
        ..args.assumed
    };
    sources::assume(&mut [&mut loaded.inputs], assumed)?;
    let tests = file::tests(&loaded).map_err(Failure::Usage)?;
    if tests.is_empty() {
        return Err(Failure::usage(format_args!(
            "no {} in the files: kubectl toolcrib test --help shows one",
            file::KIND
        )));
    }
    // With an undecodable object, a test would pass or fail for the wrong reason.
    let findings = print::findings(&loaded, []);
    if findings == print::Findings::Errors {
        return Ok(findings.exit_code());
    }
    let now = args.now.unwrap_or_else(Timestamp::now);
    let mut reports = Vec::new();
    for (origin, test) in &tests {
        reports.extend(run(&loaded, origin, test, now)?);
    }
    let text = match args.output {
        Output::Table => text(&reports),
        Output::Json | Output::Yaml => print::value(&summary(&reports), args.output)?,
    };
    print::to_stdout(&text).context("cannot write to standard output")?;
    let failed = reports.iter().any(|report| !report.passed);
    Ok(ExitCode::from(u8::from(failed)))
}

fn run(
    loaded: &LoadResult,
    origin: &Origin,
    test: &ToolTest,
    now: Timestamp,
) -> Result<Vec<Report>, Failure> {
    let namespace = test.metadata.namespace.as_deref().unwrap_or("default");
    let agent = ObjectRef::new(namespace, test.spec.agent.clone());
    let compilation = compile(&loaded.inputs, &agent).ok_or_else(|| {
        let agents: Vec<String> = loaded
            .inputs
            .agents()
            .map(|(key, _)| key.to_string())
            .collect();
        let known = near::meant_or_known(&agent.to_string(), agents.iter().map(String::as_str));
        Failure::usage(format_args!(
            "{origin}: spec.agent: there is no Agent {agent} in the files; {known}"
        ))
    })?;
    test.spec
        .cases
        .iter()
        .map(|case| {
            report(loaded, &compilation, origin, test, case, now)
                .with_context(|| format!("{origin}: {}", case.title()))
                .map_err(Failure::Usage)
        })
        .collect()
}

fn report(
    loaded: &LoadResult,
    compilation: &Compilation,
    origin: &Origin,
    test: &ToolTest,
    case: &Case,
    now: Timestamp,
) -> anyhow::Result<Report> {
    let arguments = case.arguments_text()?;
    let pod = test.spec.pod.as_deref();
    let asked = call::Call {
        pod,
        tool: &case.call,
        arguments: &arguments,
        previous: case.previous_calls,
        now,
    };
    let actual = call::call(&loaded.inputs, compilation, &asked)?;
    let differences = verdict::differences(&case.expect, &actual);
    if let (true, None, Some(why)) = (differences.is_empty(), &case.expect.code, &actual.misspelt) {
        let title = print::brief(&case.title());
        eprintln!(
            "warning: {origin}: {title} is denied whatever the grants say: {}; if that is meant, expect code: unsupported_tool",
            print::brief(why)
        );
    }
    let namespace = &compilation.agent.namespace;
    Ok(Report {
        test: format!("{namespace}/{}", test.metadata.name),
        case: case.title(),
        agent: compilation.agent.clone(),
        call: case.call.clone(),
        passed: differences.is_empty(),
        differences,
        actual,
        origin: origin.clone(),
        arguments,
    })
}

fn summary(reports: &[Report]) -> Value {
    let passed = reports.iter().filter(|report| report.passed).count();
    serde_json::json!({
        "passed": passed,
        "failed": reports.len() - passed,
        "cases": reports,
    })
}

fn text(reports: &[Report]) -> String {
    let mut lines = Vec::new();
    for report in reports {
        let word = if report.passed { "ok  " } else { "FAIL" };
        lines.push(format!("{word} {}: {}", report.test, report.case));
        if report.passed {
            continue;
        }
        lines.push(format!("     in {}", report.origin));
        lines.push(format!(
            "     {} calls {} {}",
            report.agent, report.call, report.arguments
        ));
        for difference in &report.differences {
            let Difference {
                field,
                expected,
                actual,
            } = difference;
            lines.push(format!("     {field}"));
            lines.push(format!("       expected {expected}"));
            lines.push(format!("       actual   {actual}"));
        }
        lines.extend(
            report
                .actual
                .because
                .iter()
                .map(|why| format!("     because {why}")),
        );
    }
    let passed = reports.iter().filter(|report| report.passed).count();
    lines.push(format!(
        "{passed} passed, {} failed",
        reports.len() - passed
    ));
    lines.join("\n") + "\n"
}
