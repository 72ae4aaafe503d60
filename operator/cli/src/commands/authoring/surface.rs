//! `surface from-openapi`: an API's OpenAPI document as a Surface for review. `surface
//! from-stdio`: an MCP server that is a program, as a Surface with the objects that run it.
//!
//! Exit codes: 0; 1 when no tool could be made, or the result does not compile; 2 when the
//! document cannot be read.

use std::{path::Path, process::ExitCode};

use anyhow::Context as _;

use crate::{
    args::{DescriptionForm, FromOpenApiArgs, FromStdioArgs},
    authoring::openapi::{self, Choice, GeneratedSurface, RemarkKind, SurfaceOptions},
    authoring::wrapped::{self, WrappedServer},
    failure::Failure,
    print::{self, Document},
    sources,
};

pub fn from_openapi(args: &FromOpenApiArgs) -> Result<ExitCode, Failure> {
    let shown = args.document.display().to_string();
    if shown.starts_with("https://") || shown.starts_with("http://") {
        return Err(Failure::usage(format_args!(
            "{shown} is a URL, and a file is read here: download it with `curl --output openapi.json {shown}`, and name openapi.json"
        )));
    }
    let texts = sources::read(std::slice::from_ref(&args.document)).map_err(Failure::Usage)?;
    let [(_, text)] = texts.as_slice() else {
        return Err(Failure::usage(format_args!("{shown} is not one file")));
    };
    let document = openapi::parse(text)
        .map_err(|message| Failure::usage(format_args!("{shown}: {message}")))?;
    let wanted = SurfaceOptions {
        name: args.name.clone(),
        namespace: args.namespace.clone(),
        address: args.service.clone().or_else(|| args.url.clone()),
        choice: Choice {
            include: args.include.clone(),
            exclude: args.exclude.clone(),
        },
    };
    let described = openapi::describe(&document, &wanted)
        .map_err(|message| Failure::Failed(anyhow::anyhow!("{shown}: {message}")))?;
    let text = match args.output {
        DescriptionForm::Surface => surface(&described, &args.document)?,
        DescriptionForm::Descriptor => {
            serde_json::to_string_pretty(&described.descriptor)
                .context("the descriptor does not print as JSON")?
                + "\n"
        }
    };
    for line in openapi::lines(&described.remarks) {
        eprintln!("{line}");
    }
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the Secret and the Surface, with remarks for the reviewer on the Surface.
fn surface(described: &GeneratedSurface, document: &Path) -> Result<String, Failure> {
    let file = document
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let mut documents = Vec::new();
    if let Some(secret) = &described.secret {
        documents.push(Document::new(secret.clone()).with_comment(
            "The credential; put its value here with envsubst, or make this Secret in your own way.",
        ));
    }
    let mut surface = Document::new(described.surface.clone()).with_comment(format!(
        "Made from {file}. Nobody may call its tools yet: a ToolGrant gives them."
    ));
    let remarks = described.remarks.iter();
    for line in openapi::lines(remarks.filter(|it| it.kind == RemarkKind::Look)) {
        surface = surface.with_comment(line);
    }
    documents.push(surface);
    Ok(print::documents(&documents).context("an object does not print as YAML")?)
}

pub fn from_stdio(args: &FromStdioArgs) -> Result<ExitCode, Failure> {
    let env = args
        .env
        .iter()
        .map(|it| wrapped::variable(&it.variable, &it.secret, &it.key))
        .collect();
    let wrapped = WrappedServer {
        name: &args.name,
        namespace: &args.namespace,
        image: &args.image,
        wrapper: &args.wrapper_image,
        port: args.port,
        env,
        command: &args.command,
    };
    let documents = [
        Document::new(wrapped.deployment()).with_comment(format!(
            "Runs `{}`, and serves it at port {}.",
            args.command.join(" "),
            args.port
        )),
        Document::new(wrapped.token()).with_comment(wrapped::WHO_MAY_CALL),
        Document::new(wrapped.service()),
        Document::new(wrapped.network_policy()).with_comment(wrapped::WHO_MAY_CONNECT),
        Document::new(wrapped.surface()).with_comment(
            "No tool is named here, so that applying this file again takes none away: \
             `kubectl toolcrib surface discover --in-cluster --apply` writes the tools that the server \
             lists into the cluster's Surface, and `discover --stdio` prints it with them, for review.",
        ),
    ];
    let text = print::documents(&documents).context("an object does not print as YAML")?;
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
