//! Suggests the name that a user may have meant.
//!
//! One rule for every message about an unknown name: of a field, of an object, on the command line.
//! Invariant: the suggestions for one object take a bounded number of steps, however many of its
//! names are unknown, and however many names are known.

use toolcrib_bounds::{cut, listed};

/// Longer names are not compared: the work grows with the product of their lengths.
const LONGEST: usize = 64;
/// Limits the names that a message lists.
const LISTED: usize = 8;
/// Limits the work for one object, in pairs of letters that are compared. A comparison of two names
/// of 20 letters takes 400, so 600 of them are within it.
const STEPS: usize = 1 << 18;
/// The steps for a name that is looked at, and compared only if its length is near.
const LOOK: usize = 8;

/// The suggestions for the unknown names of one object. Once its steps are used up, names are
/// listed and none is suggested: an object may have thousands of unknown names beside thousands
/// of known ones.
#[derive(Clone, Debug)]
pub struct Suggestions {
    /// The steps that are left.
    left: usize,
}

impl Default for Suggestions {
    fn default() -> Self {
        Self { left: STEPS }
    }
}

impl Suggestions {
    /// Whether no other name is suggested, so the known names need not be collected.
    pub fn are_used_up(&self) -> bool {
        self.left == 0
    }

    /// Returns the one of `names` that is most similar to `name`, if it is similar enough.
    pub fn nearest<'a>(
        &mut self,
        name: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        if name.len() > LONGEST {
            return None;
        }
        let folded = name.to_lowercase();
        let letters = name.chars().count();
        // A third of the letters may differ.
        let allowed = (letters / 3).max(1);
        let mut best = None;
        for known in names {
            self.left = self.left.saturating_sub(LOOK);
            if self.are_used_up() {
                break;
            }
            // A difference in length is a distance.
            if known.len() > LONGEST
                || known == name
                || known.chars().count().abs_diff(letters) > allowed
            {
                continue;
            }
            self.left = self.left.saturating_sub(folded.len() * known.len());
            let distance = strsim::osa_distance(&folded, &known.to_lowercase());
            if distance <= allowed && best.is_none_or(|best| (distance, known) < best) {
                best = Some((distance, known));
            }
        }
        best.map(|(_, known)| known)
    }

    /// Returns `: did you mean X?`, or nothing.
    pub fn meant<'a>(&mut self, name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
        match self.nearest(name, names) {
            Some(known) => format!(": did you mean {known}?"),
            None => String::new(),
        }
    }

    /// Returns ` (did you mean X?)` for use inside of a sentence, or nothing.
    pub fn other<'a>(&mut self, name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
        match self.nearest(name, names) {
            Some(known) => format!(" (did you mean {known}?)"),
            None => String::new(),
        }
    }

    /// Returns `did you mean X?`, or the known names: `there is a, b`, or `there is none`.
    pub fn meant_or_known<'a, N>(&mut self, name: &str, names: N) -> String
    where
        N: IntoIterator<Item = &'a str>,
        N::IntoIter: ExactSizeIterator + Clone,
    {
        let names = names.into_iter();
        if let Some(known) = self.nearest(name, names.clone()) {
            return format!("did you mean {known}?");
        }
        if names.len() == 0 {
            return "there is none".to_owned();
        }
        let names = names.map(|known| cut(known, LONGEST));
        format!("there is {}", listed(names, LISTED))
    }
}

/// [`Suggestions::nearest`] for an object with one unknown name.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    Suggestions::default().nearest(name, names)
}

/// [`Suggestions::other`] for an object with one unknown name.
pub fn other<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    Suggestions::default().other(name, names)
}

/// [`Suggestions::meant_or_known`] for an object with one unknown name.
pub fn meant_or_known<'a, N>(name: &str, names: N) -> String
where
    N: IntoIterator<Item = &'a str>,
    N::IntoIter: ExactSizeIterator + Clone,
{
    Suggestions::default().meant_or_known(name, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: [&str; 2] = ["execute_trade", "get_market_context"];

    #[test]
    fn only_a_similar_name_is_suggested() {
        assert_eq!(nearest("excute_trade", TOOLS), Some("execute_trade"));
        assert_eq!(nearest("Execute_Trade", TOOLS), Some("execute_trade"));
        assert_eq!(
            nearest("Toolgrant", ["ToolGrant", "Agent"]),
            Some("ToolGrant")
        );
        assert_eq!(nearest("readonly", ["readOnly", "title"]), Some("readOnly"));
        assert_eq!(nearest("fly", TOOLS), None);
        assert_eq!(nearest(&"x".repeat(LONGEST + 1), TOOLS), None);
    }

    #[test]
    fn known_names_are_listed_up_to_a_bound() {
        let mut suggestions = Suggestions::default();
        assert_eq!(suggestions.meant("fly", TOOLS), "");
        assert_eq!(
            suggestions.meant("excute_trade", TOOLS),
            ": did you mean execute_trade?"
        );
        assert_eq!(
            meant_or_known("fly", TOOLS),
            "there is execute_trade, get_market_context"
        );
        assert_eq!(meant_or_known("fly", []), "there is none");
        let many: Vec<String> = (0..10)
            .map(|number| format!("swim_{number}_lengths"))
            .collect();
        let said = meant_or_known("fly", many.iter().map(String::as_str));
        assert!(said.ends_with("swim_7_lengths and 2 more"), "{said}");
    }

    #[test]
    fn many_unknown_names_take_a_bounded_number_of_steps() {
        let known: Vec<String> = (0..256)
            .map(|number| format!("get_number_{number}_of_pond"))
            .collect();
        let names = || known.iter().map(String::as_str);
        let mut suggestions = Suggestions::default();
        let suggested = (0..1000).filter(|number| {
            let said = suggestions.meant_or_known(&format!("got_number_{number}_of_pond"), names());
            said.starts_with("did you mean")
        });
        let suggested = suggested.count();
        assert!((1..10).contains(&suggested), "{suggested}");
        assert!(suggestions.are_used_up());
        assert_eq!(suggestions.nearest("get_number_1_of_pon", names()), None);
        let said = suggestions.meant_or_known("get_number_1_of_pon", names());
        assert!(
            said.starts_with("there is get_number_0_of_pond, "),
            "{said}"
        );
        assert!(
            said.ends_with("get_number_7_of_pond and 248 more"),
            "{said}"
        );
        // Names of other lengths are not compared.
        let mut suggestions = Suggestions::default();
        let short = "fly";
        (0..100).for_each(|_| assert_eq!(suggestions.nearest(short, names()), None));
        assert!(!suggestions.are_used_up());
    }
}
