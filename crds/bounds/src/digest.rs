//! Digests over several parts.

use sha2::{Digest as _, Sha256};

/// A SHA-256 over parts, each preceded by its length, so that different lists of parts have
/// different input.
///
/// The hashed bytes must not change: mediators keep such digests in files.
#[derive(Clone, Debug, Default)]
pub struct Parts(Sha256);

impl Parts {
    pub fn push(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    /// Adds bytes without their length: a tag, a name from a closed list, another digest.
    pub fn push_fixed(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes);
    }

    /// Returns the digest of the parts so far.
    pub fn digest(&self) -> [u8; 32] {
        self.0.clone().finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(parts: &[&str], expected: &str) {
        let mut all = Parts::default();
        parts.iter().for_each(|part| all.push(part));
        let hex: String = all.digest().iter().map(|it| format!("{it:02x}")).collect();
        assert_eq!(hex, expected, "{parts:?}");
    }

    #[test]
    fn parts_with_other_boundaries_have_other_digests() {
        check(
            &[],
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        );
        check(
            &["otter"],
            "2b220c56df1a7ac965acb4b23046836779322f6d2f71919fd6e5ae76483e0e24",
        );
        check(
            &["ot", "ter"],
            "9ac29d8f610d0092c315bbdd9341027509dc554a93b855ae13d2412c2c497bb3",
        );
        check(
            &["otte", "r"],
            "cb0bf944a9d3505ea0ad6c3dec2d40add715294b6e20dd997e79409e3e929e0e",
        );
        check(
            &["ot", "ter", ""],
            "127901f86028c872d66ba998c56edbf60e67e9a7c7e0ab1487042e402138f3ea",
        );
        check(
            &["ter", "ot"],
            "4a78321a2d55fcf55a9b8ed99eed332f98b94c88f060b4cb05c31a427095596a",
        );
    }

    #[test]
    fn a_digest_can_be_taken_in_between() {
        let mut all = Parts::default();
        all.push_fixed([7]);
        all.push("ot");
        let before = all.digest();
        all.push("ter");
        assert_ne!(all.digest(), before);
        let mut same = Parts::default();
        same.push_fixed([7]);
        same.push("ot");
        assert_eq!(same.digest(), before);
    }
}
