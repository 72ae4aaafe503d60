//! Rules on HTTP headers: those that only the mediator may set, hop-by-hop headers, and the bearer
//! token of a request.
//!
//! Not here: which other headers are forwarded, and in which direction.

/// The reason for which a Surface, a provider's list or a runner cannot choose a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedHeader {
    /// The header decides how the message is framed or encoded, or where it goes.
    Framing,
    /// The header identifies the caller.
    Identity,
    /// The header authenticates, or chooses the account that is charged.
    Credential,
}

/// Hop-by-hop headers (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const FRAMING: [&str; 9] = [
    // Headers of the message.
    "accept-encoding",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    // Headers by which a server replaces the method or the address of the request line.
    "x-http-method-override",
    "x-method-override",
    "x-http-method",
];

const FRAMING_PREFIXES: [&str; 2] = ["x-original-", "x-rewrite-"];

const IDENTITY: [&str; 6] = [
    "forwarded",
    "origin",
    "referer",
    "via",
    "x-client-ip",
    "x-real-ip",
];

const IDENTITY_PREFIXES: [&str; 3] = ["x-claw-", "x-toolcrib-", "x-forwarded-"];

const CREDENTIALS: [&str; 9] = [
    "api-key",
    "authorization",
    "cookie",
    "openai-organization",
    "openai-project",
    "x-api-key",
    "x-auth-token",
    "x-goog-api-key",
    "x-goog-user-project",
];

const CREDENTIAL_PREFIXES: [&str; 3] = ["proxy-auth", "x-amz-", "x-aws-"];

/// Returns the reason for which a header of this name is reserved, or `None`. Case does not matter.
pub fn reserved(name: &str) -> Option<ReservedHeader> {
    let starts_with = |prefix: &str| {
        let start = name.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let among = |names: &[&str], prefixes: &[&str]| {
        names.iter().any(|it| it.eq_ignore_ascii_case(name))
            || prefixes.iter().any(|prefix| starts_with(prefix))
    };
    // Checked first, since a proxy's credentials are hop-by-hop headers too.
    if among(&CREDENTIALS, &CREDENTIAL_PREFIXES) {
        Some(ReservedHeader::Credential)
    } else if among(&HOP_BY_HOP, &[]) || among(&FRAMING, &FRAMING_PREFIXES) {
        Some(ReservedHeader::Framing)
    } else if among(&IDENTITY, &IDENTITY_PREFIXES) {
        Some(ReservedHeader::Identity)
    } else {
        None
    }
}

/// Returns true if a header of this name, in lower case, is hop-by-hop and so never forwarded. The
/// headers that `Connection` lists are hop-by-hop too; the caller checks them.
pub fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.contains(&name)
}

/// Returns the bearer token. `values` are the values of all `Authorization` headers. `None` if the
/// header is missing or repeated, or its scheme is not `Bearer` (the case does not matter).
pub fn bearer<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Option<&'v [u8]> {
    let mut values = values.into_iter();
    // A repeated header is malformed, even if one of the values is valid.
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// Returns true if a header of this name may carry a service's credential. Credential headers may,
/// except those of proxies, which a proxy on the way would read.
pub fn may_be_credential(name: &str) -> bool {
    let proxy = name.to_ascii_lowercase().starts_with("proxy-");
    match reserved(name) {
        Some(ReservedHeader::Framing | ReservedHeader::Identity) => false,
        Some(ReservedHeader::Credential) | None => !proxy,
    }
}

