//! The places in the four files that hold secrets, or references to them.

use std::collections::BTreeSet;

use toolcrib_manifest::{Auth, Feed, FeedAuth, Provider, SecretText, Tool};

use crate::compilation::files::Files;
use crate::{SecretKeyRef, names};

/// Returns every reference in the files.
pub(crate) fn references_in(files: &Files) -> BTreeSet<SecretKeyRef> {
    let Files {
        agent: _,
        tools,
        providers,
        feeds,
    } = files;
    let of_tools = tools
        .tools
        .iter()
        .filter_map(|tool| tool.execution.auth.as_ref())
        .flat_map(references_of_auth);
    let of_feeds = feeds.0.iter().flat_map(|feed| match &feed.auth {
        None => Vec::new(),
        Some(FeedAuth::Bearer(text)) => SecretKeyRef::from_placeholder(text).into_iter().collect(),
        Some(FeedAuth::Full(auth)) => references_of_auth(auth),
    });
    let of_providers = providers
        .providers
        .values()
        .flat_map(|provider| &provider.keys)
        .filter_map(|key| SecretKeyRef::from_placeholder(&key.secret));
    of_tools.chain(of_feeds).chain(of_providers).collect()
}

/// Returns the references of one `auth`, in the order of its fields.
pub(crate) fn references_of_auth(auth: &Auth) -> Vec<SecretKeyRef> {
    auth_secrets(&mut auth.clone())
        .into_iter()
        .filter_map(|(_, text)| SecretKeyRef::from_placeholder(text))
        .collect()
}

/// Calls `visit` with every secret of the files and its place.
pub(crate) fn each_secret(files: &mut Files, visit: &mut dyn FnMut(String, &mut SecretText)) {
    for (index, tool) in files.tools.tools.iter_mut().enumerate() {
        for (field, text) in tool_secrets(tool) {
            visit(
                format!(
                    "{}#/tools/{index}/execution/auth/{field}",
                    names::TOOLS_FILE
                ),
                text,
            );
        }
    }
    for (index, feed) in files.feeds.0.iter_mut().enumerate() {
        for (field, text) in feed_secrets(feed) {
            visit(format!("{}#/{index}/auth{field}", names::FEEDS_FILE), text);
        }
    }
    for (name, provider) in &mut files.providers.providers {
        for (index, text) in provider_secrets(provider) {
            visit(
                format!(
                    "{}#/providers/{name}/keys/{index}/secret",
                    names::PROVIDERS_FILE
                ),
                text,
            );
        }
    }
}

pub(crate) fn tool_secrets(tool: &mut Tool) -> Vec<(&'static str, &mut SecretText)> {
    tool.execution
        .auth
        .as_mut()
        .map(auth_secrets)
        .unwrap_or_default()
}

pub(crate) fn feed_secrets(feed: &mut Feed) -> Vec<(String, &mut SecretText)> {
    match &mut feed.auth {
        None => Vec::new(),
        Some(FeedAuth::Bearer(text)) => vec![(String::new(), text)],
        Some(FeedAuth::Full(auth)) => auth_secrets(auth)
            .into_iter()
            .map(|(field, text)| (format!("/{field}"), text))
            .collect(),
    }
}

fn provider_secrets(provider: &mut Provider) -> Vec<(usize, &mut SecretText)> {
    provider
        .keys
        .iter_mut()
        .map(|key| &mut key.secret)
        .enumerate()
        .collect()
}

fn auth_secrets(auth: &mut Auth) -> Vec<(&'static str, &mut SecretText)> {
    match auth {
        Auth::Bearer { token, .. } | Auth::Header { token, .. } => {
            token.iter_mut().map(|text| ("token", text)).collect()
        }
        Auth::Basic {
            username, password, ..
        } => std::iter::once(("username", username))
            .chain(password.iter_mut().map(|text| ("password", text)))
            .collect(),
        Auth::Oauth {
            client_id,
            client_secret,
            ..
        } => std::iter::once(("client_id", client_id))
            .chain(client_secret.iter_mut().map(|text| ("client_secret", text)))
            .collect(),
    }
}
