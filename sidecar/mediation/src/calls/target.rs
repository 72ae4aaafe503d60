//! The URL that a call is sent to.

use url::{Position, Url};

/// Returns the URL to dial, or `None` if it would not be sent exactly as it was built: a parser
/// that resolves or rewrites a segment would call another resource.
pub fn target(base_url: &str, path_and_query: &str) -> Option<Url> {
    let base = Url::parse(base_url).ok()?;
    let origin = base.origin().ascii_serialization();
    let url = Url::parse(&format!("{origin}{path_and_query}")).ok()?;
    let sent = &url[Position::BeforePath..];
    (matches!(base.scheme(), "http" | "https") && sent == path_and_query).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_a_parser_would_rewrite_is_refused() {
        let check = |base: &str, path: &str, fine: bool| {
            assert_eq!(target(base, path).is_some(), fine, "{base} {path}");
        };
        check("http://desk.pond.svc:8080/api", "/api/v1/a%20b?q=1", true);
        check("https://desk.example", "/", true);
        check("http://desk", "/a/../b", false);
        check("http://desk", "/a/%2e%2e/b", false);
        check("http://desk", "/a\\b", false);
        check("http://desk", "/a\nb", false);
        check("http://desk", "//other/a", true);
        check("http://desk", "@other/a", false);
        check("file:///etc", "/passwd", false);
    }
}
