//! `surface discover --in-cluster`: compares a cluster's Surface with the tools that its service
//! lists. With `--apply` it writes these tools into the Surface.

use std::process::ExitCode;

use anyhow::Context as _;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};
use toolcrib_compile::ObjectRef;

use super::review::{Listing, SurfaceName};
use crate::args::{ClusterArgs, DiscoverArgs, OperatorArgs};
use crate::authoring::mcp::client::Server;
use crate::authoring::mcp::http::PROXIED_ADVICE;
use crate::authoring::openapi::{self, Address};
use crate::authoring::wrapped;
use crate::authoring::wrapped::WRAPPED_PORT;
use crate::cluster::{Conflicts, Session, StoredSurface, WithoutCluster};
use crate::commands::authoring::review;
use crate::failure::Failure;

pub fn discover(args: &DiscoverArgs, headers: HeaderMap) -> Result<ExitCode, Failure> {
    if headers.contains_key(AUTHORIZATION) {
        return Err(Failure::usage(format_args!(
            "the API server keeps the header Authorization for itself: {PROXIED_ADVICE}"
        )));
    }
    let cluster = ClusterArgs {
        namespace: args.namespace.clone(),
        all_namespaces: false,
        connection: args.connection.clone(),
    };
    let session = Session::open(&cluster, &OperatorArgs::default(), WithoutCluster::Nothing)?;
    let key = ObjectRef::new(session.default_namespace(), args.name.as_str());
    let held = session.surface(&key)?;
    let reviewed = held.as_ref().map(|held| &held.surface);
    if let Some(surface) = reviewed {
        review::usable(surface).map_err(Failure::usage)?;
    }
    let endpoint = endpoint(&key, reviewed, args.service.as_ref())?;
    let service = endpoint.service();
    let http = session.server(&service, &key.namespace, &endpoint.path, headers)?;
    let listed = session
        .wait(Server::Http(http).tools())
        .with_context(|| format!("Service {}/{service}", key.namespace))?;
    let listing = Listing::of(reviewed, &listed, "the server's list")?;
    listing.print_drift();
    match (&held, args.check, args.apply) {
        (_, true, _) => Ok(listing.verdict()),
        (Some(held), _, true) => apply(&session, held, listing, args),
        (None, _, true) => Err(Failure::usage(format_args!(
            "there is no Surface {key} to write tools into: apply one that names its service first"
        ))),
        (held, _, false) => {
            let surface = match held {
                Some(held) => review::with_mcp_tools(held.surface.clone(), listing.tools.clone()),
                None => {
                    let name = SurfaceName {
                        name: &key.name,
                        namespace: &key.namespace,
                    };
                    review::new_surface(&name, endpoint.spec(&listing))
                }
            };
            listing.print_remarks();
            review::print(surface, review::NOT_GRANTED, &listing.remarks)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn apply(
    session: &Session,
    held: &StoredSurface,
    listing: Listing,
    args: &DiscoverArgs,
) -> Result<ExitCode, Failure> {
    if listing.drift.is_empty() {
        eprintln!("nothing changed, nothing is written");
        return Ok(ExitCode::SUCCESS);
    }
    let new = listing.new_remarks(&held.surface)?;
    for line in openapi::lines(new.iter().copied()) {
        eprintln!("{line}");
    }
    if !args.yes && (listing.loses() || !new.is_empty()) {
        return Err(Failure::Failed(anyhow::anyhow!(
            "something is lost, or there is something to look at: if it may be so, say --yes"
        )));
    }
    let conflicts = match args.force_conflicts {
        true => Conflicts::TakeOver,
        false => Conflicts::Refuse,
    };
    let surface = review::with_mcp_tools(held.surface.clone(), listing.tools);
    session.apply_tools(held, &surface["spec"]["descriptor"]["tools"], conflicts)?;
    eprintln!("applied");
    Ok(ExitCode::SUCCESS)
}

/// The address of the server, from the Surface's spec.
struct Endpoint {
    name: String,
    port: u64,
    is_tls: bool,
    path: String,
}

impl Endpoint {
    /// The Service in the form of the API server's proxy.
    fn service(&self) -> String {
        let scheme = if self.is_tls { "https:" } else { "" };
        format!("{scheme}{}:{}", self.name, self.port)
    }

    /// The spec of a new Surface.
    fn spec(&self, listing: &Listing) -> Value {
        json!({
            "service": {"name": self.name, "port": self.port},
            "mcp": {"path": self.path},
            "descriptor": {"version": 2, "tools": listing.tools.values().collect::<Vec<_>>()},
        })
    }
}

fn endpoint(
    key: &ObjectRef,
    surface: Option<&Value>,
    service: Option<&Address>,
) -> Result<Endpoint, Failure> {
    let Some(surface) = surface else {
        let (name, port) = match service {
            Some(Address::Service { name, port }) => (name.clone(), *port),
            _ => {
                return Err(Failure::usage(format_args!(
                    "there is no Surface {key}: for a new one, say which Service it has with --service NAME:{WRAPPED_PORT}"
                )));
            }
        };
        return Ok(Endpoint {
            name,
            port: port.into(),
            is_tls: false,
            path: wrapped::PATH.to_owned(),
        });
    };
    let spec = &surface["spec"];
    let target = &spec["service"];
    let (Some(name), Some(port)) = (target["name"].as_str(), target["port"].as_u64()) else {
        return Err(Failure::usage(format_args!(
            "Surface {key} has no Service, but a url: ask that with --url"
        )));
    };
    let written = [&spec["mcp"], &spec["descriptor"]["mcp"]];
    let path = written.into_iter().find_map(|mcp| mcp["path"].as_str());
    Ok(Endpoint {
        name: name.to_owned(),
        port,
        is_tls: target["scheme"] == "https",
        path: path.unwrap_or(wrapped::PATH).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(spec: Value) -> Result<(String, String), String> {
        let surface = json!({"spec": spec});
        endpoint(&ObjectRef::new("pond", "fish"), Some(&surface), None)
            .map(|it| (it.service(), it.path))
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_server_has_the_address_of_the_surface() {
        let service = json!({"name": "carp", "port": 8080});
        let here = |service: &str, path: &str| Ok((service.to_owned(), path.to_owned()));
        assert_eq!(at(json!({"service": service})), here("carp:8080", "/mcp"));
        let both = json!({"service": service, "mcp": {"path": "/a"}, "descriptor": {"mcp": {"path": "/b"}}});
        assert_eq!(at(both), here("carp:8080", "/a"));
        let described = json!({"service": service, "descriptor": {"mcp": {"path": "/b"}}});
        assert_eq!(at(described), here("carp:8080", "/b"));
        let tls = json!({"service": {"name": "carp", "port": 8443, "scheme": "https"}});
        assert_eq!(at(tls), here("https:carp:8443", "/mcp"));
        let outside = at(json!({"url": "https://fish.test"})).unwrap_err();
        assert!(outside.contains("ask that with --url"), "{outside}");
    }
}
