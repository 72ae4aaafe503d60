//! The HTTP headers that only the mediator may set.
//!
//! Not here: which of the others pass in which direction.

/// Why a header cannot be chosen by a Surface, a provider's list or a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// It decides how the message is framed or coded, or where it goes.
    Framing,
    /// It says who calls.
    Identity,
    /// It authenticates, or chooses the account that is charged.
    Credential,
}

const FRAMING: [&str; 17] = [
    // These belong to one connection (RFC 9110, 7.6.1).
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    // Of the message.
    "accept-encoding",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    // Words by which a server takes another method or another address than the request line's.
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

/// Why a header of this name is reserved, or `None`. Case does not matter.
pub fn reserved(name: &str) -> Option<Reserved> {
    let name = name.to_ascii_lowercase();
    let among = |names: &[&str], prefixes: &[&str]| {
        names.contains(&name.as_str()) || prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    if among(&FRAMING, &FRAMING_PREFIXES) {
        Some(Reserved::Framing)
    } else if among(&IDENTITY, &IDENTITY_PREFIXES) {
        Some(Reserved::Identity)
    } else if among(&CREDENTIALS, &CREDENTIAL_PREFIXES) {
        Some(Reserved::Credential)
    } else {
        None
    }
}

/// Whether a service's credential may be a header of this name. A credential's own headers are
/// what they are for; those of proxies are not, since a proxy in between would read them.
pub fn may_be_credential(name: &str) -> bool {
    let proxy = name.to_ascii_lowercase().starts_with("proxy-");
    match reserved(name) {
        Some(Reserved::Framing | Reserved::Identity) => false,
        Some(Reserved::Credential) | None => !proxy,
    }
}

/// A name or a prefix with `*`, as a list of headers has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderPattern(String);

impl HeaderPattern {
    /// `None`: no header's name, `*` alone or in the middle, or only reserved headers match.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let name = text.strip_suffix('*').unwrap_or(&text);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        (is_name && reserved(name).is_none()).then_some(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a header of this name, in small letters, matches and is not reserved.
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
            ("Content-Encoding", Some(Reserved::Framing)),
            ("HOST", Some(Reserved::Framing)),
            ("x-original-url", Some(Reserved::Framing)),
            ("X-Claw-ID", Some(Reserved::Identity)),
            ("x-toolcrib-any", Some(Reserved::Identity)),
            ("X-Forwarded-For", Some(Reserved::Identity)),
            ("Authorization", Some(Reserved::Credential)),
            ("X-Amz-Security-Token", Some(Reserved::Credential)),
            ("Proxy-Authorization", Some(Reserved::Credential)),
            ("x-desk-key", None),
            ("openai-beta", None),
        ] {
            assert_eq!(reserved(name), expected, "{name}");
        }
    }

    #[test]
    fn a_credential_is_a_header_of_its_own() {
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
    fn a_pattern_passes_what_it_names_and_nothing_reserved() {
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
