//! What a compilation leaves standing of whatever a mediator has loaded.
//!
//! The link carries it ahead of the kubelet. Pure. It is made of the compilation before
//! values are filled in: a credential that cannot be read just now keeps its last good value,
//! and must not look like one that was taken away. Invariant: it names everything that the
//! compiled files give, so that it takes nothing from a mediator that has loaded them.

use std::collections::BTreeSet;

use toolcrib_manifest::{Feed, Floor};

use crate::Compilation;

/// What the mediators of the compiled agent may still use.
pub fn floor(compiled: &Compilation) -> Floor {
    let files = &compiled.files;
    let tools = files.tools.tools.iter().map(|tool| {
        let digest = tool.extension.entry_digest.clone();
        (tool.name.clone(), digest.unwrap_or_default())
    });
    let feed = |feed: &Feed| format!("{}/{}", feed.source, feed.name);
    let models = files.agent.models.as_ref().map(|models| {
        // Whatever may serve a request; which of them may be asked for is in the files.
        let refs: BTreeSet<&String> = models
            .allowed
            .iter()
            .chain(&models.default)
            .chain(&models.fallbacks)
            .collect();
        refs.into_iter().cloned().collect()
    });
    Floor {
        tools: tools.collect(),
        feeds: files.feeds.0.iter().map(feed).collect(),
        providers: files.providers.providers.keys().cloned().collect(),
        models,
    }
}

/// Whether something that `before` left standing does not stand in `after`.
pub fn takes_away(before: &Floor, after: &Floor) -> bool {
    let models = match (&before.models, &after.models) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(before), Some(after)) => before.iter().any(|model| !after.contains(model)),
    };
    models
        || before
            .tools
            .iter()
            .any(|(name, digest)| after.tools.get(name) != Some(digest))
        || before.feeds.iter().any(|feed| !after.feeds.contains(feed))
        || before
            .providers
            .iter()
            .any(|provider| !after.providers.contains(provider))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn floor(tools: &[(&str, &str)], feeds: &[&str], models: Option<&[&str]>) -> Floor {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Floor {
            tools: tools
                .iter()
                .map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            feeds: owned(feeds),
            providers: owned(&["house"]),
            models: models.map(owned),
        }
    }

    #[test]
    fn less_or_other_is_taken_away_and_more_is_not() {
        let before = floor(&[("desk.quote", "v1:a")], &["desk/tide"], None);
        let check = |after: &Floor, expected: bool| {
            assert_eq!(takes_away(&before, after), expected, "{after:?}");
        };
        check(&before, false);
        let more = [("desk.quote", "v1:a"), ("desk.order", "v1:b")];
        check(&floor(&more, &["desk/tide", "desk/more"], None), false);
        check(&floor(&[], &["desk/tide"], None), true);
        check(
            &floor(&[("desk.quote", "v1:z")], &["desk/tide"], None),
            true,
        );
        check(&floor(&[("desk.quote", "v1:a")], &[], None), true);
        check(
            &floor(
                &[("desk.quote", "v1:a")],
                &["desk/tide"],
                Some(&["house/m"]),
            ),
            true,
        );
        let mut without = before.clone();
        without.providers.clear();
        check(&without, true);

        let some = floor(&[], &[], Some(&["house/m", "house/n"]));
        assert!(takes_away(&some, &floor(&[], &[], Some(&["house/n"]))));
        let other_way = floor(&[], &[], Some(&["house/n", "house/m", "house/o"]));
        assert!(!takes_away(&some, &other_way));
        assert!(!takes_away(&some, &floor(&[], &[], None)));
    }
}
