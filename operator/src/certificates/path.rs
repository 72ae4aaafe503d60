//! The path of a webhook: a plain one, or one with a random segment that only the API server
//! and the operator can read.
//!
//! Here: the shape of such a path and making one. Not here: which paths the webhook answers
//! (`webhook::paths`), and writing one (`super::rotate`).

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};

/// The plain paths, which a secret path begins with. They are used where no controller writes
/// the configuration.
pub const INJECT: &str = "/inject";
pub const VALIDATE: &str = "/validate";
/// Length of the random segment in bytes, before it is encoded.
const BYTES: usize = 32;
/// In hexadecimal: the API server takes segments that are DNS names, which have no capitals.
const LENGTH: usize = 2 * BYTES;

/// The random generator's error is not a `source`: without its `std` feature it implements no
/// `Error`.
#[derive(Debug, thiserror::Error)]
#[error("no randomness for a webhook's path: {0}")]
pub struct NoRandomness(getrandom::Error);

/// `/inject/SEGMENT`, with another segment each time.
pub fn secret(plain: &str) -> Result<String, NoRandomness> {
    let mut segment = [0; BYTES];
    getrandom::fill(&mut segment).map_err(NoRandomness)?;
    Ok(format!("{plain}/{}", hex::encode(segment)))
}

/// Whether the path has a segment as [`secret`] makes them.
pub fn is_secret(plain: &str, path: &str) -> bool {
    let segment = path
        .strip_prefix(plain)
        .and_then(|rest| rest.strip_prefix('/'));
    segment.is_some_and(|segment| {
        segment.len() == LENGTH
            && segment
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// A webhook of a configuration, as far as the operator keeps it.
#[derive(Debug)]
pub struct Entry<'a> {
    pub name: &'a str,
    pub bundle: Option<&'a [u8]>,
    pub path: &'a str,
}

/// A list of webhooks that share an authority.
pub trait Configuration {
    /// The path that the operator answers for it without a secret segment.
    const PLAIN: &'static str;

    fn entries(&self) -> Vec<Entry<'_>>;

    fn paths(&self) -> Vec<String> {
        let entries = self.entries();
        entries.iter().map(|entry| entry.path.to_owned()).collect()
    }
}

impl Configuration for MutatingWebhookConfiguration {
    const PLAIN: &'static str = INJECT;

    fn entries(&self) -> Vec<Entry<'_>> {
        let webhooks = self.webhooks.iter().flatten();
        webhooks
            .map(|webhook| entry(&webhook.name, &webhook.client_config))
            .collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    const PLAIN: &'static str = VALIDATE;

    fn entries(&self) -> Vec<Entry<'_>> {
        let webhooks = self.webhooks.iter().flatten();
        webhooks
            .map(|webhook| entry(&webhook.name, &webhook.client_config))
            .collect()
    }
}

fn entry<'a>(name: &'a str, config: &'a WebhookClientConfig) -> Entry<'a> {
    let path = config.service.as_ref().and_then(|it| it.path.as_deref());
    Entry {
        name,
        bundle: config.ca_bundle.as_ref().map(|bytes| bytes.0.as_slice()),
        // Without one the API server calls the root.
        path: path.filter(|path| !path.is_empty()).unwrap_or("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_paths_differ_and_are_told_from_others() {
        let (one, other) = (secret(INJECT).unwrap(), secret(INJECT).unwrap());
        assert_ne!(one, other);
        assert!(is_secret(INJECT, &one));
        assert!(!is_secret(VALIDATE, &one));
        let segment = &one[INJECT.len()..];
        for path in [
            "/inject",
            "/",
            "/inject/",
            "/inject/short",
            &format!("/inject{segment}/x"),
            &format!("/injected{segment}"),
            &one[..one.len() - 1],
        ] {
            assert!(!is_secret(INJECT, path), "{path}");
        }
    }
}
