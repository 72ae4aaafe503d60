//! Path templates: `/api/v1/orders/{order_id}`.

use std::collections::BTreeSet;

use url::{Position, Url};

const MAX_PATH: usize = 1024;

/// Returns the names between braces. `Err`: the reason for which the path is refused. A path that
/// is built from the template must keep the template's segments, whatever the arguments are.
pub(crate) fn placeholders(path: &str) -> Result<BTreeSet<String>, String> {
    if !path.starts_with('/') {
        return Err(
            "must begin with '/': write the path on the service, such as /quotes/{id}".to_owned(),
        );
    }
    if path.len() > MAX_PATH {
        return Err(format!("is longer than {MAX_PATH} bytes: shorten it"));
    }
    if let Some(bad) = path.chars().find(|c| !is_path_character(*c)) {
        return Err(format!(
            "holds {bad:?}: write a path of letters, digits, '{{name}}' and -._~!$&'()*+,;=:@/ \
             (arguments become query or body by themselves)"
        ));
    }
    if path.starts_with("//") {
        return Err("must not begin with '//', which names a host: write one '/'".to_owned());
    }
    let mut names = BTreeSet::new();
    for segment in path.split('/') {
        if segment == "." || segment == ".." {
            return Err(format!(
                "has the segment {segment:?}, which leaves its place: remove it"
            ));
        }
        let mut rest = segment;
        while let Some((literal, tail)) = rest.split_once('{') {
            if literal.contains('}') {
                return Err("has a '}' without its '{': open it, or remove the brace".to_owned());
            }
            let (name, after) = tail.split_once('}').ok_or_else(|| {
                "has a '{' without its '}': close it, or remove the brace".to_owned()
            })?;
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || !name.chars().all(plain) {
                return Err(format!(
                    "has the placeholder {{{name}}}: write letters, digits, '_' and '-'"
                ));
            }
            names.insert(name.to_owned());
            rest = after;
        }
        if rest.contains('}') {
            return Err("has a '}' without its '{': open it, or remove the brace".to_owned());
        }
    }
    Ok(names)
}

/// Whether the mediator sends a path without placeholders exactly as written. A path that `url`
/// would change is not sent at all.
pub(crate) fn is_sent_as_written(path: &str) -> bool {
    let url = Url::parse(&format!("http://host{path}")).ok();
    path.starts_with('/')
        && url.is_some_and(|url| &url[Position::BeforePath..Position::AfterPath] == path)
}

/// The path characters of RFC 3986 without '%': an encoded '/' or '.' in a template could mislead
/// its readers.
fn is_path_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/{}".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found() {
        let names = placeholders("/api/v1/{claw_id}/fish-{size}.json").expect("a path");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["claw_id", "size"]);
        assert!(placeholders("/").expect("a path").is_empty());
    }

    #[test]
    fn paths_that_a_url_would_change_are_not_sent() {
        for path in ["/", "/mcp", "/v1/a%20b/mcp;x=1", "//a"] {
            assert!(is_sent_as_written(path), "{path:?}");
        }
        for path in [
            "",
            "mcp",
            "@evil.test/mcp",
            "/a b",
            "/a/../mcp",
            "/%2e%2e/mcp",
            "/a\\b",
            "/mcp?x=1",
            "/mcp#x",
            "/{claw_id}",
            "/\u{e9}",
        ] {
            assert!(!is_sent_as_written(path), "{path:?}");
        }
    }

    #[test]
    fn templates_that_leave_their_path_are_refused() {
        for path in [
            "",
            "fish",
            "//evil.test/x",
            "/a/../b",
            "/./a",
            "/a?x=1",
            "/a#b",
            "/a b",
            "/a%2e%2e",
            "/a\\b",
            "/{",
            "/}",
            "/{}",
            "/{a{b}}",
            "/{a/b}",
            "/\u{2024}",
            "/a\r\nHost: x",
        ] {
            assert!(placeholders(path).is_err(), "{path:?}");
        }
    }
}