/// Returns true if a Surface may choose a header of this name for a value of the mediator's: it is a
/// header's name, and not reserved.
pub fn may_be_chosen(name: &str) -> bool {
    is_name(name) && reserved(name).is_none()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A name, or a prefix with `*`, in a list of headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderPattern(String);

impl HeaderPattern {
    /// Returns `None` if the text is not a header's name, has `*` alone or in the middle, or
    /// matches only reserved headers.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let name = text.strip_suffix('*').unwrap_or(&text);
        may_be_chosen(name).then_some(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if a header of this name, in lower case, matches and is not reserved.
    pub fn passes(&self, name: &str) -> bool {
        let matches = match self.0.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == self.0,
        };
        matches && reserved(name).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_reserved_in_any_case() {
        for (name, expected) in [
            ("Content-Encoding", Some(ReservedHeader::Framing)),
            ("HOST", Some(ReservedHeader::Framing)),
            ("x-original-url", Some(ReservedHeader::Framing)),
            ("X-Claw-ID", Some(ReservedHeader::Identity)),
            ("x-toolcrib-any", Some(ReservedHeader::Identity)),
            ("X-Forwarded-For", Some(ReservedHeader::Identity)),
            ("Authorization", Some(ReservedHeader::Credential)),
            ("X-Amz-Security-Token", Some(ReservedHeader::Credential)),
            ("Proxy-Authorization", Some(ReservedHeader::Credential)),
            ("HTTP2-Settings", Some(ReservedHeader::Framing)),
            ("x-desk-key", None),
            ("openai-beta", None),
        ] {
            assert_eq!(reserved(name), expected, "{name}");
        }
    }

    #[test]
    fn only_a_single_bearer_token_is_accepted() {
        let check = |values: &[&str], expected: Option<&str>| {
            let found = bearer(values.iter().map(|value| value.as_bytes()));
            assert_eq!(found, expected.map(str::as_bytes), "{values:?}");
        };
        check(&["Bearer otter"], Some("otter"));
        check(&["bearer otter"], Some("otter"));
        check(&["Bearer "], Some(""));
        check(&["Bearer  otter"], Some(" otter"));
        check(&[], None);
        check(&["Basic otter"], None);
        check(&["Bear"], None);
        check(&["Bearer\totter"], None);
        check(&["Bearer otter", "Bearer otter"], None);
    }

    #[test]
    fn proxy_headers_cannot_carry_a_credential() {
        for name in [
            "Authorization",
            "X-Api-Key",
            "Cookie",
            "X-Desk-Key",
            "x-amz-key",
        ] {
            assert!(may_be_credential(name), "{name}");
        }
        for name in [
            "Content-Encoding",
            "content-type",
            "keep-alive",
            "Accept-Encoding",
            "Host",
            "proxy-authorization",
            "Proxy-Status",
            "x-claw-id",
            "X-Toolcrib-Agent",
            "via",
        ] {
            assert!(!may_be_credential(name), "{name}");
        }
    }

    #[test]
    fn reserved_headers_and_other_texts_cannot_be_chosen() {
        for name in ["Idempotency-Key", "idempotency_key", "X-Request-Id"] {
            assert!(may_be_chosen(name), "{name}");
        }
        for name in [
            "",
            "-key",
            "key*",
            "a b",
            "a:",
            "a\r\nb",
            "é",
            "Authorization",
            "Content-Length",
            "X-Claw-ID",
        ] {
            assert!(!may_be_chosen(name), "{name:?}");
        }
    }

    #[test]
    fn a_header_pattern_never_passes_a_reserved_header() {
        let passes = |pattern: &str, name: &str| {
            HeaderPattern::parse(pattern)
                .unwrap_or_else(|| panic!("{pattern} is a pattern"))
                .passes(name)
        };
        assert!(passes("X-Title", "x-title"));
        assert!(!passes("X-Title", "x-title-2"));
        assert!(passes("x-portkey-*", "x-portkey-config"));
        assert!(!passes("x-*", "x-api-key"));
        assert!(!passes("a*", "authorization"));
        for pattern in [
            "",
            "*",
            "-*",
            "a*b",
            "**",
            "a b",
            "a:",
            "Authorization",
            "Proxy-Auth*",
            "x-claw-*",
            "x-forwarded-*",
            "content-length",
            "é",
        ] {
            assert_eq!(HeaderPattern::parse(pattern), None, "{pattern:?}");
        }
    }
}
