//! `--at`: the address on this machine for a surface or provider of the files.
//!
//! The addresses are replaced in the compiled files, not in the objects, since compile refuses
//! loopback addresses. The consent of the Secrets' owners was checked against the objects' own
//! hosts before.

use std::collections::BTreeSet;

use anyhow::bail;
use toolcrib_compile::{Compilation, Inputs, digest};
use url::Url;

use crate::args::{AddressTarget, LocalAddress};
use crate::print;

pub fn apply(
    compilation: &mut Compilation,
    inputs: &Inputs,
    places: &[LocalAddress],
) -> anyhow::Result<()> {
    let mut known: Vec<&AddressTarget> = Vec::new();
    for place in places {
        if known.contains(&&place.of) {
            bail!("--at names {} twice: keep one address", place.of);
        }
        known.push(&place.of);
        match &place.of {
            AddressTarget::Surface(name) => surface(compilation, inputs, name, &place.url)?,
            AddressTarget::Provider(name) => provider(compilation, inputs, name, &place.url)?,
        }
    }
    Ok(())
}

/// Returns a note, with its `--at`, for each address that only a cluster can resolve.
pub fn elsewhere(compilation: &Compilation) -> Vec<String> {
    let inside = |url: &str| {
        let host = Url::parse(url).ok()?.host_str()?.to_owned();
        let is_inside = !host.contains('.') || host.ends_with(".svc") || host.contains(".svc.");
        (is_inside && host != "localhost").then_some(host)
    };
    let tools = compilation.files.tools.tools.iter().map(|tool| {
        let execution = &tool.execution;
        (execution.service.clone(), &*execution.base_url)
    });
    let feeds = &compilation.files.feeds.0;
    let feeds = feeds.iter().map(|feed| (feed.source.clone(), &*feed.url));
    let providers = &compilation.files.providers.providers;
    let providers = providers.iter().flat_map(|(name, provider)| {
        let urls = provider
            .endpoints
            .iter()
            .map(|endpoint| &*endpoint.base_url);
        urls.map(move |url| (format!("provider:{name}"), url))
    });
    let found: BTreeSet<(String, String)> = tools
        .chain(feeds)
        .chain(providers)
        .filter_map(|(name, url)| Some((name, inside(url)?)))
        .collect();
    found
        .into_iter()
        .map(|(name, host)| {
            format!(
                "note: {name} is at {}, which only a cluster knows: say where it is here with --at {name}=URL",
                print::plain(&host)
            )
        })
        .collect()
}

fn surface(
    compilation: &mut Compilation,
    inputs: &Inputs,
    name: &str,
    url: &Url,
) -> anyhow::Result<()> {
    let agent = compilation.agent.clone();
    let known: Vec<&str> = inputs
        .agents()
        .filter(|(key, _)| **key == agent)
        .flat_map(|(_, agent)| &agent.spec.surfaces)
        .map(|surface| surface.alias.as_deref().unwrap_or(&surface.name))
        .collect();
    if !known.contains(&name) {
        bail!(
            "--at {name}: the agent's surfaces are: {}",
            known.join(", ")
        );
    }
    for tool in &mut compilation.files.tools.tools {
        if tool.execution.service == name {
            tool.execution.base_url = moved(&tool.execution.base_url, url);
            tool.extension.entry_digest = Some(digest::entry_digest(tool));
        }
    }
    for feed in &mut compilation.files.feeds.0 {
        if feed.source == name {
            feed.url = if has_path(url) {
                format!("{}{}", url.as_str().trim_end_matches('/'), feed.path)
            } else {
                moved(&feed.url, url)
            };
        }
    }
    Ok(())
}

fn provider(
    compilation: &mut Compilation,
    inputs: &Inputs,
    name: &str,
    url: &Url,
) -> anyhow::Result<()> {
    let namespace = &compilation.agent.namespace;
    let known: Vec<&str> = inputs
        .providers()
        .filter(|(key, _)| key.namespace == *namespace)
        .map(|(key, _)| key.name.as_str())
        .collect();
    if !known.contains(&name) {
        bail!(
            "--at provider:{name}: the providers of namespace {namespace} are: {}",
            known.join(", ")
        );
    }
    // A provider that this agent cannot select, or without a usable key, is not in the files.
    let provider = compilation.files.providers.providers.get_mut(name);
    for endpoint in provider
        .into_iter()
        .flat_map(|provider| &mut provider.endpoints)
    {
        endpoint.base_url = moved(&endpoint.base_url, url);
    }
    Ok(())
}

/// Returns `to`, with the path of `from` if `to` has none. The path is cut from text: a parser
/// would encode the placeholders in a feed's url.
fn moved(from: &str, to: &Url) -> String {
    let to_text = to.as_str().trim_end_matches('/');
    if has_path(to) {
        return to_text.to_string();
    }
    let after_scheme = from.find("://").map_or(0, |at| at + "://".len());
    let path = from[after_scheme..]
        .find('/')
        .map_or("", |at| &from[after_scheme + at..]);
    format!("{to_text}{path}")
}

fn has_path(url: &Url) -> bool {
    !matches!(url.path(), "" | "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: &str, to: &str, expected: &str) {
        assert_eq!(moved(from, &Url::parse(to).unwrap()), expected);
    }

    #[test]
    fn an_address_without_a_path_keeps_the_object_s() {
        check(
            "http://fish.pond.svc:4000",
            "http://127.0.0.1:9",
            "http://127.0.0.1:9",
        );
        check(
            "https://den.example/v1",
            "http://127.0.0.1:9",
            "http://127.0.0.1:9/v1",
        );
        check(
            "https://den.example/v1",
            "http://127.0.0.1:9/",
            "http://127.0.0.1:9/v1",
        );
        check(
            "https://den.example/v1",
            "http://127.0.0.1:9/api/",
            "http://127.0.0.1:9/api",
        );
        check(
            "http://fish.pond.svc/m/{claw_id}",
            "http://[::1]:9",
            "http://[::1]:9/m/{claw_id}",
        );
    }
}
