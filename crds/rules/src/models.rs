//! The models that cluster policies allow an agent: lists of globs over `provider/model`.
//!
//! A ref must match a glob of each list, so another list only takes models away. The two parts of a ref
//! are matched separately: no star matches the first `/`. Callers bound refs: a request's model
//! has at most 512 bytes, a listed one 256 characters.

use toolcrib_bounds::glob;

/// Returns whether a ref matches a glob of each list. Every ref does if there is no list.
pub fn matches_each(lists: &[Vec<String>], reference: &str) -> bool {
    let mut all = lists.iter();
    all.all(|list| list.iter().any(|glob| matches(glob, reference)))
}

/// Returns whether a provider may serve a model that matches a glob of each list.
pub fn may_serve(lists: &[Vec<String>], provider: &str) -> bool {
    let is_of = |glob: &String| {
        let part = glob.split_once('/').map(|(part, _)| part);
        part.is_some_and(|part| glob::matches(part, provider))
    };
    lists.iter().all(|list| list.iter().any(is_of))
}

/// True if every ref that matches `narrow` also matches `wide`. Compares globs as texts, so it can
/// return false for globs that do cover others. Without lists every ref matches.
pub fn covers(wide: &[Vec<String>], narrow: &[Vec<String>]) -> bool {
    let is_within =
        |narrow: &Vec<String>, wide: &Vec<String>| narrow.iter().all(|glob| wide.contains(glob));
    wide.iter()
        .all(|wide| narrow.iter().any(|narrow| is_within(narrow, wide)))
}

fn matches(glob: &str, reference: &str) -> bool {
    let parts = glob.split_once('/').zip(reference.split_once('/'));
    parts.is_some_and(|((provider_glob, model_glob), (provider, model))| {
        glob::matches(provider_glob, provider) && glob::matches(model_glob, model)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(lists: &[&[&str]]) -> Vec<Vec<String>> {
        let owned = |list: &&[&str]| list.iter().map(|glob| (*glob).to_owned()).collect();
        lists.iter().map(owned).collect()
    }

    #[track_caller]
    fn check(globs: &[&[&str]], yes: &[&str], no: &[&str]) {
        let globs = lists(globs);
        for reference in yes {
            assert!(matches_each(&globs, reference), "{globs:?} {reference}");
        }
        for reference in no {
            assert!(!matches_each(&globs, reference), "{globs:?} {reference}");
        }
    }

    #[test]
    fn a_ref_matches_a_glob_of_each_list() {
        check(
            &[&["openai/gpt-5*"]],
            &["openai/gpt-5", "openai/gpt-5/mini"],
            &["openai/gpt-4", "openai2/gpt-5", "gpt-5", ""],
        );
        check(
            &[&["openai/*", "*/claude-*"], &["*/*-mini", "house/claude-4"]],
            &["openai/gpt-5-mini", "house/claude-4", "x/claude-mini"],
            &["openai/gpt-5", "house/claude-5", "x/gpt-mini"],
        );
        check(&[], &["openai/gpt-5"], &[]);
        check(&[&[]], &[], &["openai/gpt-5"]);
    }

    #[test]
    fn a_star_ends_at_the_first_slash() {
        check(&[&["*/gpt-5"]], &["a/gpt-5"], &["router/openai/gpt-5"]);
        check(
            &[&["router*/gpt-5"]],
            &["router2/gpt-5"],
            &["router/x/gpt-5"],
        );
        check(&[&["*"]], &[], &["a/b", "a"]);
    }

    #[test]
    fn lists_with_more_globs_cover_those_with_fewer() {
        let check = |wide: &[&[&str]], narrow: &[&[&str]]| covers(&lists(wide), &lists(narrow));
        let two: &[&[&str]] = &[&["a/*"], &["b/*"]];
        assert!(check(&[], two) && check(&[&["a/*"]], two) && check(&[&["a/*", "c/*"]], two));
        assert!(!check(two, &[]) && !check(two, &[&["a/*"]]) && !check(&[&["c/*"]], two));
    }

    #[test]
    fn a_provider_serves_what_each_list_may_allow() {
        let globs = lists(&[&["open*/x", "house/*"], &["*/y", "openai/z"]]);
        assert!(may_serve(&globs, "openai") && may_serve(&globs, "house"));
        assert!(!may_serve(&globs, "other"));
        assert!(may_serve(&[], "other"));
    }
}
