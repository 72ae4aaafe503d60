//! The memory that an object takes once it is decoded, estimated without decoding it.

use crate::json;

/// What one value takes beside its own bytes: its place in a list or a map, and its type.
const VALUE: usize = 64;

/// The most that one object may weigh. Any object of 1 MiB whose text is mostly words weighs
/// less; a megabyte of empty lists weighs forty times as much as it has bytes, and takes that.
pub const OBJECT_WEIGHT: usize = 8 * 1024 * 1024;
/// The most that the objects of one namespace may weigh together. What all namespaces may weigh
/// follows from the operator's memory limit.
pub const NAMESPACE_WEIGHT: usize = 48 * 1024 * 1024;

/// An upper estimate of the memory that a JSON text takes once it is decoded, in bytes. One pass,
/// no recursion; what is no JSON weighs something too.
pub fn weight(json: &str) -> usize {
    let begins_value = |token: &&str| matches!(*token, "{" | "[" | "," | ":");
    let values = 1 + json::tokens(json).filter(begins_value).count();
    json.len().saturating_add(values.saturating_mul(VALUE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, values: usize) {
        assert_eq!(weight(json), json.len() + values * VALUE, "{json}");
    }

    #[test]
    fn values_weigh_and_text_that_looks_like_values_does_not() {
        check("", 1);
        check("7", 1);
        check(r#"{"a":1}"#, 3);
        check(r#"[[],[],[]]"#, 7);
        check(r#"{"a":"{[,:\",:[","b":2}"#, 5);
    }

    #[test]
    fn words_are_cheap_and_empty_lists_are_not() {
        let words = format!("{{\"description\":\"{}\"}}", "x".repeat(1 << 20));
        assert!(weight(&words) < OBJECT_WEIGHT);
        let lists = format!("[{}[]]", "[],".repeat(1 << 18));
        assert!(lists.len() < words.len() && weight(&lists) > OBJECT_WEIGHT);
    }
}
