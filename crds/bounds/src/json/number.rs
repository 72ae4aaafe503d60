//! Numbers whose digits a 64-bit float cannot represent.
//!
//! A schema's bounds are compared as floats, but a service gets the digits as written. The two
//! agree only if the float prints as the same value.

use crate::json::numbers;

/// Returns the first number in a valid JSON text whose value a 64-bit float or integer cannot
/// represent.
pub fn first_rounded(json: &str) -> Option<&str> {
    numbers(json).find(|number| !is_kept(number))
}

/// Returns true if a JSON number keeps its value when it is read and printed.
pub fn is_kept(number: &str) -> bool {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return true;
    }
    let Ok(float) = number.parse::<f64>() else {
        return false;
    };
    float.is_finite() && significant(number) == significant(&format!("{float:e}"))
}

/// Returns the sign, the digits without zeros at either end, and the power of ten of the last
/// digit.
fn significant(number: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = match number.find(['e', 'E']) {
        Some(at) => (&number[..at], number[at + 1..].parse::<i64>()),
        None => (number, Ok(0)),
    };
    let negative = mantissa.starts_with('-');
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let dropped = digits.len() - kept.len();
    let value = kept.trim_start_matches('0');
    if value.is_empty() {
        return (false, String::new(), 0);
    }
    // With an exponent that does not fit, the float is 0 or infinite, and never has the same value.
    let exponent = exponent
        .unwrap_or(i64::MAX)
        .saturating_sub(fraction.len() as i64)
        .saturating_add(dropped as i64);
    (negative, value.to_owned(), exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_kept_if_its_float_prints_the_same_value() {
        for kept in [
            "0",
            "-0",
            "0.0",
            "0e9",
            "1",
            "-7",
            "100.0",
            "1e2",
            "1.10",
            "0.1",
            "2.5E-3",
            "9007199254740993",
            "18446744073709551615",
            "-9223372036854775808",
            "0.30000000000000004",
            "1e300",
            "1000000000000000000000",
            "1.7976931348623157e308",
        ] {
            assert!(is_kept(kept), "{kept}");
        }
        for rounded in [
            "100.00000000000000001",
            "1.00000000000000000001",
            "99.99999999999999999",
            "-100.00000000000000001",
            "123456789012345678901234567890",
            "0.1000000000000000055511151231257827",
            "1e400",
            "1e-400",
            "1e99999999999999999999",
        ] {
            assert!(!is_kept(rounded), "{rounded}");
        }
    }

    #[test]
    fn the_first_rounded_number_of_a_text_is_found() {
        let text = r#"{"a\"1.00000000000000000001": "100.00000000000000001", "b": [1, {"c": 100.00000000000000001}]}"#;
        assert_eq!(first_rounded(text), Some("100.00000000000000001"));
        assert_eq!(first_rounded(r#"{"a": [1, -2.5e3], "b": "1e400"}"#), None);
        assert_eq!(first_rounded("\"1e400"), None);
    }
}
