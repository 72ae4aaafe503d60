//! The paths that the API server calls, read from the two webhook configurations.
//!
//! The API server presents no credential to a webhook. So the controller puts a random segment,
//! which pods cannot read, into each path, and a request at such a path comes from the API server.
//! Other requests are answered before a byte of their body is read.
//!
//! Only the configurations decide: a path is valid while a configuration names it, and for [`LAG`]
//! after. So a new segment, a chart that is applied again and a rollback take effect at once. For an
//! unknown path, the configurations are read again before it is refused, since an API server may
//! learn of a change before this process does.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::{Api, Client, Resource};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::certificates::path::{Configuration, INJECT, VALIDATE};

/// Time for which a path stays valid after the configurations have dropped it. One of several API
/// servers may learn of the change late.
const LAG: Duration = Duration::from_secs(60);
/// Time between two regular reads of the configurations.
const INTERVAL: Duration = Duration::from_secs(20);
/// Shortest time between two reads, so that requests at unknown paths cannot flood the API server.
const APART: Duration = Duration::from_millis(250);
/// Timeout of reading one configuration.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a request at an unknown path waits for a read; less than the webhook's timeout.
const WAIT: Duration = Duration::from_secs(3);

/// The webhook that a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Inject the mediator into a pod.
    Inject,
    /// Validate an object of our kinds.
    Validate,
}

/// The valid paths. Cheap to clone.
#[derive(Clone)]
pub struct Paths(Arc<Inner>);

struct Inner {
    /// Name of both configurations; `None`: the plain paths are valid.
    configurations: Option<(Client, String)>,
    named: RwLock<Vec<KnownPath>>,
    /// Start of the last complete read. Locked while a read runs.
    begun: Mutex<Option<Instant>>,
    looked: AtomicBool,
}

struct KnownPath {
    question: Question,
    path: String,
    /// End of the path's validity; `None` while a configuration names it.
    until: Option<Instant>,
}

impl Paths {
    /// `/inject` and `/validate`, for every client. Used if no controller writes the configurations.
    pub fn plain() -> Self {
        let named = [(Question::Inject, INJECT), (Question::Validate, VALIDATE)];
        let named = named.map(|(question, path)| KnownPath {
            question,
            path: path.to_owned(),
            until: None,
        });
        Self(Arc::new(Inner {
            configurations: None,
            named: RwLock::new(named.into()),
            begun: Mutex::default(),
            looked: AtomicBool::new(true),
        }))
    }

    /// The paths of the mutating and the validating configuration of this name.
    pub fn of(client: Client, name: String) -> Self {
        Self(Arc::new(Inner {
            configurations: Some((client, name)),
            named: RwLock::default(),
            begun: Mutex::default(),
            looked: AtomicBool::new(false),
        }))
    }

    /// True once both configurations were read, even if they do not exist.
    pub fn known(&self) -> bool {
        self.0.looked.load(Ordering::Relaxed)
    }

    /// Returns the webhooks that a path belongs to: none, one, or both if the configurations name
    /// no path (then every review comes to `/`).
    pub async fn questions(&self, path: &str) -> Vec<Question> {
        let known = self.at(path);
        if !known.is_empty() || self.0.configurations.is_none() {
            return known;
        }
        // A read that times out counts as one that found nothing.
        let _in_time = tokio::time::timeout(WAIT, self.read_since(Instant::now())).await;
        self.at(path)
    }

    /// Reads the configurations at an interval, forever, so that paths expire without a request too.
    pub async fn keep_current(&self) {
        loop {
            self.read_since(Instant::now()).await;
            tokio::time::sleep(if self.known() { INTERVAL } else { APART }).await;
        }
    }

    /// Returns the webhooks of a known path. Compares all paths, each in constant time.
    fn at(&self, path: &str) -> Vec<Question> {
        let now = Instant::now();
        let named = self.0.named.read();
        named
            .iter()
            .filter(|named| named.until.is_none_or(|until| now < until))
            .filter(|named| named.path.as_bytes().ct_eq(path.as_bytes()).into())
            .map(|named| named.question)
            .collect()
    }

    /// Returns once a read that began after `since` has ended. One read runs at a time.
    async fn read_since(&self, since: Instant) {
        let Some((client, name)) = &self.0.configurations else {
            return;
        };
        let mut begun = self.0.begun.lock().await;
        if begun.is_some_and(|begun| begun > since) {
            return;
        }
        if let Some(begun) = *begun {
            tokio::time::sleep_until(begun + APART).await;
        }
        let now = Instant::now();
        let (inject, validate) = tokio::join!(
            paths::<MutatingWebhookConfiguration>(client, name),
            paths::<ValidatingWebhookConfiguration>(client, name),
        );
        if inject.is_some() && validate.is_some() {
            self.0.looked.store(true, Ordering::Relaxed);
        }
        let found = [(Question::Inject, inject), (Question::Validate, validate)];
        for (question, paths) in found {
            // If a configuration cannot be read, its known paths stay.
            if let Some(paths) = paths {
                self.take(question, &paths);
            }
        }
        // Set at the end, so that a read that timed out does not delay the next one.
        *begun = Some(now);
    }

    fn take(&self, question: Question, paths: &[String]) {
        let now = Instant::now();
        let mut named = self.0.named.write();
        named.retain(|named| named.until.is_none_or(|until| now < until));
        for named in named.iter_mut().filter(|named| named.question == question) {
            named.until = match paths.contains(&named.path) {
                true => None,
                false => named.until.or(Some(now + LAG)),
            };
        }
        for path in paths {
            if !named
                .iter()
                .any(|named| named.question == question && named.path == *path)
            {
                named.push(KnownPath {
                    question,
                    path: path.clone(),
                    until: None,
                });
            }
        }
    }
}

/// Reads the paths of a configuration; empty if it does not exist. `None` if the read failed.
async fn paths<K>(client: &Client, name: &str) -> Option<Vec<String>>
where
    K: Configuration
        + Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let kind = K::kind(&());
    match tokio::time::timeout(READ_TIMEOUT, api.get_opt(name)).await {
        Ok(Ok(Some(found))) => Some(found.paths()),
        Ok(Ok(None)) => Some(Vec::new()),
        Ok(Err(error)) => {
            tracing::warn!(name, %kind, %error, "reading webhook configuration failed, known paths kept");
            None
        }
        Err(_) => {
            tracing::warn!(name, %kind, "reading webhook configuration timed out, known paths kept");
            None
        }
    }
}
