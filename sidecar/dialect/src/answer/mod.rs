//! Responses to the runner: a reply as JSON or as a stream, and the list of models.

pub mod error_body;
pub mod live;

use crate::{
    Dialect, DialectError, Reply, Request, Usage, anthropic, json, openai_chat, responses,
};

/// The body of a response to the runner, with its content type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerBody {
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

/// Encodes the reply in the form that the runner asked for. `usage` is the turn's sum and replaces
/// the reply's own; `None` keeps the reply's own. A JSON answer otherwise keeps the model's bytes,
/// except that a legacy runner gets `function_call`, and that the Responses API's copies of request
/// fields are restored. A stream carries the same content in the dialect's events.
pub fn answer(
    request: &Request,
    reply: &Reply,
    usage: Option<Usage>,
) -> Result<AnswerBody, DialectError> {
    let text = reply.as_text();
    let body = match (request.stream(), request.dialect()) {
        (true, _) => events(request, reply, usage),
        (false, Dialect::OpenaiChat) => openai_chat::answer::whole(request.view(), text, usage),
        (false, Dialect::AnthropicMessages) => anthropic::answer::whole(text, usage),
        (false, Dialect::OpenaiResponses) => {
            responses::answer::whole(request.as_text(), text, usage)
        }
    }?;
    Ok(AnswerBody {
        content_type: content_type(request),
        body: body.into_bytes(),
    })
}

/// Encodes the reply as a stream.
pub(crate) fn events(
    request: &Request,
    reply: &Reply,
    usage: Option<Usage>,
) -> Result<String, DialectError> {
    let text = reply.as_text();
    match request.dialect() {
        Dialect::OpenaiChat => openai_chat::stream::events(request.view(), text, usage),
        Dialect::AnthropicMessages => anthropic::stream::events(text, usage),
        Dialect::OpenaiResponses => responses::stream::events(request.as_text(), text, usage),
    }
}

/// Returns the reply's own message (or output items) in the form in which the runner will send it
/// back, so that the mediator recognizes it in a later request.
pub fn stored_items(request: &Request, reply: &Reply) -> Result<Vec<String>, DialectError> {
    let text = reply.as_text();
    match reply.dialect() {
        Dialect::OpenaiChat => openai_chat::answer::stored(request.view(), text),
        Dialect::AnthropicMessages => anthropic::answer::stored(text),
        Dialect::OpenaiResponses => responses::answer::stored(text),
    }
}

/// Returns an empty, valid answer that ends a turn without another model call. It is built from
/// `reply`, which made the last call, by removing calls and text.
pub fn terminal_answer(reply: &Reply) -> Result<Reply, DialectError> {
    let text = reply.as_text();
    let empty = match reply.dialect() {
        Dialect::OpenaiChat => openai_chat::answer::emptied(text),
        Dialect::AnthropicMessages => anthropic::answer::emptied(text),
        Dialect::OpenaiResponses => responses::answer::emptied(text),
    }?;
    Reply::decode(reply.dialect(), empty.into_bytes())
}

/// Returns the body of `GET /v1/models`.
pub fn models_body(dialect: Dialect, refs: &[String]) -> Vec<u8> {
    let models: Vec<String> = refs
        .iter()
        .map(|name| match dialect {
            Dialect::OpenaiChat | Dialect::OpenaiResponses => json::object(&[
                ("id", json::quote(name)),
                ("object", json::quote("model")),
                ("created", "0".into()),
                (
                    "owned_by",
                    json::quote(name.split('/').next().unwrap_or(name)),
                ),
            ]),
            Dialect::AnthropicMessages => json::object(&[
                ("type", json::quote("model")),
                ("id", json::quote(name)),
                ("display_name", json::quote(name)),
                ("created_at", json::quote("1970-01-01T00:00:00Z")),
            ]),
        })
        .collect();
    let end = |name: Option<&String>| name.map_or("null".to_string(), |name| json::quote(name));
    match dialect {
        Dialect::OpenaiChat | Dialect::OpenaiResponses => json::object(&[
            ("object", json::quote("list")),
            ("data", json::array(&models)),
        ]),
        Dialect::AnthropicMessages => json::object(&[
            ("data", json::array(&models)),
            ("has_more", "false".into()),
            ("first_id", end(refs.first())),
            ("last_id", end(refs.last())),
        ]),
    }
    .into_bytes()
}

pub(crate) fn content_type(request: &Request) -> &'static str {
    if request.stream() {
        "text/event-stream"
    } else {
        "application/json"
    }
}
