//! `surface discover`: an MCP server's tools as a Surface for review, or their changes since the
//! review.
//!
//! Exit codes: 0; 1 when the server cannot be asked, or with `--check` if its tools differ from
//! the reviewed ones; 2 when a file cannot be used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use rustls::RootCertStore;
use serde_json::{Value, json};

use super::review::{Listing, SurfaceName};
use crate::args::{ConnectionArgs, DiscoverArgs};
use crate::authoring::mcp::client::Server;
use crate::authoring::mcp::http::Http;
use crate::authoring::mcp::stdio::Stdio;
use crate::authoring::openapi::Address;
use crate::authoring::wrapped;
use crate::commands::authoring::{in_cluster, review};
use crate::failure::Failure;
use crate::sources;

pub fn discover(args: &DiscoverArgs) -> Result<ExitCode, Failure> {
    let headers = headers(args)?;
    if args.server.in_cluster {
        return in_cluster::discover(args, headers);
    }
    if args.connection != ConnectionArgs::default() {
        return Err(Failure::usage(
            "--context, --kubeconfig and --as choose a cluster, which only --in-cluster asks",
        ));
    }
    if args.check && args.paths.is_empty() {
        return Err(Failure::usage(
            "--check compares with a Surface: name its file with -f, or ask with --in-cluster",
        ));
    }
    let name = SurfaceName {
        name: &args.name,
        namespace: args.namespace.as_deref().unwrap_or("default"),
    };
    let reviewed = review::reviewed(&name, &args.paths)?;
    let listed = list(args, headers)?;
    let listing = Listing::of(reviewed.as_ref(), &listed, "the server's list")?;
    listing.print_drift();
    if args.check {
        return Ok(listing.verdict());
    }
    listing.print_remarks();
    let surface = match reviewed {
        Some(surface) => review::with_mcp_tools(surface, listing.tools),
        None => review::new_surface(&name, spec(args, listing.tools)),
    };
    review::print(surface, review::NOT_GRANTED, &listing.remarks)?;
    Ok(ExitCode::SUCCESS)
}

fn list(args: &DiscoverArgs, headers: HeaderMap) -> Result<Vec<Value>, Failure> {
    let roots = roots(args.ca_file.as_ref())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let listed = runtime.block_on(async {
        let server = match &args.server.url {
            Some(url) => Server::Http(Http::new(url.clone(), headers, roots)?),
            None => Server::Stdio(Stdio::start(&args.command)?),
        };
        server.tools().await
    });
    Ok(listed?)
}

/// Reads the certificate authorities for the server: those of the file, or the public ones.
fn roots(ca_file: Option<&PathBuf>) -> Result<RootCertStore, Failure> {
    let Some(path) = ca_file else {
        let public = webpki_roots::TLS_SERVER_ROOTS.iter().cloned();
        return Ok(public.collect());
    };
    let certificates = toolcrib_bounds::ca::certificates(&text(path)?)
        .map_err(|error| Failure::usage(format_args!("--ca-file {} {error}", path.display())))?;
    Ok(certificates.into_iter().collect())
}

/// Reads `--token-file` and `--header-file`. No message shows a value.
fn headers(args: &DiscoverArgs) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    let mut add = |flag: &str, path: &Path, name: &[u8], value: &str| {
        let pair = HeaderName::from_bytes(name)
            .ok()
            .zip(HeaderValue::from_str(value).ok());
        let Some((name, mut value)) = pair else {
            let shown = path.display();
            return Err(Failure::usage(format_args!(
                "{flag} {shown} holds what no header can: write one `Name: value` per line, without control characters"
            )));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    };
    if let Some(path) = &args.token_file {
        let token = text(path)?;
        let value = format!("Bearer {}", token.trim());
        add(
            "--token-file",
            path,
            AUTHORIZATION.as_str().as_bytes(),
            &value,
        )?;
    }
    if let Some(path) = &args.header_file {
        let text = text(path)?;
        let lines = (1..).zip(text.lines());
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let Some((name, value)) = line.split_once(':') else {
                return Err(Failure::usage(format_args!(
                    "--header-file {}:{number}: is not a header: write `Name: value`, such as `X-API-Key: …`; a file with a bare token is for --token-file",
                    path.display()
                )));
            };
            add("--header-file", path, name.trim().as_bytes(), value.trim())?;
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

/// The spec of a new Surface.
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
        // The Service that `from-stdio` would write.
        (_, None) => {
            spec["service"] =
                json!({"name": args.name, "port": crate::authoring::wrapped::WRAPPED_PORT});
            spec["auth"] = wrapped::auth(&args.name);
        }
    }
    spec
}
