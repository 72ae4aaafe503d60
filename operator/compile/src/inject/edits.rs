//! A JSON patch that grows by whole operations.
//!
//! Written by hand and not as a difference of two pods: a difference rewrites array
//! elements field by field, and would lose fields that are newer than our types.

use std::collections::BTreeSet;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, MoveOperation, Patch, PatchOperation, ReplaceOperation};
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

#[derive(Debug, Default)]
pub(super) struct Edits {
    operations: Vec<PatchOperation>,
    /// Containers (objects, arrays) that an earlier operation made.
    made: BTreeSet<String>,
}

/// A place in the pod: the parts of a JSON pointer, unescaped.
pub(super) type Place = Vec<String>;

/// `at!["spec", "volumes", 3]`.
macro_rules! at {
    ($($part:expr),+ $(,)?) => { vec![$($part.to_string()),+] };
}
pub(super) use at;

impl Edits {
    /// `None`: nothing changes.
    pub(super) fn into_patch(self) -> Option<Patch> {
        (!self.operations.is_empty()).then_some(Patch(self.operations))
    }

    /// Puts `value` at the end of the array at `place`, which is made when `exists` is
    /// false and no earlier edit made it.
    pub(super) fn append(&mut self, place: Place, exists: bool, value: impl Serialize) {
        self.ensure(&place, exists, serde_json::json!([]));
        let mut end = place;
        end.push("-".to_string());
        self.add(end, value);
    }

    /// Puts `value` before the element at `index` of an array.
    pub(super) fn insert(
        &mut self,
        place: Place,
        exists: bool,
        index: usize,
        value: impl Serialize,
    ) {
        self.ensure(&place, exists, serde_json::json!([]));
        let mut there = place;
        there.push(index.to_string());
        self.add(there, value);
    }

    /// Sets a field of the object at `place`, which is made like in [`Self::append`].
    pub(super) fn set(&mut self, place: Place, exists: bool, field: &str, value: impl Serialize) {
        self.ensure(&place, exists, serde_json::json!({}));
        let mut there = place;
        there.push(field.to_string());
        self.add(there, value);
    }

    /// Replaces what is there.
    pub(super) fn replace(&mut self, place: Place, value: impl Serialize) {
        self.operations
            .push(PatchOperation::Replace(ReplaceOperation {
                path: pointer(&place),
                value: json(value),
            }));
    }

    /// Moves an element of an array.
    pub(super) fn shift(&mut self, place: Place, from: usize, to: usize) {
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

    /// Sets an annotation unless it has that value.
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

    fn ensure(&mut self, place: &Place, exists: bool, empty: serde_json::Value) {
        let key = pointer(place).to_string();
        if !exists && self.made.insert(key) {
            self.add(place.clone(), empty);
        }
    }

    fn add(&mut self, place: Place, value: impl Serialize) {
        self.operations.push(PatchOperation::Add(AddOperation {
            path: pointer(&place),
            value: json(value),
        }));
    }
}

fn pointer(place: &Place) -> PointerBuf {
    PointerBuf::from_tokens(place)
}

fn json(value: impl Serialize) -> serde_json::Value {
    serde_json::to_value(value).expect("parts of a pod are plain data")
}
