//! The runner's token: generated once, replaced on request. An earlier token stays valid while a pod
//! may have it. Pure: clock, randomness and pods are arguments.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use toolcrib_compile::identity::token;
use toolcrib_compile::names::{
    PREVIOUS_TOKEN_PREFIX, REPLACED_ANNOTATION, ROTATED_FOR_ANNOTATION, TOKEN_KEY,
};
use toolcrib_manifest::SecretText;

/// Extra time for which a replaced token stays valid: a pod's creation time comes from another
/// clock, and its container reads the Secret later.
const MARGIN: SignedDuration = SignedDuration::from_secs(120);

/// Content of the identity Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub data: BTreeMap<String, SecretText>,
    pub annotations: BTreeMap<String, String>,
}

/// The wanted content of the identity Secret. `rotate` is the Agent's annotation, `pods` are the
/// creation times of the agent's pods.
pub fn identity(
    agent: &str,
    current: Option<&Identity>,
    rotate: Option<&str>,
    pods: &[Timestamp],
    now: Timestamp,
    random: impl FnOnce() -> [u8; 32],
) -> Identity {
    let rotated_for = rotate.unwrap_or_default().to_owned();
    let fresh = |random: [u8; 32]| (TOKEN_KEY.to_owned(), token(agent, random));
    let Some(current) = current else {
        return with(
            BTreeMap::from([fresh(random())]),
            rotated_for,
            BTreeMap::new(),
        );
    };
    let mut data = current.data.clone();
    let mut replaced: BTreeMap<String, Timestamp> = current
        .annotations
        .get(REPLACED_ANNOTATION)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    // Removes keys that the operator did not write, so that they are not valid tokens.
    data.retain(|key, _| key == TOKEN_KEY || replaced.contains_key(key));

    let was_for = current
        .annotations
        .get(ROTATED_FOR_ANNOTATION)
        .map_or("", String::as_str);
    // Removing the annotation requests nothing.
    let requested = rotate.is_some_and(|rotate| rotate != was_for);
    let usable = data
        .get(TOKEN_KEY)
        .is_some_and(|token| !token.expose().is_empty());
    if requested || !usable {
        let old = data.remove(TOKEN_KEY).filter(|_| usable);
        if let Some(old) = old {
            let number = replaced
                .keys()
                .filter_map(|key| key.strip_prefix(PREVIOUS_TOKEN_PREFIX)?.parse::<u32>().ok())
                .max()
                .unwrap_or(0)
                .saturating_add(1);
            let key = format!("{PREVIOUS_TOKEN_PREFIX}{number}");
            data.insert(key.clone(), old);
            replaced.insert(key, now);
        }
        data.extend([fresh(random())]);
    }
    replaced.retain(|key, at| {
        let until = at.checked_add(MARGIN).unwrap_or(Timestamp::MAX);
        let needed = until > now || pods.iter().any(|created| *created <= until);
        if !needed {
            data.remove(key);
        }
        needed && data.contains_key(key)
    });
    let rotated_for = if requested {
        rotated_for
    } else {
        was_for.to_owned()
    };
    with(data, rotated_for, replaced)
}

/// The reason why the token changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenChange {
    /// A rotation was requested. The earlier token stays valid for the pods that have it.
    Rotated,
    /// The earlier token was lost or is not trusted. It is not valid any more.
    Replaced,
}

/// Compares the tokens of two identities; `None` if they are equal, or if there was none before.
/// `had_token` says that the operator has written a token before, which pods may still have even if
/// its Secret was deleted.
pub fn token_change(
    before: Option<&Identity>,
    had_token: bool,
    wanted: &Identity,
) -> Option<TokenChange> {
    let deleted = Identity::default();
    let before = before.or(had_token.then_some(&deleted))?;
    let earlier = before.data.get(TOKEN_KEY);
    if earlier == wanted.data.get(TOKEN_KEY) {
        return None;
    }
    let kept = earlier.is_some_and(|earlier| wanted.data.values().any(|it| it == earlier));
    Some(match kept {
        true => TokenChange::Rotated,
        false => TokenChange::Replaced,
    })
}

