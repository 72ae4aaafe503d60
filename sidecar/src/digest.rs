//! Keys for what is kept by what it was made of.

use sha2::{Digest, Sha256};

/// A SHA-256 over parts, each after its length, so that no two lists of parts run together.
#[derive(Debug, Default)]
pub struct Parts(Sha256);

impl Parts {
    pub fn push(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    pub fn digest(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_together() {
        let digest = |parts: &[&str]| {
            let mut all = Parts::default();
            parts.iter().for_each(|part| all.push(part));
            all.digest()
        };
        assert_eq!(digest(&["ot", "ter"]), digest(&["ot", "ter"]));
        for other in [
            &["otter"][..],
            &["otte", "r"],
            &["ot", "ter", ""],
            &["ter", "ot"],
        ] {
            assert_ne!(digest(&["ot", "ter"]), digest(other), "{other:?}");
        }
    }
}
