//! W3C trace context: continues the runner's trace, or begins a new one.

use http::HeaderMap;

/// Most bytes of `tracestate`. It is passed on whole or not at all.
const MAX_STATE: usize = 512;

/// The position of the request's span in its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    pub parent: Option<[u8; 8]>,
    pub state: String,
}

impl TraceContext {
    /// `None`: the runner's trace is not sampled, or there is no randomness for an id.
    pub fn of(headers: &HeaderMap) -> Option<TraceContext> {
        let mut parents = headers.get_all("traceparent").iter();
        let single = match (parents.next(), parents.next()) {
            (Some(value), None) => value.to_str().ok().and_then(parent),
            // A repeated header counts as none.
            _ => None,
        };
        match single {
            Some(parent) if !parent.sampled => None,
            Some(parent) => Some(TraceContext {
                trace_id: parent.trace_id,
                parent: Some(parent.span_id),
                state: state(headers),
            }),
            None => Some(TraceContext {
                trace_id: random()?,
                parent: None,
                state: String::new(),
            }),
        }
    }
}

/// A random id.
pub fn random<const N: usize>() -> Option<[u8; N]> {
    let mut id = [0; N];
    getrandom::fill(&mut id).ok()?;
    id.iter().any(|byte| *byte != 0).then_some(id)
}

struct Parent {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    sampled: bool,
}

/// `00-<32 hex>-<16 hex>-<2 hex>`; a later version may have more at its end.
fn parent(text: &str) -> Option<Parent> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let more = parts.next().is_some();
    let [version] = lower_hex::<1>(version)?;
    if version == 0xff || (version == 0 && more) {
        return None;
    }
    let parent = Parent {
        trace_id: lower_hex(trace)?,
        span_id: lower_hex(span)?,
        sampled: lower_hex::<1>(flags)?[0] & 1 == 1,
    };
    let valid = parent.trace_id != [0; 16] && parent.span_id != [0; 8];
    valid.then_some(parent)
}

fn lower_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

fn state(headers: &HeaderMap) -> String {
    let parts: Vec<&str> = headers
        .get_all("tracestate")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let state = parts.join(",");
    if state.len() > MAX_STATE {
        return String::new();
    }
    state
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn context(headers: &[(&'static str, &str)]) -> Option<TraceContext> {
        let pair = |(name, value): &(&'static str, &str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        };
        TraceContext::of(&headers.iter().map(pair).collect())
    }

    #[test]
    fn a_sampled_parent_is_followed() {
        for parent in [
            format!("00-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-ff"),
            format!("cc-{TRACE}-{SPAN}-01-what-comes-later"),
        ] {
            let seen = context(&[("traceparent", &parent), ("tracestate", "a=1,b=2")]).unwrap();
            assert_eq!(hex::encode(seen.trace_id), TRACE, "{parent}");
            assert_eq!(seen.parent.map(hex::encode).as_deref(), Some(SPAN));
            assert_eq!(seen.state, "a=1,b=2");
        }
        let parent = format!("00-{TRACE}-{SPAN}-00");
        assert_eq!(context(&[("traceparent", &parent)]), None);
    }

    #[test]
    fn an_invalid_traceparent_begins_a_new_trace() {
        for parent in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-x"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", &TRACE[1..]),
            format!("00-{TRACE}-{SPAN}-1"),
        ] {
            let seen = context(&[("traceparent", &parent), ("tracestate", "a=1")]).unwrap();
            assert_ne!(hex::encode(seen.trace_id), TRACE, "{parent}");
            assert_eq!((seen.parent, seen.state.as_str()), (None, ""));
        }
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let twice = [("traceparent", &*parent), ("traceparent", &*parent)];
        assert_eq!(context(&twice).unwrap().parent, None);
    }
}
