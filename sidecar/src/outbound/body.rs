//! Reads bodies of answers, each within a bound of its own.
//!
//! Not here: bodies of runners' requests, which share a bound ([`crate::request::admission`]);
//! answers of tools, which are decoded and counted ([`crate::outbound::tools::answer`]); answers of MCP
//! servers, which are read as events.

use bytes::Bytes;
use toolcrib_bounds::Buffer;

use super::transport::{BrokenBody, Response};

/// The reason why a body was not read to its end.
#[derive(Debug)]
pub enum BodyError {
    /// The body is longer than the bound. Its connection is closed; the rest is never read.
    TooLarge,
    Broken(BrokenBody),
}

/// Reads the whole body, of at most `limit` bytes.
pub async fn whole(mut response: Response, limit: usize) -> Result<Vec<u8>, BodyError> {
    whole_after(Bytes::new(), &mut response, limit).await
}

/// Reads the whole body of at most `limit` bytes; `first` was read before.
pub async fn whole_after(
    first: Bytes,
    rest: &mut Response,
    limit: usize,
) -> Result<Vec<u8>, BodyError> {
    let mut body = Buffer::new(limit);
    let mut next = Some(first);
    while let Some(chunk) = next {
        body.push(&chunk).map_err(|_| BodyError::TooLarge)?;
        next = rest.chunk().await.map_err(BodyError::Broken)?;
    }
    Ok(body.into_bytes())
}

/// Reads the first `limit` bytes. The connection is closed if there are more.
pub async fn prefix(mut response: Response, limit: usize) -> Result<Vec<u8>, BrokenBody> {
    let mut body = Buffer::new(limit);
    while let Some(chunk) = response.chunk().await? {
        if body.fill(&chunk) {
            break;
        }
    }
    Ok(body.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response whose body arrives in these chunks.
    fn response(chunks: &[&'static str]) -> Response {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|it| Ok::<_, std::io::Error>(*it))
            .collect();
        let body = reqwest::Body::wrap_stream(futures::stream::iter(chunks));
        reqwest::Response::from(http::Response::new(body)).into()
    }

    #[tokio::test]
    async fn a_body_of_exactly_the_bound_is_read_and_a_longer_one_is_not() {
        for chunks in [&["otter"][..], &["ot", "", "ter"]] {
            let read = whole(response(chunks), 5).await;
            assert_eq!(read.unwrap(), b"otter");
            let read = whole(response(chunks), 4).await;
            assert!(matches!(read, Err(BodyError::TooLarge)), "{chunks:?}");
            assert_eq!(prefix(response(chunks), 4).await.unwrap(), b"otte");
            assert_eq!(prefix(response(chunks), 9).await.unwrap(), b"otter");
        }
        let read = whole_after("o".into(), &mut response(&["tt", "er"]), 5).await;
        assert_eq!(read.unwrap(), b"otter");
        let read = whole_after("otters".into(), &mut response(&[]), 5).await;
        assert!(matches!(read, Err(BodyError::TooLarge)));
    }
}
