//! Matches the names of a rule against the tools and feeds that a surface offers.

use crate::compile::authority::{ALL, Rule, Verb};
use crate::surface::ResolvedSurface;
use crate::{Code, near};

/// The names that the surface offers, and those that the rule does not get.
pub(crate) struct RuleMatch<'a> {
    pub names: Vec<&'a str>,
    pub unmet: Vec<Unmet>,
}

/// A name that the rule does not get.
pub(crate) struct Unmet {
    /// Field of the rule's object.
    pub field: String,
    /// The tool or feed; `*`: every name of the rule.
    pub name: String,
    pub code: Code,
    pub message: String,
}

/// Matches one rule; `"*"` matches every name on offer. A descriptor that is missing, invalid, or
/// not the pinned one gives nothing.
pub(crate) fn match_rule<'a>(rule: &'a Rule<'_>, resolved: &'a ResolvedSurface) -> RuleMatch<'a> {
    let surface = &resolved.subject.key;
    let nothing = |part: &str, code: Code, message: String| RuleMatch {
        names: Vec::new(),
        unmet: vec![Unmet {
            field: format!("{}.{part}", rule.field),
            name: ALL.to_owned(),
            code,
            message,
        }],
    };
    let descriptor = match &resolved.descriptor {
        Ok(Some(descriptor)) => descriptor,
        Ok(None) => {
            return nothing(
                "surface",
                Code::DescriptorNotFound,
                format!(
                    "surface {surface} has no descriptor, so it offers nothing: set spec.descriptor there"
                ),
            );
        }
        Err(finding) => {
            return nothing(
                "surface",
                finding.code,
                format!(
                    "surface {surface} cannot be used: its {} {}",
                    finding.field, finding.message
                ),
            );
        }
    };
    if let Some(pin) = rule.descriptor_digest
        && pin != descriptor.digest
    {
        return nothing(
            "descriptorDigest",
            Code::DescriptorDigestMismatch,
            format!(
                "surface {surface} has the descriptor {}, the grant pins another: review the change, then renew the pin",
                descriptor.digest
            ),
        );
    }
    let offered: Vec<&str> = match rule.verb {
        Verb::Tool => descriptor.tools.keys().map(String::as_str).collect(),
        Verb::Feed => descriptor.feeds.keys().map(String::as_str).collect(),
    };
    if rule.allows_all() {
        return RuleMatch {
            names: offered,
            unmet: Vec::new(),
        };
    }
    let (code, noun) = match rule.verb {
        Verb::Tool => (Code::ToolNotFound, "tool"),
        Verb::Feed => (Code::FeedNotFound, "feed"),
    };
    let mut matched = RuleMatch {
        names: Vec::new(),
        unmet: Vec::new(),
    };
    for (field, name) in rule.names() {
        if offered.contains(&name) {
            matched.names.push(name);
        } else {
            matched.unmet.push(Unmet {
                field,
                name: name.to_owned(),
                code,
                message: format!(
                    "surface {surface} has no {noun} {name:?} ({}): correct the name, or remove it",
                    if name.contains('*') {
                        format!("patterns are not known, so name each {noun}, or \"*\" alone")
                    } else {
                        near::meant_or_known(name, offered.iter().map(|it| &**it))
                    }
                ),
            });
        }
    }
    matched
}
