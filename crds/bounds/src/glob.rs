//! Glob patterns for names, in which `*` stands for any characters.

/// Returns true if `name` matches `pattern`. Each `*` matches zero or more characters; every other
/// character matches itself.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The first match of each part leaves the most text for the parts that follow.
    for part in middle.split('*') {
        let Some(at) = name.find(part) else {
            return false;
        };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        for name in yes {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for name in no {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        check("read", &["read"], &["", "reads", "rea", "Read"]);
        check("*", &["", "a", "é/b"], &[]);
        check(
            "delete_*",
            &["delete_", "delete_all"],
            &["delete", "undelete_all"],
        );
        check("*_all", &["_all", "a_all_all"], &["all", "a_allx"]);
        check(
            "a*b*c",
            &["abc", "axbxbxc", "a*b*c"],
            &["ac", "acb", "abcd"],
        );
        check("**", &["", "x"], &[]);
        check("?", &["?"], &["a"]);
    }
}
