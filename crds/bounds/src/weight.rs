//! Estimates the memory of a decoded object without decoding it.

use crate::json;

/// Bytes of one value in addition to its text: its entry in a list or a map, and its type.
const VALUE: usize = 64;

/// Limits the weight of one object. Any object of 1 MiB that is mostly text weighs less. A megabyte
/// of empty lists takes about forty times its bytes in memory, and its weight shows that.
pub const OBJECT_WEIGHT: usize = 8 * 1024 * 1024;
/// Limits the weight of all objects of one namespace. The operator's memory limit determines the
/// limit for all namespaces.
pub const NAMESPACE_WEIGHT: usize = 48 * 1024 * 1024;

/// Returns an upper estimate, in bytes, of the memory that a JSON text takes once it is decoded.
/// One pass without recursion; text that is not JSON has a weight too.
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
    fn only_values_weigh_not_text_that_looks_like_them() {
        check("", 1);
        check("7", 1);
        check(r#"{"a":1}"#, 3);
        check(r#"[[],[],[]]"#, 7);
        check(r#"{"a":"{[,:\",:[","b":2}"#, 5);
    }

    #[test]
    fn text_weighs_less_than_empty_lists() {
        let words = format!("{{\"description\":\"{}\"}}", "x".repeat(1 << 20));
        assert!(weight(&words) < OBJECT_WEIGHT);
        let lists = format!("[{}[]]", "[],".repeat(1 << 18));
        assert!(lists.len() < words.len() && weight(&lists) > OBJECT_WEIGHT);
    }
}
