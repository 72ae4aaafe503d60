//! Traits of a connection's service and of its response bodies.

use std::convert::Infallible;

use http::{Request, Response};
use hyper::body::{Body, Incoming};

/// The service of one connection, such as axum's `Router`, with bodies of type `B`.
pub trait Routes<B>:
    tower::Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S, B> Routes<B> for S where
    S: tower::Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// The body of a response.
pub trait ResponseBody:
    Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static
{
}

impl<B> ResponseBody for B where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static
{
}
