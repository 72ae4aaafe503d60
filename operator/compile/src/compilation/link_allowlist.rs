//! The allowlist of a compilation ([`LinkAllowlist`]): what a mediator may still use of its loaded
//! files.
//!
//! The link carries it ahead of the kubelet. It is a pure function of the compilation before values
//! are filled in: a credential that cannot be read now keeps its last good value, and must not
//! look revoked. Invariant: the allowlist names everything in the compiled files, so a mediator
//! that has loaded them loses nothing.

use std::collections::BTreeSet;

use toolcrib_manifest::{AllowedRules, Feed, LinkAllowlist, Rule, Tool};
use toolcrib_rules::models::covers;

use crate::Compilation;

/// Returns what the mediators of the compiled agent may still use.
pub fn link_allowlist(compiled: &Compilation) -> LinkAllowlist {
    let files = &compiled.files;
    let digest = |tool: &Tool| tool.extension.entry_digest.clone().unwrap_or_default();
    let all = files.tools.tools.iter();
    let unconditional = all.clone().filter(|tool| {
        let rules = &tool.extension.rules;
        rules.is_empty() || rules.iter().any(Rule::is_unconditional)
    });
    let rules = all.filter_map(|tool| {
        let rules = tool.extension.rules.iter();
        let conditional = rules.filter(|rule| !rule.is_unconditional());
        let rules: BTreeSet<String> = conditional.map(|rule| rule.digest.clone()).collect();
        let entry = digest(tool);
        (!rules.is_empty()).then(|| (tool.name.clone(), AllowedRules { entry, rules }))
    });
    let feed = |feed: &Feed| format!("{}/{}", feed.source, feed.name);
    let models = files.agent.models.as_ref().map(|models| {
        // Every model that may serve a request; the files say which ones a request may name.
        let refs: BTreeSet<&String> = models
            .allowed
            .iter()
            .chain(&models.default)
            .chain(&models.fallbacks)
            .collect();
        refs.into_iter().cloned().collect()
    });
    let models_matching = files.agent.models.as_ref();
    let models_matching = models_matching.map(|models| models.matching.clone());
    LinkAllowlist {
        rules: rules.collect(),
        tools: unconditional
            .map(|tool| (tool.name.clone(), digest(tool)))
            .collect(),
        feeds: files.feeds.0.iter().map(feed).collect(),
        providers: files.providers.providers.keys().cloned().collect(),
        models,
        models_matching: models_matching.unwrap_or_default(),
    }
}

/// True if `before` allows something that `after` does not. A removed rule with conditions counts
/// even if the tool is now given without conditions: the loaded files may have only that rule.
pub fn takes_away(before: &LinkAllowlist, after: &LinkAllowlist) -> bool {
    let lacks = |before: &[String], after: &[String]| {
        let after: BTreeSet<&String> = after.iter().collect();
        before.iter().any(|name| !after.contains(name))
    };
    let models = match (&before.models, &after.models) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(listed), Some(left)) => lacks(listed, left) || !still_match(before, after),
    };
    models
        || before
            .tools
            .iter()
            .any(|(name, digest)| after.tools.get(name) != Some(digest))
        || before
            .rules
            .iter()
            .any(|(name, rules)| !stand(rules, after.rules.get(name)))
        || lacks(&before.feeds, &after.feeds)
        || lacks(&before.providers, &after.providers)
}

/// Returns whether every model that matches the globs of `before` matches those of `after`, as far as
/// equal globs tell.
fn still_match(before: &LinkAllowlist, after: &LinkAllowlist) -> bool {
    let (before, after) = (&before.models_matching, &after.models_matching);
    before.is_empty() || (!after.is_empty() && covers(after, before))
}

fn stand(before: &AllowedRules, after: Option<&AllowedRules>) -> bool {
    after.is_some_and(|after| before.entry == after.entry && before.rules.is_subset(&after.rules))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn allowlist(tools: &[(&str, &str)], feeds: &[&str], models: Option<&[&str]>) -> LinkAllowlist {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        LinkAllowlist {
            rules: BTreeMap::new(),
            tools: tools
                .iter()
                .map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            feeds: owned(feeds),
            providers: owned(&["house"]),
            models: models.map(owned),
            models_matching: Vec::new(),
        }
    }

    #[test]
    fn a_removed_or_changed_item_is_taken_away_and_an_added_one_is_not() {
        let before = allowlist(&[("desk.quote", "v1:a")], &["desk/tide"], None);
        let check = |after: &LinkAllowlist, expected: bool| {
            assert_eq!(takes_away(&before, after), expected, "{after:?}");
        };
        check(&before, false);
        let more = [("desk.quote", "v1:a"), ("desk.order", "v1:b")];
        check(&allowlist(&more, &["desk/tide", "desk/more"], None), false);
        check(&allowlist(&[], &["desk/tide"], None), true);
        check(
            &allowlist(&[("desk.quote", "v1:z")], &["desk/tide"], None),
            true,
        );
        check(&allowlist(&[("desk.quote", "v1:a")], &[], None), true);
        check(
            &allowlist(
                &[("desk.quote", "v1:a")],
                &["desk/tide"],
                Some(&["house/m"]),
            ),
            true,
        );
        let mut conditional = before.clone();
        let rules = |digests: &[&str]| AllowedRules {
            entry: "v1:c".to_owned(),
            rules: digests.iter().map(|digest| (*digest).to_owned()).collect(),
        };
        let name = || "desk.trade".to_owned();
        conditional.rules.insert(name(), rules(&["r1:a"]));
        check(&conditional, false);
        assert!(takes_away(&conditional, &before));
        let mut others = conditional.clone();
        others.rules.insert(name(), rules(&["r1:a", "r1:b"]));
        assert!(!takes_away(&conditional, &others));
        assert!(takes_away(&others, &conditional));
        let mut changed = rules(&["r1:a"]);
        changed.entry = "v1:z".to_owned();
        others.rules.insert(name(), changed);
        assert!(takes_away(&conditional, &others));
        let mut without = before.clone();
        without.providers.clear();
        check(&without, true);

        let some = allowlist(&[], &[], Some(&["house/m", "house/n"]));
        assert!(takes_away(&some, &allowlist(&[], &[], Some(&["house/n"]))));
        let other_way = allowlist(&[], &[], Some(&["house/n", "house/m", "house/o"]));
        assert!(!takes_away(&some, &other_way));
        assert!(!takes_away(&some, &allowlist(&[], &[], None)));

        let matching = |lists: &[&[&str]]| LinkAllowlist {
            models_matching: lists
                .iter()
                .map(|list| list.iter().map(|it| (*it).to_owned()).collect())
                .collect(),
            ..allowlist(&[], &[], Some(&[]))
        };
        let any = allowlist(&[], &[], None);
        let (one, two) = (matching(&[&["a/*"]]), matching(&[&["a/*"], &["*/m"]]));
        assert!(takes_away(&any, &one) && !takes_away(&one, &any));
        assert!(takes_away(&one, &two) && !takes_away(&two, &one));
        assert!(!takes_away(&one, &matching(&[&["a/*", "b/*"]])));
        assert!(takes_away(&matching(&[&["a/*", "b/*"]]), &one));
        assert!(takes_away(&one, &allowlist(&[], &[], Some(&[]))));
        assert!(takes_away(&one, &some));
    }
}
