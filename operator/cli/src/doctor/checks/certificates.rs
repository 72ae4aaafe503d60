//! The operator's certificates: those that the API server trusts, and those that are served.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use toolcrib_bounds::ca;
use toolcrib_compile::names;

use crate::cluster::installation::Facts;
use crate::doctor::finding::{Check, Finding, Findings};

/// The leader renews a serving certificate 30 days before its end, so less than this shows that it does
/// not.
const SPARE: SignedDuration = SignedDuration::from_hours(20 * 24);

/// The dates that the controller writes beside the certificates.
#[derive(Default, Deserialize)]
struct Dates {
    webhook: Option<CertificateEnd>,
    link: Option<CertificateEnd>,
}

#[derive(Deserialize)]
struct CertificateEnd {
    not_after: Timestamp,
}

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Certificates);
    let mut ends = Vec::new();
    let name = &facts.release.name;
    let gaps = [
        facts.mutating_webhooks.as_ref().err(),
        facts.validating_webhooks.as_ref().err(),
    ];
    for gap in gaps.into_iter().flatten() {
        findings.gap(gap);
    }
    let mutating = facts
        .mutating_webhooks
        .iter()
        .flatten()
        .flat_map(|it| it.webhooks.iter().flatten());
    let mutating = mutating.map(|it| ("MutatingWebhookConfiguration", &it.client_config));
    let validating = facts
        .validating_webhooks
        .iter()
        .flatten()
        .flat_map(|it| it.webhooks.iter().flatten());
    let validating = validating.map(|it| ("ValidatingWebhookConfiguration", &it.client_config));
    for (kind, client) in mutating.chain(validating) {
        if let Some(bundle) = client
            .ca_bundle
            .as_ref()
            .filter(|bundle| !bundle.0.is_empty())
        {
            let what = format!("the caBundle of {kind} {name}");
            ends.extend(trusted(facts, &what, &bundle.0, &mut findings));
        }
    }
    ends.extend(served(facts, &mut findings));
    let first = ends.into_iter().min();
    findings.finish(match first {
        Some(first) => format!("valid until {first} or longer"),
        None => "no certificate is in use".to_owned(),
    })
}

/// The cure: find out why no leader renews the certificate.
fn renewal(facts: &Facts) -> String {
    format!(
        "find out why no leader renews it: `kubectl logs -n {} deployment/{}`",
        facts.release.namespace,
        facts.controller()
    )
}

/// The end of the authority that is valid for the longest time. One that has expired beside it is
/// harmless.
fn trusted(facts: &Facts, what: &str, bundle: &[u8], findings: &mut Findings) -> Option<Timestamp> {
    let text = std::str::from_utf8(bundle).unwrap_or_default();
    let expiries = match ca::expiries(text) {
        Ok(expiries) => expiries,
        Err(wrong) => {
            let cure = "remove the field: the controller writes it again";
            findings.error(format!("{what} {wrong}"), cure);
            return None;
        }
    };
    let last = expiries.iter().filter_map(|end| end.parse().ok()).max()?;
    if last <= facts.now {
        let message = format!("{what} expired at {last}, so the API server calls no webhook");
        findings.error(message, renewal(facts));
    }
    Some(last)
}

/// The earliest end of the certificates that webhook and link serve.
fn served(facts: &Facts, findings: &mut Findings) -> Option<Timestamp> {
    let (namespace, name) = (&facts.release.namespace, &facts.release.certificate_secret);
    let metadata = match &facts.certificates {
        Ok(Some(metadata)) => metadata,
        Ok(None) => {
            findings.absent(
                facts,
                format!("Secret {namespace}/{name} does not exist, so webhook and link have no certificate"),
                format!("install it again, empty: {}", facts.release.upgrade()),
            );
            return None;
        }
        Err(gap) => {
            findings.gap(gap);
            return None;
        }
    };
    let annotations = metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(names::CERTIFICATES_ANNOTATION));
    let Some(dates) = text.and_then(|text| serde_json::from_str::<Dates>(text).ok()) else {
        let message = format!("Secret {namespace}/{name} holds no certificate yet");
        findings.error(message, renewal(facts));
        return None;
    };
    let mut ends = Vec::new();
    for (what, serving) in [("webhook", dates.webhook), ("link", dates.link)] {
        let Some(CertificateEnd { not_after }) = serving else {
            findings.error(
                format!("Secret {namespace}/{name} has no certificate of the {what}"),
                renewal(facts),
            );
            continue;
        };
        if not_after <= facts.now {
            let message = format!("the certificate of the {what} expired at {not_after}");
            findings.error(message, renewal(facts));
        } else if not_after.duration_since(facts.now) < SPARE {
            let message = format!(
                "the certificate of the {what} expires at {not_after} and should have been renewed by now"
            );
            findings.warning(message, renewal(facts));
        }
        ends.push(not_after);
    }
    ends.into_iter().min()
}

#[cfg(test)]
mod tests {
    use toolcrib_operator::certificates::plan::{ServingCertificate, StoredCertificates};

    use super::*;

    #[test]
    fn the_dates_are_read_as_the_controller_writes_them() {
        let serving = |second| {
            Some(ServingCertificate {
                signed_by: "ca-1".into(),
                not_after: Timestamp::from_second(second).unwrap(),
                hosts: vec!["otter".into()],
            })
        };
        let stored = StoredCertificates {
            authorities: Vec::new(),
            webhook: serving(7),
            link: serving(8),
        };
        let text = serde_json::to_string(&stored).unwrap();
        let dates: Dates = serde_json::from_str(&text).unwrap();
        let second = |it: Option<CertificateEnd>| it.map(|it| it.not_after.as_second());
        assert_eq!(
            (second(dates.webhook), second(dates.link)),
            (Some(7), Some(8))
        );
    }
}
