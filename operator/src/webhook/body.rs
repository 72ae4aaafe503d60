//! Reads the body of an admission, within bounds.
//!
//! The API server accepts a request of 3 MiB. Its review holds the object twice, with escaped
//! characters, and can therefore exceed the bound here. Such a review is still answered under its
//! uid: the API server ignores an answer without the uid, and `failurePolicy: Ignore` would admit
//! the object.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use http_body_util::BodyExt as _;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use toolcrib_bounds::Buffer;

/// Limit of the bytes of a body that are kept. An object of 1.5 MiB, which is etcd's limit, fits
/// twice.
pub const MAX_KEPT: usize = 3 * 1024 * 1024;
/// Limit of the bytes of a body that are received. A client that is cut off in mid-request does not
/// read the answer, so more is received than kept.
const MAX_TAKEN: usize = 64 * 1024 * 1024;
/// Timeout of waiting for buffer space, and of receiving a body. The API server sends a review at
/// once.
const TIME: Duration = Duration::from_secs(2);
/// The first bytes of a review, which contain its uid in the API server's order of members.
const BEGINNING: usize = 4 * 1024;
/// Limit of the bodies of all reviews together, in KiB: thousands of usual pods. A pod of many
/// small parts takes twelve times its length once it is decoded, and the chart gives a webhook
/// 256 MiB.
const BODIES_KIB: usize = 8 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub enum BodyRead {
    Whole(Bytes),
    /// The body is over [`MAX_KEPT`]; the uid is known if it is among the first bytes.
    TooLarge {
        uid: Option<String>,
    },
    /// Other bodies take all the buffer space; the uid is known if it is among the first bytes.
    Busy {
        uid: Option<String>,
    },
    Failed(&'static str),
}

/// The buffer space for the bodies of all reviews.
pub struct Bodies(Arc<Semaphore>);

/// The buffer space of one body, reserved until this value is dropped.
pub struct Room(#[expect(dead_code, reason = "keeps the permit")] Option<OwnedSemaphorePermit>);

impl Default for Bodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BODIES_KIB)))
    }
}

impl Bodies {
    pub async fn read(&self, body: Body) -> (BodyRead, Room) {
        // A body of unknown length reserves the space of the largest one.
        let length = body.size_hint().upper().unwrap_or(u64::MAX);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(MAX_KEPT);
        let kib = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.0).acquire_many_owned(kib);
        let (room, most) = match timeout(TIME, room).await {
            Ok(Ok(room)) => (Some(room), MAX_KEPT),
            // Received to its end, so that the client reads the answer, which carries the uid.
            Ok(Err(_)) | Err(_) => (None, BEGINNING),
        };
        let read = match timeout(TIME, taken(body, most)).await {
            Err(_) => BodyRead::Failed("the body did not come in time"),
            Ok(Ok((kept, _))) if room.is_none() => BodyRead::Busy { uid: uid(&kept) },
            Ok(Ok((kept, length))) if length > most => BodyRead::TooLarge { uid: uid(&kept) },
            Ok(Ok((kept, _))) => BodyRead::Whole(kept.into()),
            Ok(Err(why)) => BodyRead::Failed(why),
        };
        (read, Room(room))
    }
}

/// Receives a body; returns its first `most` bytes at most, and its length.
async fn taken(mut body: Body, most: usize) -> Result<(Vec<u8>, usize), &'static str> {
    let mut kept = Buffer::new(most);
    let mut length = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "the body broke off")?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length = length.saturating_add(data.len());
        if length > MAX_TAKEN {
            break;
        }
        kept.fill(&data);
    }
    Ok((kept.into_bytes(), length))
}

/// Returns `request.uid` of a review whose end may be missing.
fn uid(beginning: &[u8]) -> Option<String> {
    let mut found = None;
    // Decoding always ends in an error: at the uid, or at the end of the text.
    let end = StringAtPath {
        path: &["request", "uid"],
        found: &mut found,
    }
    .deserialize(&mut serde_json::Deserializer::from_slice(beginning));
    end.err().and(found)
}

/// Reads the string at a path of members, and stops decoding as soon as it is found.
struct StringAtPath<'a> {
    path: &'static [&'static str],
    found: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for StringAtPath<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            *self.found = Some(serde::Deserialize::deserialize(value)?);
            return Err(D::Error::custom("found"));
        }
        value.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StringAtPath<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (first, rest) = self
            .path
            .split_first()
            .expect("`deserialize` handles an empty path");
        while let Some(name) = members.next_key::<String>()? {
            if name == *first {
                members.next_value_seed(StringAtPath {
                    path: rest,
                    found: &mut *self.found,
                })?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(body: Body) -> BodyRead {
        Bodies::default().read(body).await.0
    }

    #[test]
    fn the_uid_of_a_truncated_review_is_found() {
        for (text, expected) in [
            (
                r#"{"kind":"AdmissionReview","request":{"uid":"u-7","object":{"uid":"no","#,
                Some("u-7"),
            ),
            (
                r#"{"request":{"kind":{"uid":"no"},"uid":"u-8","obj"#,
                Some("u-8"),
            ),
            (r#"{"request":{"object":{"metadata":{"uid":"no"}},"#, None),
            (r#"{"request":{"uid":7,"#, None),
            (r#"{"request":["uid","#, None),
            (r#"{"uid":"no","request":{"#, None),
            ("", None),
            ("   ", None),
        ] {
            assert_eq!(uid(text.as_bytes()).as_deref(), expected, "{text}");
        }
        let deep = format!(r#"{{"request":{{"object":{}"#, "[".repeat(100_000));
        assert_eq!(uid(deep.as_bytes()), None);
    }

    #[tokio::test]
    async fn a_body_within_the_bound_is_read_whole() {
        let text = vec![b'o'; MAX_KEPT];
        assert_eq!(
            read(Body::from(text.clone())).await,
            BodyRead::Whole(text.into())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let endless = futures::stream::pending::<Result<Bytes, std::io::Error>>();
        assert_eq!(
            read(Body::from_stream(endless)).await,
            BodyRead::Failed("the body did not come in time")
        );
        let chunk = Bytes::from(vec![b' '; 1024 * 1024]);
        let endless = futures::stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()));
        assert_eq!(
            read(Body::from_stream(endless)).await,
            BodyRead::TooLarge { uid: None }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_room_is_answered_under_its_uid() {
        let bodies = Bodies::default();
        let review = format!(
            r#"{{"request":{{"uid":"u-7","object":"{}"}}}}"#,
            "o".repeat(MAX_KEPT - 100)
        );
        let mut rooms = Vec::new();
        for _ in 0..BODIES_KIB * 1024 / MAX_KEPT {
            let (read, room) = bodies.read(Body::from(review.clone())).await;
            assert!(matches!(read, BodyRead::Whole(_)));
            rooms.push(room);
        }
        let (read, _) = bodies.read(Body::from(review.clone())).await;
        assert_eq!(
            read,
            BodyRead::Busy {
                uid: Some("u-7".to_owned())
            }
        );
        rooms.pop();
        let (read, _) = bodies.read(Body::from(review)).await;
        assert!(matches!(read, BodyRead::Whole(_)));
    }
}
