//! `explain`: which object gives an agent a tool, or what withholds it.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Context as _;
use toolcrib_compile::{Compilation, Inputs, ObjectRef, compile};
use toolcrib_manifest::HttpMethod;

use crate::{args::ExplainArgs, failure::Failure, print, sources};

pub fn explain(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let loaded = sources::loaded(&args.files)?;
    let agent = sources::find_agent(&loaded, &args.agent, args.namespace.as_deref())?;
    let compilation = compile(&loaded.inputs, &agent)
        .with_context(|| format!("the agent {agent} cannot be compiled"))?;
    let (text, code) = match &args.tool {
        None => (whole(&compilation), ExitCode::SUCCESS),
        Some(tool) => match given(&compilation, tool) {
            Some(text) => (text, ExitCode::SUCCESS),
            None => (
                not_given(&loaded.inputs, &compilation, tool),
                ExitCode::from(1),
            ),
        },
    };
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(code)
}

fn whole(compilation: &Compilation) -> String {
    let mut text = format!(
        "agent {}\nmanifest {}\n",
        compilation.agent, compilation.manifest_digest
    );
    if let Some(refusal) = &compilation.refusal {
        line(
            &mut text,
            format_args!("not accepted: {}: {}", refusal.code.name(), refusal.message),
        );
    }
    let rows: Vec<Vec<String>> = compilation
        .tools
        .iter()
        .map(|tool| {
            vec![
                tool.name.clone(),
                tool.tier.name().to_string(),
                tool.credential.name().to_string(),
                format!("{} {}", tool.grant.kind.name(), tool.grant.key),
            ]
        })
        .collect();
    if rows.is_empty() {
        text.push_str("no tools\n");
    } else {
        text.push_str(&print::table(
            &["TOOL", "TIER", "CREDENTIAL", "GIVEN BY"],
            &rows,
        ));
    }
    for withheld in &compilation.withheld {
        line(
            &mut text,
            format_args!(
                "withheld {}: {}: {}",
                withheld.what,
                withheld.code.name(),
                withheld.message
            ),
        );
    }
    text
}

/// `None`: the agent does not have it.
fn given(compilation: &Compilation, name: &str) -> Option<String> {
    let summary = compilation.tools.iter().find(|tool| tool.name == name)?;
    let tool = compilation
        .files
        .tools
        .tools
        .iter()
        .find(|tool| tool.name == name)?;
    let execution = &tool.execution;
    let mut text = format!("{name} is given to {}\n", compilation.agent);
    line(
        &mut text,
        format_args!(
            "given by    {} {}",
            summary.grant.kind.name(),
            summary.grant.key
        ),
    );
    line(
        &mut text,
        format_args!("tier        {}", summary.tier.name()),
    );
    line(
        &mut text,
        format_args!("credential  {}", summary.credential.name()),
    );
    let address = format!(
        "{}{}",
        execution.base_url,
        execution.path.as_deref().unwrap_or_default()
    );
    match execution.method {
        Some(method) => line(
            &mut text,
            format_args!("executed    {} {address}", method_name(method)),
        ),
        None => line(&mut text, format_args!("executed    {address}")),
    }
    line(
        &mut text,
        format_args!("schema      {}", tool.input_schema.get()),
    );
    line(
        &mut text,
        format_args!("entry       {}", summary.entry_digest),
    );
    Some(text)
}

/// What stands in the way, from the finding if there is one, else from the first layer that
/// says nothing of the tool.
fn not_given(inputs: &Inputs, compilation: &Compilation, name: &str) -> String {
    let mut text = format!("{name} is not given to {}\n", compilation.agent);
    let surface = name.split_once('.').map_or(name, |(surface, _)| surface);
    let whole_surface = format!("{surface}.*");
    let mut found = false;
    for withheld in &compilation.withheld {
        if withheld.what == name || withheld.what == whole_surface {
            line(
                &mut text,
                format_args!("withheld: {}: {}", withheld.code.name(), withheld.message),
            );
            found = true;
        }
    }
    if !found {
        line(
            &mut text,
            format_args!("{}", missing_layer(inputs, &compilation.agent, name)),
        );
    }
    text
}

fn missing_layer(inputs: &Inputs, agent: &ObjectRef, name: &str) -> String {
    let Some((surface, tool)) = name.split_once('.') else {
        return "a tool is named SURFACE.TOOL".to_string();
    };
    let declared = inputs
        .agents()
        .filter(|(key, _)| *key == agent)
        .flat_map(|(_, agent)| &agent.spec.surfaces)
        .find(|declared| declared.alias.as_deref().unwrap_or(&declared.name) == surface);
    let Some(declared) = declared else {
        return format!("the surface {surface} is not among the agent's spec.surfaces");
    };
    let key = ObjectRef::new(
        declared.namespace.as_deref().unwrap_or(&agent.namespace),
        declared.name.as_str(),
    );
    if !inputs.surfaces().any(|(surface, _)| *surface == key) {
        return format!("there is no Surface {key}");
    }
    format!(
        "no ToolGrant of namespace {} that names the agent {} allows {tool} of the surface {key}, \
         and no ToolDefaults either",
        agent.namespace, agent.name
    )
}

fn method_name(method: HttpMethod) -> &'static str {
    match method {
        HttpMethod::Get => "GET",
        HttpMethod::Head => "HEAD",
        HttpMethod::Post => "POST",
        HttpMethod::Put => "PUT",
        HttpMethod::Patch => "PATCH",
        HttpMethod::Delete => "DELETE",
    }
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("writing to a string cannot fail");
}