/// The time after which an earlier token may be dropped.
pub fn look_again(identity: &Identity, now: Timestamp) -> Option<std::time::Duration> {
    let replaced: BTreeMap<String, Timestamp> =
        serde_json::from_str(identity.annotations.get(REPLACED_ANNOTATION)?).ok()?;
    replaced
        .values()
        .filter_map(|at| at.checked_add(MARGIN).ok())
        .filter(|until| *until > now)
        .min()
        .and_then(|until| std::time::Duration::try_from(until.duration_since(now)).ok())
        .map(|wait| wait + std::time::Duration::from_secs(1))
}

fn with(
    data: BTreeMap<String, SecretText>,
    rotated_for: String,
    replaced: BTreeMap<String, Timestamp>,
) -> Identity {
    let replaced = serde_json::to_string(&replaced).expect("names and dates are JSON");
    let annotations = BTreeMap::from([
        (ROTATED_FOR_ANNOTATION.to_owned(), rotated_for),
        (REPLACED_ANNOTATION.to_owned(), replaced),
    ]);
    Identity { data, annotations }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + 60 * minute).unwrap()
    }

    fn keys(identity: &Identity) -> Vec<&str> {
        identity.data.keys().map(String::as_str).collect()
    }

    fn never() -> [u8; 32] {
        panic!("an unexpected new token")
    }

    #[test]
    fn a_token_is_generated_once_and_names_its_agent() {
        let first = identity("otter", None, None, &[], at(0), || [7; 32]);
        assert!(first.data["token"].expose().starts_with("otter:0707"));
        assert_eq!(
            identity("otter", Some(&first), None, &[], at(9), never),
            first
        );
    }

    #[test]
    fn an_earlier_token_stays_valid_while_its_pods_exist() {
        let first = identity("otter", None, Some("a"), &[], at(0), || [1; 32]);
        let rotated = identity("otter", Some(&first), Some("b"), &[at(5)], at(10), || {
            [2; 32]
        });
        assert_eq!(keys(&rotated), ["previous-1", "token"]);
        assert_eq!(rotated.data["previous-1"], first.data["token"]);
        // The same request again, and its withdrawal, change nothing.
        let pods = [at(5), at(15)];
        assert_eq!(
            identity("otter", Some(&rotated), Some("b"), &pods, at(20), never),
            rotated
        );
        assert_eq!(
            identity("otter", Some(&rotated), None, &pods, at(20), never),
            rotated
        );
        // Only a pod that was created later is left.
        let clean = identity("otter", Some(&rotated), Some("b"), &[at(15)], at(20), never);
        assert_eq!(keys(&clean), ["token"]);
        assert_eq!(clean.data["token"], rotated.data["token"]);
    }

    #[test]
    fn the_first_token_is_no_change() {
        let first = identity("otter", None, None, &[], at(0), || [1; 32]);
        let check = |before: Option<&Identity>, had_token, rotate, expected| {
            let wanted = identity("otter", before, rotate, &[at(0)], at(9), || [2; 32]);
            assert_eq!(token_change(before, had_token, &wanted), expected);
        };
        check(None, false, None, None);
        check(None, true, None, Some(TokenChange::Replaced));
        check(Some(&first), true, None, None);
        check(Some(&first), false, Some("b"), Some(TokenChange::Rotated));
        let emptied = Identity::default();
        check(Some(&emptied), true, None, Some(TokenChange::Replaced));
    }

    #[test]
    fn several_rotations_overlap() {
        let mut now = identity("otter", None, None, &[], at(0), || [1; 32]);
        for step in 1..4_u8 {
            let rotate = step.to_string();
            let time = at(i64::from(step));
            now = identity("otter", Some(&now), Some(&rotate), &[at(0)], time, || {
                [step; 32]
            });
        }
        assert_eq!(
            keys(&now),
            ["previous-1", "previous-2", "previous-3", "token"]
        );
    }

    #[test]
    fn a_foreign_key_in_the_secret_is_not_a_valid_token() {
        let mut planted = identity("otter", None, None, &[], at(0), || [1; 32]);
        planted
            .data
            .insert("previous-9".into(), SecretText::new("otter:mine"));
        let clean = identity("otter", Some(&planted), None, &[at(0)], at(1), never);
        assert_eq!(keys(&clean), ["token"]);
    }
}
