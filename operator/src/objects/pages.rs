//! A client that bounds the bytes of each page of a list.
//!
//! The API server limits a page by objects only, and an object has up to a few MiB: 500 of them,
//! kube's page size, are more than the process may hold. So a page is read up to a bound of bytes;
//! a page over the bound is requested again with fewer objects. The client remembers the limit of
//! each path, so that later lists begin with it.
//!
//! Invariant: a page of a single object is always read, whatever its size.

use std::collections::HashMap;
use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use toolcrib_serve::{BodyError, read_body};

/// Most bytes of a page with more than one object.
const PAGE: usize = 4 * 1024 * 1024;

/// Most objects of a page by path, for paths with large objects.
type Limits = Arc<Mutex<HashMap<String, u32>>>;

/// Wraps `client`, so that its lists come in bounded pages.
pub fn bounded(client: &Client) -> Client {
    let inner = client.clone();
    let limits = Limits::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, limits) = (inner.clone(), Arc::clone(&limits));
        async move { send(&inner, &limits, request).await }
    });
    Client::new(service, client.default_namespace().to_owned())
}

async fn send(
    client: &Client,
    limits: &Limits,
    request: Request<Body>,
) -> Result<Response<Body>, kube::Error> {
    let Some((path, requested)) = page_of(&request) else {
        return client.send(request).await;
    };
    let (head, _) = request.into_parts();
    let known = limits.lock().get(&path).copied();
    let mut limit = known.map_or(requested, |known| known.min(requested));
    loop {
        let mut page = Request::new(Body::empty());
        *page.method_mut() = head.method.clone();
        *page.headers_mut() = head.headers.clone();
        *page.uri_mut() = with_limit(&head.uri, limit);
        let answer = client.send(page).await?;
        let (head, body) = answer.into_parts();
        let most = if limit == 1 { usize::MAX } else { PAGE };
        let bytes = match read_body(body, most).await {
            Ok(bytes) => Some(bytes),
            Err(BodyError::TooLarge) => None,
            Err(BodyError::Broken(error)) => return Err(error),
        };
        if let Some(bytes) = bytes {
            // The page is at most half full, so the next page may have more objects.
            let next = if bytes.len() < PAGE / 2 {
                limit.saturating_mul(2)
            } else {
                limit
            };
            let mut limits = limits.lock();
            if next < requested {
                limits.insert(path, next);
            } else {
                limits.remove(&path);
            }
            return Ok(Response::from_parts(head, Body::from(bytes)));
        }
        limit = (limit / 8).max(1);
        tracing::debug!(
            path,
            limit,
            "page too large, requested again with fewer objects"
        );
    }
}

/// The path and the limit of a list; `None` if the request does not get a page of a list.
fn page_of(request: &Request<Body>) -> Option<(String, u32)> {
    let query = request.uri().query()?;
    let pairs = || query.split('&').filter_map(|pair| pair.split_once('='));
    let watches = pairs().any(|(name, value)| name == "watch" && value != "false");
    if request.method() != http::Method::GET || watches {
        return None;
    }
    let (_, limit) = pairs().find(|(name, _)| *name == "limit")?;
    let limit = limit.parse().ok().filter(|limit| *limit > 0)?;
    Some((request.uri().path().to_owned(), limit))
}

fn with_limit(uri: &http::Uri, limit: u32) -> http::Uri {
    let query = uri.query().unwrap_or_default();
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some(("limit", _)) => format!("limit={limit}"),
            Some(_) | None => pair.to_owned(),
        })
        .collect();
    let target = format!("{}?{}", uri.path(), pairs.join("&"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target.parse().expect("only a number differs"));
    http::Uri::from_parts(parts).expect("only a number differs")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::ListParams;
    use serde_json::json;

    use super::*;

    /// An API server with objects of these sizes, and the limits of its requests.
    fn server(sizes: Vec<usize>) -> (Client, Arc<Mutex<Vec<u32>>>) {
        let limits: Arc<Mutex<Vec<u32>>> = Arc::default();
        let seen = Arc::clone(&limits);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let value = |wanted: &str| {
                let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                let mut values = pairs.filter(|(name, _)| *name == wanted);
                values.next().map(|(_, value)| value.to_owned())
            };
            let limit: usize = value("limit").expect("a limit").parse().expect("a number");
            let from: usize = value("continue").map_or(0, |from| from.parse().expect("a number"));
            note_limit(&seen, limit);
            let to = (from + limit).min(sizes.len());
            let items: Vec<_> = (from..to)
                .map(|at| json!({"metadata": {"name": format!("c{at}")}, "data": {"text": "x".repeat(sizes[at])}}))
                .collect();
            let next = (to < sizes.len()).then(|| to.to_string());
            let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"continue": next}, "items": items});
            async move {
                let body = Body::from(list.to_string().into_bytes());
                Ok::<_, Infallible>(Response::new(body))
            }
        });
        (bounded(&Client::new(service, "pond")), limits)
    }

    fn note_limit(seen: &Mutex<Vec<u32>>, limit: usize) {
        let limit = u32::try_from(limit).expect("a small number");
        seen.lock().push(limit);
    }

    /// Lists all names, in pages of 500.
    async fn names(client: Client) -> Vec<String> {
        let api: Api<ConfigMap> = Api::namespaced(client, "pond");
        let mut params = ListParams::default().limit(500);
        let mut names = Vec::new();
        loop {
            let page = api.list(&params).await.expect("a page");
            names.extend(page.items.into_iter().filter_map(|item| item.metadata.name));
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                Some(_) | None => return names,
            }
        }
    }

    #[tokio::test]
    async fn a_list_of_large_objects_is_complete_and_comes_in_small_pages() {
        let (client, limits) = server(vec![1_500_000; 20]);
        let all: Vec<String> = (0..20).map(|at| format!("c{at}")).collect();
        assert_eq!(names(client).await, all);
        let limits = limits.lock();
        assert_eq!(limits[..3], [500, 62, 7]);
        assert!(limits[3..].iter().all(|limit| *limit <= 2), "{limits:?}");
    }

    #[tokio::test]
    async fn an_object_larger_than_a_page_is_read_alone() {
        let (client, _) = server(vec![10, 6_000_000, 10]);
        assert_eq!(names(client).await, ["c0", "c1", "c2"]);
    }

    #[tokio::test]
    async fn small_objects_come_in_pages_of_the_requested_size() {
        let (client, limits) = server(vec![10; 700]);
        assert_eq!(names(client).await.len(), 700);
        assert_eq!(*limits.lock(), [500, 500]);
    }
}
