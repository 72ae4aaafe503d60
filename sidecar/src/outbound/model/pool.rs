//! The keys of a provider, and the effect of each answer on the key that was used. Pure: the time
//! is an argument.
//!
//! 401 and an exhausted quota retire a key, 429 cools it down; a 403 for content does not concern
//! the key. A retired key is tried again after seconds, and after longer pauses if it is refused again:
//! the provider may have been wrong, or its bill paid. Until it is accepted, the provider counts as
//! refusing it. A rotated secret is a new key, even with the same id.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use toolcrib_manifest::{Provider, ProviderAuth, SecretText};

use crate::metrics::KeyCounts;

/// Longest cooling, even if the provider asks for hours.
const LONGEST_COOLING: Duration = Duration::from_secs(120);
/// Shortest cooling: without it one request could use a key again and again.
const SHORTEST_COOLING: Duration = Duration::from_secs(1);
/// Cooling after a 429 without `Retry-After`.
const USUAL_COOLING: Duration = Duration::from_secs(10);
/// Time after which a retired key is tried for the first time. Each further refusal doubles it.
const SHORTEST_RETIREMENT: Duration = Duration::from_secs(5);
const LONGEST_RETIREMENT: Duration = Duration::from_secs(600);
/// Time after its last refusal at which a key is forgotten: it may have been rotated.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// The key for one attempt at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lease {
    /// `auth: none`.
    NoKey,
    Key {
        id: String,
        secret: SecretText,
    },
}

impl Lease {
    /// The key's id, for record and metrics.
    pub fn id(&self) -> &str {
        match self {
            Lease::NoKey => "none",
            Lease::Key { id, .. } => id,
        }
    }
}

/// The result of an attempt, as far as it concerns the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider served the request with the key.
    Accepted,
    /// The answer says nothing about the key, or there was none.
    Fine,
    Rejected,
    /// The key has bytes that no header can carry, so it was not sent.
    Unsendable,
    QuotaExhausted {
        status: u16,
    },
    RateLimited {
        retry_after: Option<Duration>,
    },
}

/// The reason for which a key is not used for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyRefusal {
    Rejected,
    Unsendable,
    QuotaExhausted { status: u16 },
    RateLimited,
}

/// Continues a sentence that begins with the provider's name. Never names the key's text.
impl fmt::Display for KeyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyRefusal::Rejected => write!(f, "refused its key with status 401"),
            KeyRefusal::Unsendable => write!(f, "has a key that no header can carry"),
            KeyRefusal::QuotaExhausted { status } => {
                write!(f, "has no quota left for its key, status {status}")
            }
            KeyRefusal::RateLimited => write!(f, "limits the rate of its key, status 429"),
        }
    }
}

impl Outcome {
    /// `quota`: true if the body says that the quota is used up.
    pub fn of(status: u16, retry_after: Option<Duration>, quota: bool) -> Outcome {
        match status {
            401 => Outcome::Rejected,
            402 => Outcome::QuotaExhausted { status },
            429 if quota => Outcome::QuotaExhausted { status },
            429 => Outcome::RateLimited { retry_after },
            _ => Outcome::Fine,
        }
    }

    /// True if another key of the provider should be tried.
    pub fn spends_the_key(self) -> bool {
        match self {
            Outcome::Accepted | Outcome::Fine => false,
            Outcome::Rejected
            | Outcome::Unsendable
            | Outcome::QuotaExhausted { .. }
            | Outcome::RateLimited { .. } => true,
        }
    }
}

/// No key can be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoUsableKey {
    /// Time until the first key has cooled down; `None`: all are retired, or there is none.
    pub retry_after: Option<Duration>,
    /// The reasons of all keys; empty if the provider has no key.
    pub refusals: BTreeSet<KeyRefusal>,
}

