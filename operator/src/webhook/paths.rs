//! The paths that the API server calls: those that the two webhook configurations name now.
//!
//! The API server shows a webhook no credential. So the controller puts a random segment into
//! each path, which pods cannot read, and a request at one of these paths is the API server's.
//! All others are answered before a byte of their body is read.
//!
//! The configurations alone say which paths these are: a path counts while one names it, and
//! for [`LAG`] after. So a new segment, a chart that is applied again and a rollback each count
//! at once. A path that is not known is looked for in the API server before it is refused, since
//! an API server may hear of a change before this process does.

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

/// How long a path counts that no configuration names any more: an API server of several may
/// hear late of a change.
const LAG: Duration = Duration::from_secs(60);
/// Between two looks that nothing asks for.
const INTERVAL: Duration = Duration::from_secs(20);
/// The least time between two looks: strangers make no flood of them.
const APART: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_secs(2);
/// How long an unknown path waits for a look. Less than what the API server gives a review.
const WAIT: Duration = Duration::from_secs(3);

/// What a review at a path asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Of a pod: with the mediator.
    Inject,
    /// Of an object of ours: whether, and what is to be said.
    Validate,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Paths(Arc<Inner>);

struct Inner {
    /// `None`: the plain paths, for configurations that no controller keeps.
    configurations: Option<(Client, String)>,
    named: RwLock<Vec<KnownPath>>,
    /// When the last look began. Held while one runs.
    begun: Mutex<Option<Instant>>,
    looked: AtomicBool,
}

struct KnownPath {
    question: Question,
    path: String,
    /// `None` while a configuration names it.
    until: Option<Instant>,
}

impl Paths {
    /// `/inject` and `/validate`, whoever calls them.
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

    /// Those of the mutating and the validating configuration of this name.
    pub fn of(client: Client, name: String) -> Self {
        Self(Arc::new(Inner {
            configurations: Some((client, name)),
            named: RwLock::default(),
            begun: Mutex::default(),
            looked: AtomicBool::new(false),
        }))
    }

    /// Both configurations were looked at, whether there is one or not.
    pub fn known(&self) -> bool {
        self.0.looked.load(Ordering::Relaxed)
    }

    /// What is asked at this path: nothing, or one question, or both where the configurations
    /// name none (then every review comes to `/`).
    pub async fn questions(&self, path: &str) -> Vec<Question> {
        let known = self.at(path);
        if !known.is_empty() || self.0.configurations.is_none() {
            return known;
        }
        // Over time it is as if the look had found nothing.
        let _in_time = tokio::time::timeout(WAIT, self.look_since(Instant::now())).await;
        self.at(path)
    }

    /// Looks now and then, forever: what was not asked for is forgotten too.
    pub async fn keep_current(&self) {
        loop {
            self.look_since(Instant::now()).await;
            tokio::time::sleep(if self.known() { INTERVAL } else { APART }).await;
        }
    }

    /// All of them are compared, each in constant time.
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

    /// Returns when a look has ended that began after that moment. One runs at a time.
    async fn look_since(&self, asked: Instant) {
        let Some((client, name)) = &self.0.configurations else {
            return;
        };
        let mut begun = self.0.begun.lock().await;
        if begun.is_some_and(|begun| begun > asked) {
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
            // What was not read stays as it was.
            if let Some(paths) = paths {
                self.take(question, &paths);
            }
        }
        // Only of a look that was not cut short: else the next one would wait for nothing.
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

/// The paths that the configuration names: none without a configuration. `None`: not read.
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
    match tokio::time::timeout(LOOK, api.get_opt(name)).await {
        Ok(Ok(Some(found))) => Some(found.paths()),
        Ok(Ok(None)) => Some(Vec::new()),
        Ok(Err(error)) => {
            tracing::warn!(name, %kind, %error, "webhook configuration not read; known paths stay");
            None
        }
        Err(_) => {
            tracing::warn!(name, %kind, "webhook configuration not read in time; known paths stay");
            None
        }
    }
}
