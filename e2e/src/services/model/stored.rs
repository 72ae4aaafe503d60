//! Responses that the model stores, so that a later request can continue one by its id
//! (`previous_response_id` of the Responses API).
//!
//! As at OpenAI, an unknown id is an error, and so is a call without its result, whether the call is
//! stored or in the request.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Most responses that are stored; the oldest are dropped first.
const MAX_RESPONSES: usize = 1_000;

#[derive(Debug, Default)]
pub struct StoredResponses(Mutex<VecDeque<StoredResponse>>);

#[derive(Debug)]
struct StoredResponse {
    id: String,
    /// The conversation up to the response, and the response's own items.
    items: Vec<Value>,
}

/// Why a request cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    #[error("Previous response with id '{0}' not found.")]
    NotFound(String),
    #[error("No tool output found for function call {0}.")]
    NoOutput(String),
}

impl StoredResponses {
    /// Puts the stored conversation before the request's own input.
    pub fn resolve(&self, request: &mut Value) -> Result<(), StoredError> {
        let own = match &request["input"] {
            Value::String(text) => vec![json!({"role": "user", "content": text})],
            Value::Array(items) => items.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
        };
        let mut items = match request["previous_response_id"].as_str() {
            Some(id) => {
                let stored = self.0.lock();
                let found = stored.iter().find(|response| response.id == id);
                let found = found.ok_or_else(|| StoredError::NotFound(id.to_owned()))?;
                found.items.clone()
            }
            None => Vec::new(),
        };
        items.extend(own);
        if let Some(call) = unanswered(&items) {
            return Err(StoredError::NoOutput(call.to_owned()));
        }
        request["input"] = Value::Array(items);
        Ok(())
    }

    /// Stores the response to a resolved request, unless the request forbids it.
    pub fn store(&self, request: &Value, response: &Value) {
        if request["store"] == json!(false) {
            return;
        }
        let lists = [&request["input"], &response["output"]];
        let items = lists.into_iter().filter_map(Value::as_array).flatten();
        let mut stored = self.0.lock();
        stored.push_back(StoredResponse {
            id: response["id"].as_str().unwrap_or_default().to_owned(),
            items: items.cloned().collect(),
        });
        while stored.len() > MAX_RESPONSES {
            stored.pop_front();
        }
    }
}

/// Returns the id of a call that has no result.
fn unanswered(items: &[Value]) -> Option<&str> {
    let ids = |kind: &'static str| {
        let of_kind = items.iter().filter(move |item| item["type"] == kind);
        of_kind.filter_map(|item| item["call_id"].as_str())
    };
    ids("function_call").find(|call| !ids("function_call_output").any(|answered| answered == *call))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Value {
        json!({"type": "function_call", "call_id": id, "name": "dive", "arguments": "{}"})
    }

    fn output(id: &str) -> Value {
        json!({"type": "function_call_output", "call_id": id, "output": "wet"})
    }

    #[test]
    fn a_request_continues_a_stored_response() {
        let stored = StoredResponses::default();
        let mut first = json!({"input": "swim"});
        stored.resolve(&mut first).unwrap();
        stored.store(&first, &json!({"id": "resp_1", "output": [call("c1")]}));
        let next = |input: Value| json!({"previous_response_id": "resp_1", "input": input});

        let mut second = next(json!([output("c1")]));
        stored.resolve(&mut second).unwrap();
        let user = json!({"role": "user", "content": "swim"});
        assert_eq!(second["input"], json!([user, call("c1"), output("c1")]));

        let error = stored.resolve(&mut next(json!("and?"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "No tool output found for function call c1."
        );
        let mut lost = json!({"previous_response_id": "resp_2", "input": "and?"});
        let error = stored.resolve(&mut lost).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Previous response with id 'resp_2' not found."
        );
    }

    #[test]
    fn a_response_is_not_stored_against_the_request() {
        let stored = StoredResponses::default();
        stored.store(
            &json!({"store": false}),
            &json!({"id": "resp_1", "output": []}),
        );
        let mut next = json!({"previous_response_id": "resp_1", "input": "and?"});
        assert!(stored.resolve(&mut next).is_err());
    }
}
