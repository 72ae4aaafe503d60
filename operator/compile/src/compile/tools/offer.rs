//! Matches the names of a rule against the tools and feeds that a surface offers.

use crate::Code;
use crate::compile::authority::{Rule, Verb};
use crate::diagnostics::finding::Finding;
use crate::near::Suggestions;
use crate::surface::ResolvedSurface;
use crate::surface::descriptor::Descriptor;

/// The tools or feeds of a surface, for the rules of one verb.
#[derive(Clone, Copy)]
pub(crate) struct Offer<'a> {
    surface: &'a ResolvedSurface,
    descriptor: &'a Descriptor,
    verb: Verb,
}

impl<'a> Offer<'a> {
    /// Returns the items that the surface offers to the rule. `Err`: the descriptor is missing,
    /// invalid or not the pinned one, or the rule's conditions cannot be read; the finding names the
    /// field of the rule's object.
    pub fn to(rule: &Rule<'_>, surface: &'a ResolvedSurface) -> Result<Self, Finding> {
        let key = &surface.subject.key;
        let nothing = |part: &str, code: Code, message: String| {
            Err(Finding::new(
                format!("{}.{part}", rule.field),
                code,
                message,
            ))
        };
        if let Err(finding) = &rule.conditions {
            return Err(finding.clone());
        }
        let descriptor = match &surface.descriptor {
            Ok(Some(descriptor)) => descriptor,
            Ok(None) => {
                return nothing(
                    "surface",
                    Code::DescriptorNotFound,
                    format!(
                        "surface {key} has no descriptor, so it offers nothing: set spec.descriptor there"
                    ),
                );
            }
            Err(finding) => {
                return nothing(
                    "surface",
                    finding.code,
                    format!(
                        "surface {key} cannot be used: its {} {}",
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
                    "surface {key} has the descriptor {}, the grant pins another: review the change, then renew the pin",
                    descriptor.digest
                ),
            );
        }
        Ok(Self {
            surface,
            descriptor,
            verb: rule.verb,
        })
    }

    pub fn has(&self, name: &str) -> bool {
        match self.verb {
            Verb::Tool => self.descriptor.tools.contains_key(name),
            Verb::Feed => self.descriptor.feeds.contains_key(name),
        }
    }

    /// Returns every name on offer.
    pub fn names(&self) -> Vec<&'a str> {
        match self.verb {
            Verb::Tool => self.descriptor.tools.keys().map(String::as_str).collect(),
            Verb::Feed => self.descriptor.feeds.keys().map(String::as_str).collect(),
        }
    }

    /// Checks that an offered tool can have the conditions of the rule. An unusable tool passes,
    /// since it is reported as unusable. The finding has its whole path.
    pub fn suits(&self, rule: &Rule<'_>, name: &str) -> Result<(), Finding> {
        let conditions = match (self.verb, &rule.conditions) {
            (Verb::Tool, Ok(conditions)) => conditions,
            (Verb::Feed, _) | (_, Err(_)) => return Ok(()),
        };
        let Some(Ok(described)) = self.descriptor.tools.get(name) else {
            return Ok(());
        };
        conditions.suit(&described.input_schema).map_err(|finding| {
            let surface = &self.surface.subject.key;
            let message = format!("tool {name} of surface {surface}: {}", finding.message);
            let field = format!("{}.{}", rule.field, finding.field);
            Finding::new(field, finding.code, message)
        })
    }

    /// Returns the finding at `field` for a name that is not on offer.
    pub fn not_found(&self, field: String, name: &str, suggestions: &mut Suggestions) -> Finding {
        let (code, noun) = match self.verb {
            Verb::Tool => (Code::ToolNotFound, "tool"),
            Verb::Feed => (Code::FeedNotFound, "feed"),
        };
        let advice = if name.contains('*') {
            format!("patterns are not known, so name each {noun}, or \"*\" alone")
        } else {
            match self.verb {
                Verb::Tool => {
                    let known = self.descriptor.tools.keys();
                    suggestions.meant_or_known(name, known.map(String::as_str))
                }
                Verb::Feed => {
                    let known = self.descriptor.feeds.keys();
                    suggestions.meant_or_known(name, known.map(String::as_str))
                }
            }
        };
        let surface = &self.surface.subject.key;
        let message = format!(
            "surface {surface} has no {noun} {name:?} ({advice}): correct the name, or remove it"
        );
        Finding::new(field, code, message)
    }
}
