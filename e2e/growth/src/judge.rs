//! Distinguishes linear growth from faster growth.

use crate::SCALES;

/// The largest accepted growth per doubling of the input. Linear work has 2, n·log n about 2.2,
/// n·√n 2.8, quadratic work 4.
pub const MOST: f64 = 2.5;

/// Returns the growth of the cost: how many times more the last doubling of the input adds than the
/// doubling before it. `counts` are the costs at [`SCALES`]. A constant cost has no effect. If the
/// last doubling adds less than `few`, it is noise, such as the reallocation of a hash table, and
/// the growth is 0.
///
/// The result is the smaller of two figures: the ratio of the last step to the one before it, and
/// the growth per doubling from the first step to the last. A buffer whose capacity doubles within
/// one step raises one of them; work that is not linear raises both.
pub fn growth(counts: [u64; SCALES.len()], few: u64) -> f64 {
    let mut most = 0;
    // A count below an earlier one is no growth: the work until an input is refused varies.
    let [one, two, four, eight] = counts.map(|count| {
        most = count.max(most);
        most
    });
    let first = two.saturating_sub(one);
    let before = four.saturating_sub(two);
    let last = eight.saturating_sub(four);
    if last < few {
        return 0.0;
    }
    // If the step before was 0, the ratio would be infinite.
    let ratio = |earlier: u64| last as f64 / earlier.max(few / 16).max(1) as f64;
    f64::min(ratio(before), ratio(first).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: u64 = 1000;

    fn of(work: impl Fn(u64) -> u64) -> f64 {
        growth(SCALES.map(|scale| work(1000 * scale as u64)), FEW)
    }

    #[test]
    fn linear_work_is_accepted() {
        assert_eq!(of(|n| 7 * n), 2.0);
        assert_eq!(of(|n| 1_000_000 + 7 * n), 2.0);
        assert!(of(|n| n * u64::from(n.ilog2())) < MOST);
        assert!(of(|n| n * u64::from(n.ilog2().pow(2))) < MOST);
    }

    #[test]
    fn constant_work_with_a_lower_count_between_is_accepted() {
        assert_eq!(growth([575_011, 575_011, 456_227, 575_011], FEW), 0.0);
    }

    #[test]
    fn one_step_with_a_larger_buffer_is_accepted() {
        assert!(growth([10_000, 24_000, 36_000, 71_000], FEW) < MOST);
        assert!(growth([10_000, 12_000, 36_000, 71_000], FEW) < MOST);
    }

    #[test]
    fn work_that_grows_faster_is_rejected() {
        assert_eq!(of(|n| n * n), 4.0);
        assert_eq!(of(|n| 1_000_000_000 + n * n), 4.0);
        assert!(of(|n| n * n.isqrt()) > MOST);
        // Half of the work at the largest size is quadratic.
        assert!(of(|n| n * n + 8000 * n) > MOST);
        assert!(of(|n| n * n * n) > MOST);
    }

    #[test]
    fn a_sudden_step_is_rejected() {
        assert!(growth([0, 0, 0, 1_000_000], FEW) > MOST);
    }

    #[test]
    fn few_counts_are_noise() {
        assert_eq!(growth([1, 1, 1, 900], FEW), 0.0);
    }
}