/// Continues a sentence that begins with the provider's name.
impl fmt::Display for NoUsableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.refusals.is_empty() {
            return f.write_str("has no key");
        }
        for (index, refusal) in self.refusals.iter().enumerate() {
            let between = if index == 0 { "" } else { " and " };
            write!(f, "{between}{refusal}")?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub struct KeyPool {
    resting: BTreeMap<(String, String, SecretText), Rest>,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    /// The whole time of the rest.
    pause: Duration,
    refusal: KeyRefusal,
}

impl Rest {
    /// True if the key is retired, false if it is cooling down.
    fn is_retired(&self) -> bool {
        match self.refusal {
            KeyRefusal::Rejected | KeyRefusal::Unsendable | KeyRefusal::QuotaExhausted { .. } => {
                true
            }
            KeyRefusal::RateLimited => false,
        }
    }

    /// True if the last answer about the key still counts.
    fn is_known(&self, now: Instant) -> bool {
        match self.is_retired() {
            true => self.until + FORGOTTEN > now,
            false => self.until > now,
        }
    }
}

impl KeyPool {
    /// Returns how long a key rests; `None`: it does not.
    fn rest(&self, provider: &str, id: &str, secret: &SecretText) -> Option<&Rest> {
        // Usually no key rests, and then no slot need be made.
        if self.resting.is_empty() {
            return None;
        }
        let slot = (provider.to_string(), id.to_string(), secret.clone());
        self.resting.get(&slot)
    }

    /// Returns the first usable key in the provider's order.
    pub fn lease(
        &self,
        name: &str,
        provider: &Provider,
        now: Instant,
    ) -> Result<Lease, NoUsableKey> {
        match provider.auth {
            ProviderAuth::None => return Ok(Lease::NoKey),
            ProviderAuth::Bearer | ProviderAuth::XApiKey => {}
        }
        let mut soonest: Option<Duration> = None;
        let mut refusals = BTreeSet::new();
        for key in &provider.keys {
            let rest = self.rest(name, &key.id, &key.secret);
            match rest.filter(|rest| rest.until > now) {
                None => {
                    return Ok(Lease::Key {
                        id: key.id.clone(),
                        secret: key.secret.clone(),
                    });
                }
                Some(rest) => {
                    refusals.insert(rest.refusal);
                    if !rest.is_retired() {
                        let wait = rest.until - now;
                        soonest = Some(soonest.map_or(wait, |soonest| soonest.min(wait)));
                    }
                }
            }
        }
        Err(NoUsableKey {
            retry_after: soonest,
            refusals,
        })
    }

    /// Returns the reason if the provider refuses every key; `None`: it may accept one, or only had
    /// too many requests. A key that is due to be tried again counts as refused until it is
    /// accepted.
    pub fn refusal(&self, name: &str, provider: &Provider, now: Instant) -> Option<NoUsableKey> {
        let keys = match provider.auth {
            ProviderAuth::None => return None,
            ProviderAuth::Bearer | ProviderAuth::XApiKey => &provider.keys,
        };
        let refusals = keys.iter().map(|key| {
            let rest = self.rest(name, &key.id, &key.secret);
            let rest = rest.filter(|rest| rest.is_retired() && rest.is_known(now))?;
            Some(rest.refusal)
        });
        let refusals: BTreeSet<KeyRefusal> = refusals.collect::<Option<_>>()?;
        (!refusals.is_empty()).then_some(NoUsableKey {
            retry_after: None,
            refusals,
        })
    }

    pub fn counts(&self, name: &str, provider: &Provider, now: Instant) -> KeyCounts {
        let mut counts = KeyCounts::default();
        for key in &provider.keys {
            let rest = self.rest(name, &key.id, &key.secret);
            match rest.filter(|rest| rest.is_known(now)) {
                None => counts.usable += 1,
                Some(rest) if rest.is_retired() => counts.retired += 1,
                Some(_) => counts.cooling += 1,
            }
        }
        counts
    }

    /// Notes an answer. Returns whether the provider now refuses a key that it accepted before, or
    /// accepts one that it refused.
    pub fn settle(&mut self, name: &str, lease: &Lease, outcome: Outcome, now: Instant) -> bool {
        self.resting.retain(|_, rest| rest.is_known(now));
        let Lease::Key { id, secret } = lease else {
            return false;
        };
        // Nothing to change, as after nearly every answer.
        if self.resting.is_empty() && !outcome.spends_the_key() {
            return false;
        }
        let slot = (name.to_string(), id.clone(), secret.clone());
        let before = self.resting.get(&slot).filter(|rest| rest.is_retired());
        // Requests that ran together are refused together: that is one refusal.
        let retirement = match before {
            None => SHORTEST_RETIREMENT,
            Some(rest) if rest.until > now => rest.pause,
            Some(rest) => (rest.pause * 2).min(LONGEST_RETIREMENT),
        };
        let (refusal, pause) = match outcome {
            Outcome::Fine => return false,
            Outcome::Accepted => {
                let rest = self.resting.remove(&slot);
                return rest.is_some_and(|rest| rest.is_retired());
            }
            Outcome::Rejected => (KeyRefusal::Rejected, retirement),
            Outcome::Unsendable => (KeyRefusal::Unsendable, LONGEST_RETIREMENT),
            Outcome::QuotaExhausted { status } => {
                (KeyRefusal::QuotaExhausted { status }, retirement)
            }
            Outcome::RateLimited { retry_after } => {
                let pause = retry_after.unwrap_or(USUAL_COOLING);
                let pause = pause.clamp(SHORTEST_COOLING, LONGEST_COOLING);
                (KeyRefusal::RateLimited, pause)
            }
        };
        let rest = Rest {
            until: now + pause,
            pause,
            refusal,
        };
        let before = self.resting.insert(slot, rest);
        rest.is_retired() && !before.is_some_and(|before| before.is_retired())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(keys: &[(&str, &str)], auth: ProviderAuth) -> Provider {
        Provider {
            endpoints: Vec::new(),
            auth,
            keys: keys
                .iter()
                .map(|(id, secret)| toolcrib_manifest::ProviderKey {
                    id: (*id).into(),
                    secret: SecretText::new(*secret),
                })
                .collect(),
            pass_headers: Vec::new(),
            proxy: None,
            tls: None,
        }
    }

    /// Applies answers to the keys in the order of their leases; returns the ids that were used.
    fn check(
        answers: &[(u16, Option<u64>, bool)],
        expected: &[&str],
        end: Result<&str, NoUsableKey>,
    ) {
        let house = provider(&[("a", "key-a"), ("b", "key-b")], ProviderAuth::Bearer);
        let mut pool = KeyPool::default();
        let now = Instant::now();
        let mut used = Vec::new();
        for (status, after, quota) in answers {
            let lease = pool.lease("house", &house, now).unwrap();
            used.push(lease.id().to_string());
            let outcome = Outcome::of(*status, after.map(Duration::from_secs), *quota);
            pool.settle("house", &lease, outcome, now);
        }
        assert_eq!(used, expected);
        let last = pool.lease("house", &house, now);
        assert_eq!(last.as_ref().map(Lease::id).map_err(Clone::clone), end);
    }

    #[test]
    fn each_answer_cools_or_retires_its_key() {
        let wait = |seconds, refusals: &[KeyRefusal]| NoUsableKey {
            retry_after: Some(Duration::from_secs(seconds)),
            refusals: refusals.iter().copied().collect(),
        };
        check(
            &[(200, None, false), (403, None, false), (500, None, false)],
            &["a", "a", "a"],
            Ok("a"),
        );
        check(&[(401, None, false)], &["a"], Ok("b"));
        check(
            &[(429, Some(7), false), (429, Some(5), false)],
            &["a", "b"],
            Err(wait(5, &[KeyRefusal::RateLimited])),
        );
        check(
            &[(429, Some(86_400), false), (401, None, false)],
            &["a", "b"],
            Err(wait(120, &[KeyRefusal::Rejected, KeyRefusal::RateLimited])),
        );
        check(&[(429, Some(0), false)], &["a"], Ok("b"));
        let spent = |status| KeyRefusal::QuotaExhausted { status };
        let retired = NoUsableKey {
            retry_after: None,
            refusals: [spent(402), spent(429)].into(),
        };
        check(
            &[(429, None, true), (402, None, false)],
            &["a", "b"],
            Err(retired),
        );
    }

    #[test]
    fn a_spent_provider_says_why() {
        for (statuses, text) in [
            ([401, 401], "refused its key with status 401"),
            (
                [402, 429],
                "has no quota left for its key, status 402 and limits the rate of its key, \
                 status 429",
            ),
        ] {
            let house = provider(&[("a", "key-a"), ("b", "key-b")], ProviderAuth::Bearer);
            let mut pool = KeyPool::default();
            let now = Instant::now();
            for status in statuses {
                let lease = pool.lease("house", &house, now).unwrap();
                pool.settle("house", &lease, Outcome::of(status, None, false), now);
            }
            let spent = pool.lease("house", &house, now).unwrap_err();
            assert_eq!(spent.to_string(), text);
        }
        let keyless = provider(&[], ProviderAuth::Bearer);
        let spent = KeyPool::default().lease("house", &keyless, Instant::now());
        assert_eq!(spent.unwrap_err().to_string(), "has no key");
    }

    #[test]
    fn a_key_comes_back_and_a_rotated_one_is_new() {
        let mut pool = KeyPool::default();
        let now = Instant::now();
        let old = provider(&[("a", "before")], ProviderAuth::XApiKey);
        let lease = pool.lease("house", &old, now).unwrap();
        pool.settle("house", &lease, Outcome::Rejected, now);
        assert!(pool.lease("house", &old, now).is_err());
        assert!(pool.lease("barn", &old, now).is_ok());
        let rotated = provider(&[("a", "after")], ProviderAuth::XApiKey);
        assert!(pool.lease("house", &rotated, now).is_ok());
        assert!(pool.lease("house", &old, now + SHORTEST_RETIREMENT).is_ok());
    }

    #[test]
    fn a_key_that_is_refused_again_rests_longer_until_it_is_accepted() {
        let house = provider(&[("a", "key-a")], ProviderAuth::Bearer);
        let mut pool = KeyPool::default();
        let mut now = Instant::now();
        let lease = pool.lease("house", &house, now).unwrap();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            // Two requests that ran together.
            pool.settle("house", &lease, Outcome::Rejected, now);
            pool.settle("house", &lease, Outcome::Rejected, now);
            let begun = now;
            while pool.lease("house", &house, now).is_err() {
                now += Duration::from_secs(1);
            }
            pauses.push((now - begun).as_secs());
            // It may be tried, and counts as refused.
            assert!(pool.refusal("house", &house, now).is_some());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        pool.settle("house", &lease, Outcome::Fine, now);
        assert!(pool.refusal("house", &house, now).is_some());
        pool.settle("house", &lease, Outcome::Accepted, now);
        assert_eq!(pool.refusal("house", &house, now), None);
        pool.settle("house", &lease, Outcome::Rejected, now);
        assert!(
            pool.lease("house", &house, now + SHORTEST_RETIREMENT)
                .is_ok()
        );
        assert!(pool.refusal("house", &house, now + FORGOTTEN * 2).is_none());
    }

    #[test]
    fn a_provider_without_auth_needs_no_key() {
        let none = provider(&[], ProviderAuth::None);
        let lease = KeyPool::default().lease("house", &none, Instant::now());
        assert_eq!(lease, Ok(Lease::NoKey));
    }
}
