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

use super::review::{self, Name};
use crate::args::DiscoverArgs;
use crate::failure::Failure;
use crate::mcp::client::Server;
use crate::mcp::http::Http;
use crate::mcp::stdio::Stdio;
use crate::mcp::tools::{drift, look, normalized};
use crate::openapi::{Address, Remarks};
use crate::sources;
use crate::wrapped;

pub fn discover(args: &DiscoverArgs) -> Result<ExitCode, Failure> {
    let name = Name {
        name: &args.name,
        namespace: &args.namespace,
    };
    let reviewed = review::reviewed(&name, &args.paths)?;
    let listed = list(args)?;
    let mut remarks = Remarks::default();
    let now = normalized(&listed, &mut remarks)
        .map_err(|message| Failure::Failed(anyhow::anyhow!("the server's list: {message}")))?;
    look(&now, &mut remarks);

    let drift = match &reviewed {
        Some(surface) => drift(&review::mcp_tools(surface)?, &now),
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
        Some(surface) => review::with_mcp_tools(surface, now),
        None => review::new_surface(&name, spec(args, now)),
    };
    let said = "Nobody may call its tools yet: a ToolGrant gives them.";
    review::print(surface, said, &remarks)?;
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

/// Of a new Surface.
fn spec(args: &DiscoverArgs, now: BTreeMap<String, Value>) -> Value {
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
    spec
}
