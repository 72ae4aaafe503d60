//! A client whose lists come in pages of bounded size.
//!
//! The API server counts a page in objects, and one object has up to a few MiB: 500 of them, kube's
//! page, are more than the process may take. So a list's answer is read up to a bound of bytes;
//! over it, the same page is asked for again with fewer objects. How many the last pages of a
//! path had is remembered, so that a large store is not asked for twice each time.
//!
//! Invariant: one object is always read, however large the API server let it be.

use std::collections::HashMap;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use toolcrib_bounds::Buffer;

/// The most that a page of more than one object has.
const PAGE: usize = 4 * 1024 * 1024;

/// Objects that a path's pages may have, where they were found to be large.
type Limits = Arc<Mutex<HashMap<String, u32>>>;

/// The client, with lists as described above.
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
    let Some((path, asked)) = page_of(&request) else {
        return client.send(request).await;
    };
    let (head, _) = request.into_parts();
    let known = limits.lock().get(&path).copied();
    let mut limit = known.map_or(asked, |known| known.min(asked));
    loop {
        let mut page = Request::new(Body::empty());
        *page.method_mut() = head.method.clone();
        *page.headers_mut() = head.headers.clone();
        *page.uri_mut() = with_limit(&head.uri, limit);
        let answer = client.send(page).await?;
        let (head, body) = answer.into_parts();
        let most = if limit == 1 { usize::MAX } else { PAGE };
        if let Some(bytes) = read(body, most).await? {
            // Half a page or less: the next one may have more.
            let next = if bytes.len() < PAGE / 2 {
                limit.saturating_mul(2)
            } else {
                limit
            };
            let mut limits = limits.lock();
            if next < asked {
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
            "page is too large, asked for again with fewer objects"
        );
    }
}

/// The path of a list, and how many objects are asked for; `None`: it is no page of a list.
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
    parts.path_and_query = Some(target.parse().expect("only a number in it is another"));
    http::Uri::from_parts(parts).expect("only a number in it is another")
}

/// The body; `None`: it is over `most` bytes, and the rest was not read.
async fn read(mut body: Body, most: usize) -> Result<Option<Vec<u8>>, kube::Error> {
    let mut bytes = Buffer::new(most);
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        if let Some(data) = frame.data_ref()
            && bytes.push(data).is_err()
        {
            return Ok(None);
        }
    }
    Ok(Some(bytes.into_bytes()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::ListParams;
    use serde_json::json;

    use super::*;

    /// An API server with objects of these sizes, and the limits that it was asked with.
    fn server(sizes: Vec<usize>) -> (Client, Arc<Mutex<Vec<u32>>>) {
        let asked: Arc<Mutex<Vec<u32>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let value = |wanted: &str| {
                let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                let mut values = pairs.filter(|(name, _)| *name == wanted);
                values.next().map(|(_, value)| value.to_owned())
            };
            let limit: usize = value("limit").expect("a limit").parse().expect("a number");
            let from: usize = value("continue").map_or(0, |from| from.parse().expect("a number"));
            asked_for(&seen, limit);
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
        (bounded(&Client::new(service, "pond")), asked)
    }

    fn asked_for(seen: &Mutex<Vec<u32>>, limit: usize) {
        let limit = u32::try_from(limit).expect("a small number");
        seen.lock().push(limit);
    }

    /// All names, by pages of 500.
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
    async fn a_list_of_large_objects_comes_in_small_pages_and_is_whole() {
        let (client, asked) = server(vec![1_500_000; 20]);
        let all: Vec<String> = (0..20).map(|at| format!("c{at}")).collect();
        assert_eq!(names(client).await, all);
        let asked = asked.lock();
        assert_eq!(asked[..3], [500, 62, 7]);
        assert!(asked[3..].iter().all(|limit| *limit <= 2), "{asked:?}");
    }

    #[tokio::test]
    async fn an_object_larger_than_a_page_is_read_alone() {
        let (client, _) = server(vec![10, 6_000_000, 10]);
        assert_eq!(names(client).await, ["c0", "c1", "c2"]);
    }

    #[tokio::test]
    async fn small_objects_come_in_the_pages_that_were_asked_for() {
        let (client, asked) = server(vec![10; 700]);
        assert_eq!(names(client).await.len(), 700);
        assert_eq!(*asked.lock(), [500, 500]);
    }
}
