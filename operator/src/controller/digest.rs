//! A digest of a value that is only compared, such as the text of a status.

use std::hash::{DefaultHasher, Hash, Hasher};

pub fn digest(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
