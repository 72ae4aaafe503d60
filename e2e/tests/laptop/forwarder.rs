//! A proxy between a third-party client and a mediator. It adds the runner's token, and the
//! surface's prefix to the names of tools, because the client cannot add them. `Host`, `Origin` and
//! everything else pass unchanged.

use std::{future, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    response::Response,
};
use http::{
    HeaderMap, HeaderValue, Uri,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::{net::TcpListener, runtime::Runtime};
use toolcrib_e2e::services::serving::serve_on;

/// Maximum bytes of a body: larger than any message of a test.
const MAX_BODY: usize = 4 << 20;
/// The header that mirrors a tool's name.
const NAME: &str = "mcp-name";

pub struct Forwarder {
    pub address: SocketAddr,
    /// Dropping it stops the server.
    _runtime: Runtime,
}

struct ForwardTarget {
    client: Client<HttpConnector, Body>,
    to: SocketAddr,
    authorization: HeaderValue,
    /// The surface's prefix before each tool's own name at the mediator.
    prefix: String,
}

impl Forwarder {
    /// Starts the proxy; it listens when this returns.
    pub fn start(to: SocketAddr, token: &str, prefix: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let onward = ForwardTarget {
            client: Client::builder(TokioExecutor::new()).build_http(),
            to,
            authorization: format!("Bearer {token}").parse().unwrap(),
            prefix: prefix.to_string(),
        };
        let router = Router::new().fallback(pass).with_state(Arc::new(onward));
        runtime.spawn(serve_on(listener, router, future::pending()));
        Self {
            address,
            _runtime: runtime,
        }
    }
}

/// Forwards a request. A panic closes the connection, which the client's checks notice.
async fn pass(State(onward): State<Arc<ForwardTarget>>, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    head.uri = Uri::try_from(format!("http://{}{}", onward.to, head.uri.path())).unwrap();
    let authorization = onward.authorization.clone();
    head.headers.insert(AUTHORIZATION, authorization);
    let body = edited(&mut head.headers, body, |headers, message| {
        onward.prefix_call(headers, message);
    })
    .await;
    let request = Request::from_parts(head, body);

    let (mut head, body) = onward.client.request(request).await.unwrap().into_parts();
    let is_document = head.headers.get(CONTENT_TYPE) == Some(&"application/json".parse().unwrap());
    let body = match is_document {
        true => {
            edited(&mut head.headers, Body::new(body), |_, message| {
                onward.strip(message)
            })
            .await
        }
        false => Body::new(body),
    };
    Response::from_parts(head, body)
}

/// Edits a JSON body; other bodies pass unchanged.
async fn edited(
    headers: &mut HeaderMap,
    body: Body,
    edit: impl FnOnce(&mut HeaderMap, &mut Value),
) -> Body {
    let bytes = to_bytes(body, MAX_BODY).await.unwrap();
    let mut text = bytes.clone();
    if let Ok(mut message) = serde_json::from_slice::<Value>(&bytes) {
        let before = message.clone();
        edit(headers, &mut message);
        if message != before {
            text = Bytes::from(message.to_string());
        }
    }
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
    Body::from(text)
}

impl ForwardTarget {
    fn prefix_call(&self, headers: &mut HeaderMap, message: &mut Value) {
        if message["method"] != "tools/call" {
            return;
        }
        if let Some(Value::String(name)) = message.pointer_mut("/params/name") {
            name.insert_str(0, &self.prefix);
        }
        if let Some(name) = headers.get(NAME) {
            let name = [self.prefix.as_bytes(), name.as_bytes()].concat();
            headers.insert(NAME, HeaderValue::from_bytes(&name).unwrap());
        }
    }

    fn strip(&self, message: &mut Value) {
        let tools = message.pointer_mut("/result/tools");
        for tool in tools.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(Value::String(name)) = tool.get_mut("name")
                && let Some(own) = name.strip_prefix(&self.prefix)
            {
                *name = own.to_string();
            }
        }
    }
}
