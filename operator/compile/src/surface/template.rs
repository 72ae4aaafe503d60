//! Path templates: `/api/v1/orders/{order_id}`.

use std::collections::BTreeSet;

use url::{Position, Url};

const MAX_PATH: usize = 1024;

/// The names between braces. `Err`: why this is no path that a call may be built from;
/// the built path must have the template's segments, whatever the arguments.
pub(crate) fn placeholders(path: &str) -> Result<BTreeSet<String>, String> {
    if !path.starts_with('/') {
        return Err(
            "must begin with '/': write the path on the service, such as /quotes/{id}".to_owned(),
        );
    }
    if path.len() > MAX_PATH {
        return Err(format!("is longer than {MAX_PATH} bytes"));
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
                "has the segment {segment:?}, which leaves its place"
            ));
        }
        let mut rest = segment;
        while let Some((literal, tail)) = rest.split_once('{') {
            if literal.contains('}') {
                return Err("has a '}' without its '{'".to_owned());
            }
            let (name, after) = tail
                .split_once('}')
                .ok_or_else(|| "has a '{' without its '}'".to_owned())?;
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
            return Err("has a '}' without its '{'".to_owned());
        }
    }
    Ok(names)
}

/// Whether a path without placeholders leaves the mediator as it is written: one that a url
/// would read otherwise is not sent at all.
pub(crate) fn is_sent_as_written(path: &str) -> bool {
    let url = Url::parse(&format!("http://host{path}")).ok();
    path.starts_with('/')
        && url.is_some_and(|url| &url[Position::BeforePath..Position::AfterPath] == path)
}

/// RFC 3986's path characters without '%': an encoded '/' or '.' in a template could only
/// mislead.
fn is_path_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/{}".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        let names = placeholders("/api/v1/{claw_id}/fish-{size}.json").expect("a path");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["claw_id", "size"]);
        assert!(placeholders("/").expect("a path").is_empty());
    }

    #[test]
    fn what_a_url_reads_otherwise_is_not_sent() {
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
    fn what_leads_elsewhere_is_refused() {
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
