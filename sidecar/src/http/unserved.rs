//! What a program is told on a path that the mediator does not serve.
//!
//! Nothing of such a request is read or passed on.

use http::HeaderMap;
use http::header::UPGRADE;
use toolcrib_mediation::{RunnerCode, RunnerError};

const SERVED: &str = "the mediator serves POST /v1/chat/completions, /v1/messages, \
     /v1/messages/count_tokens and /v1/responses, GET /v1/models, and in native mode /mcp";

const NO_BATCHES: &str =
    "no batches: nobody would execute the calls of an answer that is fetched later";
const NO_FILES: &str = "no files: all agents with the provider's key would share them; put the \
     content into the request";

/// Beginnings of paths of the providers' APIs, without `/v1`, and why the mediator does not serve them.
const REASONS: [(&str, &str); 8] = [
    (
        "/realtime",
        "there is no realtime API here: the mediator reads each request and each answer as a whole",
    ),
    (
        "/conversations",
        "a conversation that the provider stores would show the calls of granted tools: send the \
         whole conversation, or continue with `previous_response_id`",
    ),
    (
        "/responses/",
        "a stored response is not read, changed or deleted through the mediator: continue it with \
         `previous_response_id`",
    ),
    ("/messages/batches", NO_BATCHES),
    ("/batches", NO_BATCHES),
    ("/files", NO_FILES),
    ("/uploads", NO_FILES),
    ("/containers", NO_FILES),
];

/// Returns the error for a request on a path, or with a method, that is not served.
pub fn error(path: &str, headers: &HeaderMap) -> RunnerError {
    let upgrade = headers.get(UPGRADE).map(|value| value.as_bytes());
    if upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket")) {
        let message = "the mediator reads each request and each answer, and opens no WebSocket";
        return RunnerError::new(RunnerCode::WebsocketNotSupported, message);
    }
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let reason = REASONS.iter().find(|(begin, _)| path.starts_with(begin));
    let message = match reason {
        Some((_, reason)) => format!("{reason}; {SERVED}"),
        None => SERVED.to_owned(),
    };
    RunnerError::new(RunnerCode::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_path_gets_its_reason() {
        let none = HeaderMap::new();
        for (path, reason) in [
            ("/v1/realtime", "no realtime API"),
            ("/realtime/sessions", "no realtime API"),
            ("/v1/conversations/conv_1/items", "`previous_response_id`"),
            ("/v1/responses/resp_1", "a stored response is not read"),
            ("/v1/messages/batches", "no batches"),
            ("/v1/files/file_1/content", "no files"),
        ] {
            let message = error(path, &none).to_string();
            assert!(message.contains(reason), "{path}: {message}");
            assert!(message.contains("/v1/chat/completions"), "{message}");
        }
        assert_eq!(error("/v1/engines", &none).to_string(), SERVED);
    }
}
