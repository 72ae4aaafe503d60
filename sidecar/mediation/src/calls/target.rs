//! The URL that a call is sent to.

use url::{Position, Url};

/// Returns the URL to dial on the server of `base`, or `None` if it would not be sent exactly as it
/// was built: a parser that resolves or rewrites a segment would call another resource.
pub fn target(base: &Url, path_and_query: &str) -> Option<Url> {
    if !matches!(base.scheme(), "http" | "https") {
        return None;
    }
    let (scheme, server) = (
        &base[..Position::BeforeUsername],
        &base[Position::BeforeHost..Position::BeforePath],
    );
    let url = Url::parse(&[scheme, server, path_and_query].concat()).ok()?;
    (url[Position::BeforePath..] == *path_and_query).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_a_parser_would_rewrite_is_refused() {
        let check = |base: &str, path: &str, fine: bool| {
            let url = target(&Url::parse(base).unwrap(), path);
            assert_eq!(url.is_some(), fine, "{base} {path}");
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

    #[test]
    fn only_the_server_of_the_base_is_kept() {
        for (base, expected) in [
            ("http://desk:80/api?a#b", "http://desk/depth"),
            ("https://otter:secret@desk:8443/", "https://desk:8443/depth"),
            ("http://[::1]:4000", "http://[::1]:4000/depth"),
        ] {
            let url = target(&Url::parse(base).unwrap(), "/depth").unwrap();
            assert_eq!(url.as_str(), expected);
        }
    }
}
