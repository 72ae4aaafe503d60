//! Decides when each certificate is issued, used and dropped, as a function of dates only.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Lifetime of an authority. It is replaced when only [`AUTHORITY_SPARE`] is left.
pub const AUTHORITY_LIFE: Duration = Duration::from_secs(5 * 365 * 24 * 60 * 60);
const AUTHORITY_SPARE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Lifetime of a serving certificate. It is replaced when only [`SERVING_SPARE`] is left.
pub const SERVING_LIFE: Duration = Duration::from_secs(90 * 24 * 60 * 60);
const SERVING_SPARE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Time between publishing an authority and signing with it. The slowest reader is a mediator
/// whose volume the kubelet has not refreshed yet.
pub const OVERLAP: Duration = DAY;
/// How far the clocks of other machines may be behind.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// Name and dates of an authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The certificate's subject, and the prefix of its keys in the Secret.
    pub name: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// Time at which it was added to the bundle.
    pub published: Timestamp,
}

/// Signer, expiry and hosts of a serving certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServingCertificate {
    pub signed_by: String,
    pub not_after: Timestamp,
    pub hosts: Vec<String>,
}

/// The certificates in the Secret, as its annotation describes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCertificates {
    /// Oldest first.
    pub authorities: Vec<Authority>,
    pub webhook: Option<ServingCertificate>,
    pub link: Option<ServingCertificate>,
}

/// The steps that are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// A new authority to issue and publish.
    pub add: Option<Authority>,
    /// Names of the authorities to remove from the bundle.
    pub drop: Vec<String>,
    /// The authority that signs certificates issued by this plan.
    pub signer: String,
    pub issue_webhook: bool,
    pub issue_link: bool,
}

impl Plan {
    pub fn nothing_to_do(&self) -> bool {
        self.add.is_none() && self.drop.is_empty() && !self.issue_webhook && !self.issue_link
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by)
        .ok()
        .and_then(|by| at.checked_add(by).ok())
        .unwrap_or(Timestamp::MAX)
}

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by)
        .ok()
        .and_then(|by| at.checked_sub(by).ok())
        .unwrap_or(Timestamp::MIN)
}

/// Decides which certificates to issue and to drop at `now`.
pub fn plan(
    stored: &StoredCertificates,
    webhook: &[String],
    link: &[String],
    now: Timestamp,
) -> Plan {
    let valid: Vec<&Authority> = stored
        .authorities
        .iter()
        .filter(|authority| authority.not_after > now)
        .collect();
    let newest = valid.last();
    let add = newest
        .is_none_or(|newest| newest.not_after <= later(now, AUTHORITY_SPARE))
        .then(|| Authority {
            name: format!("ca-{}", now.as_second()),
            not_before: earlier(now, CLOCK_SKEW),
            not_after: later(now, AUTHORITY_LIFE),
            published: now,
        });
    let known_long_enough = |authority: &&&Authority| later(authority.published, OVERLAP) <= now;
    // The newest authority that every client knows. The first authority signs at once, since no
    // client trusts another.
    let signer = valid
        .iter()
        .rev()
        .find(known_long_enough)
        .or(valid.first())
        .map(|authority| authority.name.clone())
        .or_else(|| add.as_ref().map(|authority| authority.name.clone()))
        .unwrap_or_default();
    let stale = |serving: &Option<ServingCertificate>, hosts: &[String]| {
        serving.as_ref().is_none_or(|serving| {
            serving.signed_by != signer
                || serving.hosts != hosts
                || serving.not_after <= later(now, SERVING_SPARE)
        })
    };
    let drop = stored
        .authorities
        .iter()
        .filter(|authority| authority.name != signer)
        .filter(|authority| {
            authority.not_after <= now
                // Superseded: the signer has been in use for a further `OVERLAP`.
                || stored
                    .authorities
                    .iter()
                    .find(|other| other.name == signer)
                    .is_some_and(|signer| {
                        authority.published < signer.published
                            && later(signer.published, 2 * OVERLAP) <= now
                    })
        })
        .map(|authority| authority.name.clone())
        .collect();
    Plan {
        issue_webhook: stale(&stored.webhook, webhook),
        issue_link: stale(&stored.link, link),
        add,
        drop,
        signer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap()
    }

    fn hosts() -> (Vec<String>, Vec<String>) {
        (
            vec!["webhook.pond.svc".to_owned()],
            vec!["link.pond.svc".to_owned()],
        )
    }

    /// Carries out a plan like `rotate`.
    fn carry_out(stored: &mut StoredCertificates, plan: &Plan, now: Timestamp) {
        let (webhook, link) = hosts();
        stored.authorities.extend(plan.add.clone());
        stored
            .authorities
            .retain(|authority| !plan.drop.contains(&authority.name));
        let serving = |hosts: Vec<String>| {
            Some(ServingCertificate {
                signed_by: plan.signer.clone(),
                not_after: later(now, SERVING_LIFE),
                hosts,
            })
        };
        if plan.issue_webhook {
            stored.webhook = serving(webhook);
        }
        if plan.issue_link {
            stored.link = serving(link);
        }
    }

    #[test]
    fn daily_rotation_over_twenty_years_leaves_no_gap() {
        let (webhook, link) = hosts();
        let mut stored = StoredCertificates::default();
        let mut signers = Vec::new();
        for today in 0..20 * 365 {
            let now = day(today);
            let plan = plan(&stored, &webhook, &link, now);
            let known: Vec<String> = stored
                .authorities
                .iter()
                .map(|authority| authority.name.clone())
                .collect();
            carry_out(&mut stored, &plan, now);
            assert!(
                super::plan(&stored, &webhook, &link, now).nothing_to_do(),
                "settles at once"
            );

            for serving in [&stored.webhook, &stored.link].into_iter().flatten() {
                let signer = stored
                    .authorities
                    .iter()
                    .find(|authority| authority.name == serving.signed_by)
                    .expect("the signer is in the bundle");
                assert!(serving.not_after > now);
                assert!(signer.not_after > serving.not_after, "day {today}");
                // A client that read the bundle yesterday trusts today's certificate.
                assert!(
                    today == 0 || known.contains(&serving.signed_by),
                    "day {today}"
                );
            }
            assert!(stored.authorities.len() <= 2);
            if !signers.contains(&plan.signer) {
                signers.push(plan.signer);
            }
        }
        assert!(signers.len() >= 4, "{signers:?}");
    }

    #[test]
    fn changed_hosts_renew_the_certificate() {
        let (webhook, link) = hosts();
        let mut stored = StoredCertificates::default();
        let first = plan(&stored, &webhook, &link, day(0));
        carry_out(&mut stored, &first, day(0));
        let renamed = vec!["link.reef.svc".to_owned()];
        let next = plan(&stored, &webhook, &renamed, day(1));
        assert!(next.issue_link && !next.issue_webhook && next.add.is_none());
    }

    #[test]
    fn expired_certificates_are_all_renewed() {
        let (webhook, link) = hosts();
        let mut stored = StoredCertificates::default();
        let first = plan(&stored, &webhook, &link, day(0));
        carry_out(&mut stored, &first, day(0));
        let now = day(6 * 365);
        let next = plan(&stored, &webhook, &link, now);
        carry_out(&mut stored, &next, now);
        assert_eq!(stored.authorities.len(), 1);
        assert_eq!(
            stored.link.as_ref().unwrap().signed_by,
            stored.authorities[0].name
        );
    }
}
