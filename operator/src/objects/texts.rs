//! A few short texts that are kept for long, in one piece of memory.
//!
//! Each in one of its own takes three words and what the allocator adds: for names, uids and
//! versions more than they have characters.

/// `N` texts, each of which may be missing.
#[derive(Clone, PartialEq, Eq)]
pub struct Texts<const N: usize> {
    all: Box<str>,
    /// Where each ends, or [`MISSING`]. It begins where the one before it ends.
    ends: [u32; N],
}

const MISSING: u32 = u32::MAX;

impl<const N: usize> Texts<N> {
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

impl<const N: usize> std::fmt::Debug for Texts<N> {
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
        let kept = Texts::of(texts);
        assert_eq!(std::array::from_fn(|index| kept.get(index)), texts);
        assert_eq!(kept.get(N), None);
    }

    #[test]
    fn each_text_reads_back_and_a_missing_one_is_not_an_empty_one() {
        check([]);
        check([None, None]);
        check([Some("pond"), Some("otter"), Some("\u{1f9a6}")]);
        check([None, Some(""), None, Some("newt"), Some(""), None]);
    }
}
