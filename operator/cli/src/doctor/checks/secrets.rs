//! The Secrets that surfaces and providers use: they exist, with the label and the hosts.
//!
//! The compiler decides, as for `explain`.

use toolcrib_bounds::count;
use toolcrib_compile::{Code, Diagnostic, Inputs, Presence, check_provider, check_surface};

use crate::cluster::installation::{Cause, Facts, Gap};
use crate::doctor::finding::{Check, Finding, Findings};

/// The diagnostics about Secrets. A Secret that the user may not read is a gap, and no diagnostic.
const CODES: [Code; 5] = [
    Code::SecretNotFound,
    Code::SecretNotLabelled,
    Code::SecretHostNotAllowed,
    Code::SecretCaNotAllowed,
    Code::SecretKeyMissing,
];

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Secrets);
    let inputs = match &facts.objects {
        Ok(inputs) => inputs,
        Err(gap) => {
            findings.gap(gap);
            return findings.finish("");
        }
    };
    let mut known = 0;
    for (secret, presence) in inputs.secrets() {
        match presence {
            Presence::Unknown(_) => findings.gap(&Gap {
                question: format!("get secrets {secret}"),
                why: Cause::Forbidden,
            }),
            Presence::Present(_) | Presence::Absent => known += 1,
        }
    }
    let mut found = diagnostics(inputs);
    found.sort();
    found.dedup();
    for diagnostic in found {
        findings.error(
            format!("{} [{}]", diagnostic.located(), diagnostic.code.name()),
            // Without the link of the reference.
            diagnostic
                .code
                .cure()
                .split(" [")
                .next()
                .unwrap_or_default(),
        );
    }
    findings.finish(format!(
        "{} in use, with label and hosts",
        count(known, "Secret")
    ))
}

fn diagnostics(inputs: &Inputs) -> Vec<Diagnostic> {
    let surfaces = inputs.surfaces().filter_map(|(key, _)| {
        let report = check_surface(inputs, key)?;
        Some(report.diagnostics)
    });
    let providers = inputs.providers().filter_map(|(key, _)| {
        let report = check_provider(inputs, key)?;
        Some(report.diagnostics)
    });
    let all = surfaces.chain(providers).flatten();
    all.filter(|it| CODES.contains(&it.code)).collect()
}
