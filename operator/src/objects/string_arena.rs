//! Keeps a few short, long-lived strings in one allocation.
//!
//! A `String` takes three words plus the allocator's overhead, which is more than the characters
//! of a name, uid or version.

/// `N` strings, each of which may be missing.
#[derive(Clone, PartialEq, Eq)]
pub struct StringArena<const N: usize> {
    all: Box<str>,
    /// The end of each string, or [`MISSING`]. A string begins at the end of the previous one.
    ends: [u32; N],
}

const MISSING: u32 = u32::MAX;

impl<const N: usize> StringArena<N> {
    pub fn of(texts: [Option<&str>; N]) -> Self {
        let all: String = texts.iter().flatten().copied().collect();
        let mut end = 0;
        let ends = texts.map(|text| {
            let Some(text) = text else { return MISSING };
            end += text.len();
            u32::try_from(end).expect("an object is smaller than 4 GiB")
        });
        Self {
            all: all.into(),
            ends,
        }
    }

    pub fn get(&self, index: usize) -> Option<&str> {
        let (before, from) = self.ends.split_at_checked(index)?;
        let end = *from.first().filter(|end| **end != MISSING)?;
        let begin = before.iter().rfind(|end| **end != MISSING).unwrap_or(&0);
        self.all.get(*begin as usize..end as usize)
    }
}

impl<const N: usize> std::fmt::Debug for StringArena<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries((0..N).map(|index| self.get(index)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<const N: usize>(texts: [Option<&str>; N]) {
        let arena = StringArena::of(texts);
        assert_eq!(std::array::from_fn(|index| arena.get(index)), texts);
        assert_eq!(arena.get(N), None);
    }

    #[test]
    fn an_empty_string_differs_from_a_missing_one() {
        check([]);
        check([None, None]);
        check([Some("pond"), Some("otter"), Some("\u{1f9a6}")]);
        check([None, Some(""), None, Some("newt"), Some(""), None]);
    }
}
