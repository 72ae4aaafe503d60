//! Reads a body up to a bound.
//!
//! Not here: deadlines, and bounds that several bodies share; each program has its own.

use std::pin::pin;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Buf as _};
use toolcrib_bounds::Buffer;

/// The reason why a body was not read to its end.
#[derive(Debug)]
pub enum BodyError<E> {
    /// The body is longer than the limit. Its rest was not read.
    TooLarge,
    Broken(E),
}

/// Reads the whole body, of at most `limit` bytes.
pub async fn read_body<B: Body>(body: B, limit: usize) -> Result<Vec<u8>, BodyError<B::Error>> {
    let mut body = pin!(body);
    let mut bytes = Buffer::new(limit);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(BodyError::Broken)?;
        // Other frames are trailers.
        let Ok(mut data) = frame.into_data() else {
            continue;
        };
        while data.has_remaining() {
            let chunk = data.chunk();
            bytes.push(chunk).map_err(|_| BodyError::TooLarge)?;
            let length = chunk.len();
            data.advance(length);
        }
    }
    Ok(bytes.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::HeaderMap;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    async fn read(
        frames: Vec<Result<Frame<Bytes>, &'static str>>,
        limit: usize,
    ) -> Result<Vec<u8>, BodyError<&'static str>> {
        read_body(StreamBody::new(futures::stream::iter(frames)), limit).await
    }

    fn data(text: &'static str) -> Result<Frame<Bytes>, &'static str> {
        Ok(Frame::data(Bytes::from(text)))
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_exactly_its_limit() {
        let trailers = || Ok(Frame::trailers(HeaderMap::new()));
        let frames = || vec![data("ot"), data(""), data("ter"), trailers()];
        assert_eq!(read(frames(), 5).await.expect("five bytes"), b"otter");
        let longer = read(frames(), 4).await;
        assert!(matches!(longer, Err(BodyError::TooLarge)), "{longer:?}");
        let broken = read(vec![data("ot"), Err("reset")], 5).await;
        assert!(
            matches!(broken, Err(BodyError::Broken("reset"))),
            "{broken:?}"
        );
    }

    #[tokio::test]
    async fn a_body_without_frames_is_empty() {
        let body = http_body_util::Empty::<Bytes>::new();
        let read: Result<Vec<u8>, BodyError<Infallible>> = read_body(body, 0).await;
        assert_eq!(read.expect("no bytes"), b"");
    }
}
