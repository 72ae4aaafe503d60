//! Builds a JSON patch out of whole operations.
//!
//! A patch computed as the difference of two pods would rewrite array elements field by field,
//! and would lose fields that are newer than our types.

use std::collections::BTreeSet;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, MoveOperation, Patch, PatchOperation, ReplaceOperation};
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

#[derive(Debug, Default)]
pub(super) struct Edits {
    operations: Vec<PatchOperation>,
    /// Objects and arrays that an earlier operation created.
    made: BTreeSet<String>,
}

/// Path of a value in the pod: the parts of a JSON pointer, unescaped.
pub(super) type JsonPath = Vec<String>;

/// `at!["spec", "volumes", 3]`.
macro_rules! at {
    ($($part:expr),+ $(,)?) => { vec![$($part.to_string()),+] };
}
pub(super) use at;

impl Edits {
    /// Returns the patch; `None` if nothing changes.
    pub(super) fn into_patch(self) -> Option<Patch> {
        (!self.operations.is_empty()).then_some(Patch(self.operations))
    }

    /// Appends `value` to the array at `place`. The array is created if `exists` is false and no
    /// earlier edit created it.
    pub(super) fn append(&mut self, place: JsonPath, exists: bool, value: impl Serialize) {
        self.ensure(&place, exists, serde_json::json!([]));
        let mut end = place;
        end.push("-".to_string());
        self.add(end, value);
    }

    /// Inserts `value` before the element at `index` of an array.
    pub(super) fn insert(
        &mut self,
        place: JsonPath,
        exists: bool,
        index: usize,
        value: impl Serialize,
    ) {
        self.ensure(&place, exists, serde_json::json!([]));
        let mut there = place;
        there.push(index.to_string());
        self.add(there, value);
    }

    /// Sets a field of the object at `place`, which is created as in [`Self::append`].
    pub(super) fn set(
        &mut self,
        place: JsonPath,
        exists: bool,
        field: &str,
        value: impl Serialize,
    ) {
        self.ensure(&place, exists, serde_json::json!({}));
        let mut there = place;
        there.push(field.to_string());
        self.add(there, value);
    }

    /// Replaces the value at `place`.
    pub(super) fn replace(&mut self, place: JsonPath, value: impl Serialize) {
        self.operations
            .push(PatchOperation::Replace(ReplaceOperation {
                path: pointer(&place),
                value: json(value),
            }));
    }

    /// Moves an array element to another index.
    pub(super) fn shift(&mut self, place: JsonPath, from: usize, to: usize) {
        let end = |index: usize| {
            let mut there = place.clone();
            there.push(index.to_string());
            pointer(&there)
        };
        self.operations.push(PatchOperation::Move(MoveOperation {
            from: end(from),
            path: end(to),
        }));
    }

    /// Sets an annotation unless it already has that value.
    pub(super) fn annotation(&mut self, pod: &Pod, name: &str, value: &str) {
        let annotations = pod.metadata.annotations.as_ref();
        if annotations
            .and_then(|map| map.get(name))
            .map(String::as_str)
            != Some(value)
        {
            self.set(
                at!["metadata", "annotations"],
                annotations.is_some(),
                name,
                value,
            );
        }
    }

    fn ensure(&mut self, place: &JsonPath, exists: bool, empty: serde_json::Value) {
        let key = pointer(place).to_string();
        if !exists && self.made.insert(key) {
            self.add(place.clone(), empty);
        }
    }

    fn add(&mut self, place: JsonPath, value: impl Serialize) {
        self.operations.push(PatchOperation::Add(AddOperation {
            path: pointer(&place),
            value: json(value),
        }));
    }
}

fn pointer(place: &JsonPath) -> PointerBuf {
    PointerBuf::from_tokens(place)
}

fn json(value: impl Serialize) -> serde_json::Value {
    serde_json::to_value(value).expect("parts of a pod are plain data")
}
