//! Suggests the name that a user may have meant.
//!
//! One rule for every message about an unknown name: of a field, of an object, on the command line.

/// Longer names are not compared: the work grows with the product of their lengths.
const LONGEST: usize = 64;
/// Limits the names that a message lists, and the names that are compared.
const LISTED: usize = 8;
const COMPARED: usize = 256;

/// Returns the one of `names` that is most similar to `name`, if it is similar enough.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let folded = name.to_lowercase();
    // A third of the letters may differ.
    let allowed = (name.chars().count() / 3).max(1);
    names
        .into_iter()
        .filter(|known| known.len() <= LONGEST && *known != name)
        .take(COMPARED)
        .map(|known| (strsim::osa_distance(&folded, &known.to_lowercase()), known))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, known)| known)
}

/// Returns `: did you mean X?`, or nothing.
pub fn meant<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, names) {
        Some(known) => format!(": did you mean {known}?"),
        None => String::new(),
    }
}

/// Returns ` (did you mean X?)` for use inside of a sentence, or nothing.
pub fn other<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, names) {
        Some(known) => format!(" (did you mean {known}?)"),
        None => String::new(),
    }
}

/// Returns `did you mean X?`, or the known names: `there is a, b`, or `there is none`.
pub fn meant_or_known<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    if let Some(known) = nearest(name, names.iter().copied()) {
        return format!("did you mean {known}?");
    }
    let listed: Vec<&str> = names.iter().take(LISTED).copied().collect();
    match (listed.is_empty(), names.len() > LISTED) {
        (true, _) => "there is none".to_owned(),
        (false, false) => format!("there is {}", listed.join(", ")),
        (false, true) => format!(
            "there is {}, and {} more",
            listed.join(", "),
            names.len() - LISTED
        ),
    }
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
        assert_eq!(meant("fly", TOOLS), "");
        assert_eq!(
            meant("excute_trade", TOOLS),
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
        assert!(said.ends_with("swim_7_lengths, and 2 more"), "{said}");
    }
}
