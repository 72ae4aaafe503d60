//! A digest for comparisons within the process, such as of a status' text.

use std::hash::{DefaultHasher, Hash, Hasher};

pub fn digest(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
