//! `inspect`: one resolved surface, and the agents that use it.

use std::process::ExitCode;

use anyhow::Context as _;
use toolcrib_compile::{SurfaceView, check_surface, inspect_surface};

use crate::print::Output;
use crate::{
    args::InspectArgs,
    failure::Failure,
    print,
    sources::{self, ObjectScope},
};

pub fn inspect(args: &InspectArgs) -> Result<ExitCode, Failure> {
    let objects = sources::objects(&args.source, ObjectScope::Everybody)?;
    let inputs = &objects.loaded.inputs;
    let key = sources::find_surface(
        &objects.loaded,
        &args.surface,
        objects.namespace.as_deref(),
        &objects.from,
    )?;
    let view = inspect_surface(inputs, &key)
        .with_context(|| format!("the surface {key} cannot be resolved"))?;
    let report = check_surface(inputs, &key);
    let findings = print::findings(
        &objects.loaded,
        report.iter().flat_map(|report| &report.diagnostics),
    );
    let text = match args.output {
        Output::Table => text(&view),
        Output::Json | Output::Yaml => print::value(&view, args.output)?,
    };
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(findings.exit_code())
}

fn text(view: &SurfaceView) -> String {
    let mut facts = vec![vec!["surface".to_owned(), view.surface.to_string()]];
    let mut fact = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| vec![name.to_owned(), value]));
    };
    fact(
        "description",
        Some(view.description.clone()).filter(|text| !text.is_empty()),
    );
    let nowhere = || "none: nothing can be called".to_owned();
    fact(
        "address",
        Some(view.address.clone().unwrap_or_else(nowhere)),
    );
    fact("mcp", view.mcp_path.clone());
    fact("descriptor", view.descriptor_digest.clone());
    let skill = view.skill.as_ref();
    fact(
        "skill",
        skill.map(|text| format!("{} bytes (-o yaml shows it)", text.len())),
    );
    let mut out = print::columns(&facts);

    let tools: Vec<Vec<String>> = view
        .tools
        .iter()
        .map(|tool| {
            let granted: Vec<String> = tool
                .granted_to
                .iter()
                .map(|granted| match &granted.limits {
                    Some(limits) => format!("{} ({limits})", granted.agent),
                    None => granted.agent.to_string(),
                })
                .collect();
            vec![
                tool.name.clone(),
                tool.tier.unwrap_or("-").to_owned(),
                match (&tool.executed, &tool.problem) {
                    (Some(executed), _) => executed.clone(),
                    (None, Some(problem)) => format!("not usable: {problem}"),
                    (None, None) => "-".to_owned(),
                },
                listed(&granted),
            ]
        })
        .collect();
    section(&mut out, &["TOOL", "TIER", "EXECUTED", "GIVEN TO"], &tools);
    let schemas: Vec<Vec<String>> = view
        .tools
        .iter()
        .filter_map(|tool| {
            let schema = tool.input_schema.as_ref()?;
            let others = tool.other_arguments.unwrap_or("-");
            Some(vec![
                tool.name.clone(),
                others.to_owned(),
                schema.get().to_owned(),
            ])
        })
        .collect();
    section(&mut out, &["TOOL", "OTHER ARGUMENTS", "SCHEMA"], &schemas);
    let feeds: Vec<Vec<String>> = view
        .feeds
        .iter()
        .map(|feed| {
            let ttl = feed
                .ttl
                .map_or_else(|| "-".to_owned(), |ttl| format!("{ttl}s"));
            let path = match (&feed.path, &feed.problem) {
                (Some(path), _) => path.clone(),
                (None, problem) => format!("not usable: {}", problem.as_deref().unwrap_or("-")),
            };
            vec![feed.name.clone(), ttl, path]
        })
        .collect();
    section(&mut out, &["FEED", "TTL", "PATH"], &feeds);
    let endpoints: Vec<Vec<String>> = view
        .endpoints
        .iter()
        .map(|endpoint| {
            [&endpoint.method, &endpoint.path, &endpoint.description]
                .map(Clone::clone)
                .to_vec()
        })
        .collect();
    section(&mut out, &["METHOD", "ENDPOINT", "DESCRIPTION"], &endpoints);
    let consumers: Vec<Vec<String>> = view
        .consumers
        .iter()
        .map(|consumer| {
            vec![
                consumer.agent.to_string(),
                consumer.alias.clone(),
                if consumer.consent { "yes" } else { "no" }.to_owned(),
                match consumer.suspended {
                    true => "suspended".to_owned(),
                    false => consumer.tools.to_string(),
                },
            ]
        })
        .collect();
    section(
        &mut out,
        &["AGENT", "KNOWS IT AS", "CONSENT", "TOOLS"],
        &consumers,
    );
    out
}

fn section(out: &mut String, header: &[&str], rows: &[Vec<String>]) {
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&print::table(header, rows));
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        "nobody".to_owned()
    } else {
        names.join(", ")
    }
}
