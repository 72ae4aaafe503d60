//! The paths of webhooks: plain, or secret, with a random segment that only the API server and the
//! operator can read.
//!
//! Here: the format of secret paths, and their generator. Not here: the paths that the webhook
//! answers (`webhook::paths`), and the webhook configurations (`super::rotate`).

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};

/// The plain paths, which are also the prefixes of secret paths. They are used if no controller
/// writes the webhook configuration.
pub const INJECT: &str = "/inject";
pub const VALIDATE: &str = "/validate";
/// Bytes of the random segment, before it is encoded.
const BYTES: usize = 32;
/// Characters of the random segment. It is hexadecimal, since the API server accepts only segments
/// that are DNS names, which have no capitals.
const LENGTH: usize = 2 * BYTES;

/// The system's random generator failed. Its error is not a `source`: without its `std` feature it
/// implements no `Error`.
#[derive(Debug, thiserror::Error)]
#[error("cannot generate a webhook path: {0}")]
pub struct NoRandomness(getrandom::Error);

/// A new secret path such as `/inject/SEGMENT`.
pub fn secret(plain: &str) -> Result<String, NoRandomness> {
    let mut segment = [0; BYTES];
    getrandom::fill(&mut segment).map_err(NoRandomness)?;
    Ok(format!("{plain}/{}", hex::encode(segment)))
}

/// Whether the path has the format of [`secret`].
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

/// The fields of a webhook that the operator maintains.
#[derive(Debug)]
pub struct Entry<'a> {
    pub name: &'a str,
    pub bundle: Option<&'a [u8]>,
    pub path: &'a str,
}

/// A webhook configuration of either kind.
pub trait Configuration {
    /// The plain path of its webhooks.
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
        // Without a path the API server calls `/`.
        path: path.filter(|path| !path.is_empty()).unwrap_or("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_paths_differ_and_are_recognized() {
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
