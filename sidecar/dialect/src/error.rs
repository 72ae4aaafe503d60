//! The errors of decoding and encoding requests, replies and streams.

/// A request, reply or stream that cannot be decoded or is refused. The messages name fields and
/// quote no values, except that [`DialectError::StreamError`] has the provider's own message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialectError {
    #[error("the body is not UTF-8")]
    NotUtf8,
    #[error("the body is not valid JSON: {0}")]
    NotJson(String),
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("`{field}` must be {expected}")]
    WrongType {
        field: &'static str,
        expected: &'static str,
    },
    #[error("`{0}` stands twice in the body")]
    Repeated(String),
    /// A field with which a request could bypass policy at the provider, or `background`, with
    /// which the runner would fetch the answer later.
    #[error("`{0}` is not accepted here")]
    FieldRefused(String),
    /// A field that a lenient parser could decode as another field.
    #[error("`{name}` is not accepted here, since some providers read it as `{other}`")]
    FieldReadsAs { name: String, other: String },
    /// A field that makes the provider itself execute a tool, connect to a server or fetch a URL,
    /// which the agent's policy refuses.
    #[error(
        "`{0}` makes the provider execute a tool or fetch a URL, which the agent's \
         policy.providerTools refuses (with egress: Declared it always does)"
    )]
    ProviderSide(String),
    /// A field that refers to a conversation, or a part of one, that the provider stores.
    #[error(
        "`{0}` refers to state that the provider stores, and granted tools would change it: send \
         the whole conversation, or over the Responses API continue with `previous_response_id`"
    )]
    HeldElsewhere(&'static str),
    #[error("an event of the stream is larger than {limit} bytes")]
    StreamTooLarge { limit: usize },
    #[error("the reply is larger than {limit} bytes")]
    ReplyTooLarge { limit: usize },
    #[error("the stream ended before the reply was complete")]
    StreamCut,
    #[error("the stream holds an error of the provider: {0}")]
    StreamError(String),
}

impl From<serde_json::Error> for DialectError {
    fn from(error: serde_json::Error) -> Self {
        // An error of syntax has a position and no text of the body. A type error quotes the value.
        Self::NotJson(match error.is_data() {
            true => format!(
                "a value has another type at line {} column {}",
                error.line(),
                error.column()
            ),
            false => error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_quotes_no_value_of_the_body() {
        for (body, expected) in [
            (
                r#""sk-7c1e52f0""#,
                "the body is not valid JSON: a value has another type at line 1 column 13",
            ),
            (
                r#"{"key": sk-7c1e52f0}"#,
                "the body is not valid JSON: expected value at line 1 column 9",
            ),
        ] {
            type Body = std::collections::BTreeMap<String, String>;
            let error = serde_json::from_str::<Body>(body).expect_err("no such map");
            assert_eq!(DialectError::from(error).to_string(), expected);
        }
    }
}
