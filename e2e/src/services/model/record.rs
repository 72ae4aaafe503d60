//! The bounded memory of requests, for tests that check what the model received.

use std::collections::VecDeque;

use axum::http::HeaderMap;
use parking_lot::Mutex;
use serde::{Serialize, Serializer, ser::SerializeSeq};
use serde_json::value::RawValue;

/// Maximum number of requests in memory: enough for one test's conversations. A test with more
/// requests reads them in pieces.
const MAX_REQUESTS: usize = 256;
/// Maximum bytes of bodies in memory. A long conversation repeats its history in each request.
const MAX_BYTES: usize = 32 << 20;

/// The last requests, oldest first.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    requests: VecDeque<RequestRecord>,
    bytes: usize,
    total: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct RequestRecord {
    /// The request's number; counts all requests since the start.
    pub seq: u64,
    pub method: String,
    pub path: String,
    /// True if the request had the right key.
    pub authorized: bool,
    /// `[name, value]` in the order received, credentials included.
    #[serde(serialize_with = "pairs")]
    pub headers: Vec<(String, String)>,
    /// The body's own bytes if they are JSON, else the text as a string.
    pub body: Box<RawValue>,
    /// A short description of the reply.
    pub answer: String,
}

fn pairs<S: Serializer>(headers: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut seq = serializer.serialize_seq(Some(headers.len()))?;
    for pair in headers {
        seq.serialize_element(&[&pair.0, &pair.1])?;
    }
    seq.end()
}

/// The response of `GET /requests`.
#[derive(Debug, Serialize)]
pub struct Requests {
    /// Number of requests since the start, dropped ones included.
    pub total: u64,
    pub requests: Vec<RequestRecord>,
}

impl Recorder {
    pub fn push(
        &self,
        (method, path): (&str, &str),
        authorized: bool,
        headers: &HeaderMap,
        body: &[u8],
        answer: String,
    ) {
        let headers = headers
            .iter()
            .map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect();
        let mut ring = self.0.lock();
        let seq = ring.total;
        ring.total += 1;
        let recorded = RequestRecord {
            seq,
            method: method.to_string(),
            path: path.to_string(),
            authorized,
            headers,
            body: raw(body),
            answer,
        };
        ring.bytes += recorded.body.get().len();
        ring.requests.push_back(recorded);
        while ring.requests.len() > MAX_REQUESTS || ring.bytes > MAX_BYTES {
            let Some(oldest) = ring.requests.pop_front() else {
                break;
            };
            ring.bytes -= oldest.body.get().len();
        }
    }

    /// Requests with `seq` of at least `since`.
    pub fn since(&self, since: u64) -> Requests {
        let ring = self.0.lock();
        let requests = ring.requests.iter().filter(|request| request.seq >= since);
        Requests {
            total: ring.total,
            requests: requests.cloned().collect(),
        }
    }

    /// Drops all requests; `seq` continues.
    pub fn clear(&self) {
        let mut ring = self.0.lock();
        ring.requests.clear();
        ring.bytes = 0;
    }
}

fn raw(body: &[u8]) -> Box<RawValue> {
    let text = String::from_utf8_lossy(body);
    RawValue::from_string(text.clone().into_owned()).unwrap_or_else(|_| {
        serde_json::value::to_raw_value(&text).expect("a string is always valid JSON")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest_and_keeps_the_bytes() {
        let recorder = Recorder::default();
        for number in 0..=MAX_REQUESTS {
            let body = format!("{{\"n\":{number}.0,  \"n\":1}}");
            recorder.push(
                ("POST", "/v1/x"),
                true,
                &HeaderMap::new(),
                body.as_bytes(),
                "ok".into(),
            );
        }
        let all = recorder.since(0);
        assert_eq!((all.total, all.requests.len()), (257, MAX_REQUESTS));
        assert_eq!(all.requests[0].body.get(), "{\"n\":1.0,  \"n\":1}");
        assert_eq!(recorder.since(256).requests.len(), 1);
    }

    #[test]
    fn a_body_that_is_not_json_is_recorded_as_a_string() {
        assert_eq!(raw(b"{broken").get(), "\"{broken\"");
        assert_eq!(raw(b"").get(), "\"\"");
    }
}
