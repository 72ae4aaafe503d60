//! Authentication of mediators: a TokenReview with the link's audience.
//!
//! The result is cached for a minute by the token's hash, since ten thousand mediators report every
//! 15 s. Each message looks its pod up in the store of pods as well, so a deleted pod is refused at
//! once.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use toolcrib_compile::names;

/// Lifetime of a cached result.
const KEEP: Duration = Duration::from_secs(60);
/// Limit of cached results: twice the pods of the largest supported cluster.
const CAPACITY: usize = 20_000;
/// Limit of reviews that run at the same time, so a flood of tokens does not reach the API server.
const AT_ONCE: usize = 32;
/// Limit of a token's length in bytes. No ServiceAccount token is longer.
const LONGEST_TOKEN: usize = 8 * 1024;

/// The pod that a token was projected into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("the token is not one for the link")]
    Refused,
    #[error("the token could not be reviewed")]
    Unavailable(#[source] kube::Error),
}

pub struct Reviewer {
    api: Api<TokenReview>,
    asking: Semaphore,
    cached: Mutex<HashMap<[u8; 32], (Instant, Bearer)>>,
    capacity: usize,
}

impl Reviewer {
    pub fn new(client: Client) -> Self {
        Self::bounded(client, AT_ONCE, CAPACITY)
    }

    fn bounded(client: Client, at_once: usize, capacity: usize) -> Self {
        Self {
            api: Api::all(client),
            asking: Semaphore::new(at_once),
            cached: Mutex::new(HashMap::new()),
            capacity,
        }
    }

    fn cached(&self) -> MutexGuard<'_, HashMap<[u8; 32], (Instant, Bearer)>> {
        self.cached.lock()
    }

    fn cached_bearer(&self, hash: &[u8; 32]) -> Option<Bearer> {
        let cached = self.cached();
        let (until, bearer) = cached.get(hash)?;
        (*until > Instant::now()).then(|| bearer.clone())
    }

    /// Returns the pod of a token, from the cache or from the API server.
    pub async fn review(&self, token: &str) -> Result<Bearer, ReviewError> {
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(ReviewError::Refused);
        }
        let hash: [u8; 32] = Sha256::digest(token).into();
        if let Some(bearer) = self.cached_bearer(&hash) {
            return Ok(bearer);
        }
        let _turn = self
            .asking
            .acquire()
            .await
            .expect("the semaphore is never closed");
        // A request that waited here before may have cached the review of the same token.
        if let Some(bearer) = self.cached_bearer(&hash) {
            return Ok(bearer);
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![names::LINK_AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let answer = self
            .api
            .create(&PostParams::default(), &review)
            .await
            .map_err(ReviewError::Unavailable)?;
        let bearer = answer
            .status
            .as_ref()
            .and_then(bearer)
            .ok_or(ReviewError::Refused)?;
        let now = Instant::now();
        let mut cached = self.cached();
        if cached.len() >= self.capacity {
            cached.retain(|_, (until, _)| *until > now);
        }
        if cached.len() < self.capacity {
            cached.insert(hash, (now + KEEP, bearer.clone()));
        }
        Ok(bearer)
    }
}

/// Returns the pod, if the token has the link's audience and was projected into a pod.
fn bearer(status: &TokenReviewStatus) -> Option<Bearer> {
    if status.authenticated != Some(true)
        || !status
            .audiences
            .iter()
            .flatten()
            .any(|audience| audience == names::LINK_AUDIENCE)
    {
        return None;
    }
    let user = status.user.as_ref()?;
    let (namespace, _) = user
        .username
        .as_deref()?
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    let extra = |name: &str| match user.extra.as_ref()?.get(name)?.as_slice() {
        [one] if !one.is_empty() => Some(one.clone()),
        _ => None,
    };
    Some(Bearer {
        namespace: namespace.to_owned(),
        pod: extra("authentication.kubernetes.io/pod-name")?,
        uid: extra("authentication.kubernetes.io/pod-uid")?,
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Response;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn answer() -> Value {
        json!({
            "authenticated": true,
            "audiences": ["toolcrib.dev/link"],
            "user": {
                "username": "system:serviceaccount:pond:default",
                "extra": {
                    "authentication.kubernetes.io/pod-name": ["otter-1"],
                    "authentication.kubernetes.io/pod-uid": ["uid-1"],
                },
            },
        })
    }

    fn check(change: impl FnOnce(&mut Value)) -> Option<Bearer> {
        let mut answer = answer();
        change(&mut answer);
        bearer(&serde_json::from_value(answer).unwrap())
    }

    /// Counts the running reviews, the most that ran at once, and all of them.
    #[derive(Default)]
    struct ReviewCounts {
        now: AtomicUsize,
        most: AtomicUsize,
        all: AtomicUsize,
    }

    fn api_server(counted: &Arc<ReviewCounts>) -> Client {
        let counted = Arc::clone(counted);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let counted = Arc::clone(&counted);
            async move {
                counted.all.fetch_add(1, Ordering::Relaxed);
                let now = counted.now.fetch_add(1, Ordering::Relaxed) + 1;
                counted.most.fetch_max(now, Ordering::Relaxed);
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
                counted.now.fetch_sub(1, Ordering::Relaxed);
                let review = json!({"metadata": {}, "spec": {}, "status": answer()});
                let body = Body::from(review.to_string().into_bytes());
                Ok::<_, Infallible>(Response::new(body))
            }
        });
        Client::new(service, "pond")
    }

    #[tokio::test]
    async fn concurrent_reviews_and_the_cache_are_bounded() {
        let counted = Arc::default();
        let reviewer = Reviewer::bounded(api_server(&counted), 3, 4);
        let tokens: Vec<String> = (0..20).map(|number| format!("token-{number}")).collect();
        let reviews = tokens.iter().map(|token| reviewer.review(token));
        for bearer in futures::future::join_all(reviews).await {
            assert_eq!(bearer.unwrap().uid, "uid-1");
        }
        assert_eq!(counted.most.load(Ordering::Relaxed), 3);
        assert_eq!(counted.all.load(Ordering::Relaxed), 20);
        assert_eq!(reviewer.cached().len(), 4);
    }

    #[tokio::test]
    async fn concurrent_requests_with_one_token_share_a_review() {
        let counted = Arc::default();
        let reviewer = Reviewer::bounded(api_server(&counted), 1, 4);
        let reviews = (0..20).map(|_| reviewer.review("token"));
        for bearer in futures::future::join_all(reviews).await {
            assert_eq!(bearer.unwrap().uid, "uid-1");
        }
        assert_eq!(counted.all.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_pod_is_taken_from_the_review() {
        let expected = Bearer {
            namespace: "pond".into(),
            pod: "otter-1".into(),
            uid: "uid-1".into(),
        };
        assert_eq!(check(|_| {}), Some(expected));
    }

    #[test]
    fn another_audience_no_pod_or_no_service_account_is_refused() {
        assert_eq!(check(|a| a["authenticated"] = json!(false)), None);
        assert_eq!(
            check(|a| a["audiences"] = json!(["https://kubernetes.default.svc"])),
            None
        );
        assert_eq!(check(|a| a["audiences"] = json!([])), None);
        assert_eq!(check(|a| a["user"]["username"] = json!("admin")), None);
        assert_eq!(check(|a| a["user"]["extra"] = json!({})), None);
        let uid = "authentication.kubernetes.io/pod-uid";
        assert_eq!(check(|a| a["user"]["extra"][uid] = json!(["a", "b"])), None);
    }
}
