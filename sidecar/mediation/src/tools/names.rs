//! Names of tools, as a model sees them.

use sha2::{Digest, Sha256};

/// Limits the bytes of a tool's name; every provider accepts names of this length.
const MAX: usize = 64;
const HASH: usize = 8;

/// Returns the alias of a canonical name. A pure function, so that a new tool never renames another
/// during a conversation. `surface.tool` becomes `surface__tool`. If that is too long or ambiguous
/// (other characters, a `__` of its own), a hash of the canonical name follows and keeps aliases
/// apart.
pub fn alias(canonical: &str) -> String {
    let (surface, tool) = canonical.split_once('.').unwrap_or(("", canonical));
    let plain = if surface.is_empty() {
        clean(tool)
    } else {
        format!("{}__{}", clean(surface), clean(tool))
    };
    let lossless = !surface.is_empty()
        && !tool.is_empty()
        && plain.len() <= MAX
        && plain.len() == canonical.len() + 1
        && [surface, tool].iter().all(|part| {
            part.chars().all(allowed)
                && !part.contains("__")
                && !part.starts_with('_')
                && !part.ends_with('_')
        });
    if lossless {
        plain
    } else {
        hashed(&plain, canonical)
    }
}

/// Returns an alternative alias for when the runner already has a tool of that name. It differs
/// from the alias and from those of other attempts.
pub(crate) fn yielding_alias(canonical: &str, attempt: u32) -> String {
    let plain = alias(canonical);
    hashed(&plain, &format!("{canonical}#{attempt}"))
}

fn hashed(plain: &str, of: &str) -> String {
    let digest = hex::encode(Sha256::digest(of.as_bytes()));
    let room = MAX - HASH - 1;
    let head: String = plain.chars().take(room).collect();
    format!("{head}_{}", &digest[..HASH])
}

fn clean(part: &str) -> String {
    part.chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect()
}

fn allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}
