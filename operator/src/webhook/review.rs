//! The wire format of admission, `admission.k8s.io/v1`.
//!
//! Only the used fields are decoded, and the object in a second step, so that an undecodable pod
//! is still answered under its request's uid.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
pub struct Review {
    pub request: Request,
}

impl Review {
    /// Reads the body of an admission.
    pub fn read(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }
}

#[derive(Debug, Deserialize)]
pub struct Request {
    pub uid: String,
    #[serde(default)]
    pub kind: GroupVersionKind,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub operation: String,
    #[serde(default)]
    pub object: Option<Box<RawValue>>,
    #[serde(default, rename = "oldObject")]
    pub old_object: Option<Box<RawValue>>,
}

/// The kind of the object. The API server converts the object to the version in the configuration.
#[derive(Debug, Default, Deserialize)]
pub struct GroupVersionKind {
    #[serde(default)]
    pub kind: String,
}

/// The response to a review.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionResponse {
    Allowed,
    /// Allowed, with warnings that `kubectl` shows.
    Warned(Vec<String>),
    Patched(Patch),
    /// Denied, with the text that `kubectl` shows.
    Denied(String),
    /// Denied for now. Kubernetes clients try again by themselves, and show the text when they give
    /// up.
    Later(String),
}

impl AdmissionResponse {
    pub fn into_review(self, uid: &str) -> Value {
        let response = match self {
            Self::Allowed => json!({ "uid": uid, "allowed": true }),
            Self::Warned(warnings) => {
                json!({ "uid": uid, "allowed": true, "warnings": warnings })
            }
            Self::Patched(patch) => {
                let patch = serde_json::to_vec(&patch).expect("a patch serializes to JSON");
                json!({
                    "uid": uid,
                    "allowed": true,
                    "patchType": "JSONPatch",
                    "patch": STANDARD.encode(patch),
                })
            }
            Self::Denied(message) => json!({
                "uid": uid,
                "allowed": false,
                "status": {
                    "status": "Failure",
                    "code": 403,
                    "reason": "Forbidden",
                    "message": message,
                },
            }),
            Self::Later(message) => json!({
                "uid": uid,
                "allowed": false,
                "status": {
                    "status": "Failure",
                    "code": 429,
                    "reason": "TooManyRequests",
                    "details": { "retryAfterSeconds": 1 },
                    "message": message,
                },
            }),
        };
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": response,
        })
    }
}
