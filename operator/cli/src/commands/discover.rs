//! `surface discover`: an MCP server's tools as a Surface for review, or what changed since.
//!
//! Exit codes: 0; 1 when the server cannot be asked, or with `--check` its tools are not the
//! reviewed ones; 2 when a file cannot be used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use toolcrib_compile::yaml;

use crate::args::DiscoverArgs;
use crate::failure::Failure;
use crate::mcp::client::Server;
use crate::mcp::http::Http;
use crate::mcp::stdio::Stdio;
use crate::mcp::tools::{drift, look, normalized};
use crate::openapi::{Address, RemarkKind, Remarks};
use crate::print::{self, Document};
use crate::sources;
use crate::wrapped;

pub fn discover(args: &DiscoverArgs) -> Result<ExitCode, Failure> {
    let reviewed = reviewed(args)?;
    let listed = list(args)?;
    let mut remarks = Remarks::default();
    let now = normalized(&listed, &mut remarks)
        .map_err(|message| Failure::Failed(anyhow::anyhow!("the server's list: {message}")))?;
    look(&now, &mut remarks);

    let drift = match &reviewed {
        Some(surface) => drift(&tools_of(surface)?, &now),
        None => Vec::new(),
    };
    for change in &drift {
        eprintln!("{change}");
    }
    if args.check {
        return Ok(ExitCode::from(u8::from(!drift.is_empty())));
    }
    for remark in &remarks.0 {
        eprintln!("{remark}");
    }
    let surface = match reviewed {
        Some(surface) => with_tools(surface, now),
        None => new_surface(args, now)?,
    };
    let mut document =
        Document::new(surface).said("Nobody may call its tools yet: a ToolGrant gives them.");
    for remark in remarks.0.iter().filter(|it| it.kind == RemarkKind::Look) {
        document = document.said(remark.to_string());
    }
    let text = print::documents(&[document]).context("an object does not print as YAML")?;
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn list(args: &DiscoverArgs) -> Result<Vec<Value>, Failure> {
    let headers = headers(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let listed = runtime.block_on(async {
        let server = match &args.server.url {
            Some(url) => Server::Http(Http::new(url.clone(), headers)?),
            None => Server::Stdio(Stdio::start(&args.command)?),
        };
        server.tools().await
    });
    Ok(listed?)
}

/// What `--token-file` and `--header-file` hold. No message shows a value.
fn headers(args: &DiscoverArgs) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    let mut add = |path: &Path, name: &[u8], value: &str| {
        let pair = HeaderName::from_bytes(name)
            .ok()
            .zip(HeaderValue::from_str(value).ok());
        let Some((name, mut value)) = pair else {
            let shown = path.display();
            return Err(Failure::usage(format_args!(
                "{shown} holds what no header can"
            )));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    };
    if let Some(path) = &args.token_file {
        let token = text(path)?;
        let value = format!("Bearer {}", token.trim());
        add(path, AUTHORIZATION.as_str().as_bytes(), &value)?;
    }
    if let Some(path) = &args.header_file {
        for line in text(path)?.lines().filter(|line| !line.trim().is_empty()) {
            let (name, value) = line.split_once(':').unwrap_or_default();
            add(path, name.trim().as_bytes(), value.trim())?;
        }
    }
    Ok(headers)
}

fn text(path: &PathBuf) -> Result<String, Failure> {
    let texts = sources::read(std::slice::from_ref(path)).map_err(Failure::Usage)?;
    match <[_; 1]>::try_from(texts) {
        Ok([(_, text)]) => Ok(text),
        Err(_) => Err(Failure::usage(format_args!(
            "{} is not one file",
            path.display()
        ))),
    }
}

/// The Surface of this name among the files.
fn reviewed(args: &DiscoverArgs) -> Result<Option<Value>, Failure> {
    let mut found = None;
    for (path, text) in sources::read(&args.paths).map_err(Failure::Usage)? {
        for document in yaml::documents(&text) {
            let object =
                document.map_err(|message| Failure::usage(format_args!("{path}: {message}")))?;
            let metadata = &object["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or("default");
            if object["kind"] == "Surface"
                && metadata["name"] == args.name.as_str()
                && namespace == args.namespace
            {
                found = Some(object);
            }
        }
    }
    if found.is_none() && !args.paths.is_empty() {
        return Err(Failure::usage(format_args!(
            "the files have no Surface {}/{}",
            args.namespace, args.name
        )));
    }
    Ok(found)
}

/// Those that go over MCP, as they were reviewed.
fn tools_of(surface: &Value) -> Result<BTreeMap<String, Value>, Failure> {
    let spec = &surface["spec"];
    if !spec["descriptorFrom"].is_null() {
        return Err(Failure::usage(
            "the Surface's descriptor is in a ConfigMap; only one that is inline can be compared",
        ));
    }
    let tools: Vec<Value> = inline(spec)
        .filter(|tool| !is_http(tool))
        .cloned()
        .collect();
    normalized(&tools, &mut Remarks::default())
        .map_err(|message| Failure::usage(format_args!("the Surface's tools: {message}")))
}

fn inline(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["descriptor"]["tools"].as_array().into_iter().flatten()
}

/// The surface's owner wrote it; no MCP server lists it.
fn is_http(tool: &Value) -> bool {
    !tool["http"].is_null()
}

/// The Surface as it is but for its MCP tools.
fn with_tools(mut surface: Value, now: BTreeMap<String, Value>) -> Value {
    let http = inline(&surface["spec"])
        .filter(|tool| is_http(tool))
        .cloned();
    let tools: Vec<Value> = http.chain(now.into_values()).collect();
    let descriptor = &mut surface["spec"]["descriptor"];
    if !descriptor.is_object() {
        *descriptor = json!({});
    }
    descriptor["version"] = 2.into();
    descriptor["tools"] = tools.into();
    surface
}

fn new_surface(args: &DiscoverArgs, now: BTreeMap<String, Value>) -> Result<Value, Failure> {
    let path = args
        .server
        .url
        .as_ref()
        .map_or(wrapped::PATH, |url| url.path());
    let mut spec = json!({
        "mcp": {"path": path},
        "descriptor": {"version": 2, "tools": now.into_values().collect::<Vec<_>>()},
    });
    match (&args.service, &args.server.url) {
        (Some(Address::Service { name, port }), _) => {
            spec["service"] = json!({"name": name, "port": port});
        }
        (_, Some(url)) => spec["url"] = url.origin().ascii_serialization().into(),
        // As `from-stdio` makes it.
        (_, None) => {
            spec["service"] = json!({"name": args.name, "port": crate::args::WRAPPED_PORT});
        }
    }
    Ok(json!({
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "Surface",
        "metadata": {"name": args.name, "namespace": args.namespace},
        "spec": spec,
    }))
}
