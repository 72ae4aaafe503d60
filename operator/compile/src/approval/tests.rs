//! Who decides: rules, policies, minimum, and one user who denies.

use proptest::prelude::*;
use toolcrib_crds::{
    ApprovalRule, Approvers, DecisionVerdict, GrantKind, ObjectIdentity, PolicyRequirement,
    RuleRequirement, StateReason, ToolDecisionSpec, UserIdentity,
};

use super::Outcome::{Approved, Denied};
use super::{Ballot, Outcome, Requirements, Tally, is_about};

fn asked(users: &[&str], groups: &[&str], minimum: Option<u32>) -> ApprovalRule {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    ApprovalRule {
        approvers: Some(Approvers {
            users: texts(users),
            groups: texts(groups),
        }),
        minimum,
    }
}

fn rule(grant: &str, approval: ApprovalRule) -> RuleRequirement {
    RuleRequirement {
        kind: GrantKind::ToolGrant,
        grant: grant.to_owned(),
        rule: format!("r1:{grant}"),
        approval,
    }
}

fn policy(name: &str, approval: ApprovalRule) -> PolicyRequirement {
    PolicyRequirement {
        policy: name.to_owned(),
        approval,
    }
}

/// `heron/wardens approves`: user, groups, verdict.
fn tally(requirements: &Requirements<'_>, ballots: &[&str]) -> Tally {
    let read: Vec<(String, Vec<String>, DecisionVerdict)> = ballots
        .iter()
        .map(|text| {
            let (who, verdict) = text.split_once(' ').expect("a verdict");
            let mut names = who.split('/').map(str::to_owned);
            let user = names.next().expect("a user");
            let verdict = match verdict {
                "approves" => DecisionVerdict::Approve,
                "denies" => DecisionVerdict::Deny,
                other => panic!("{other}"),
            };
            (user, names.collect(), verdict)
        })
        .collect();
    let ballots: Vec<Ballot<'_>> = read
        .iter()
        .map(|(username, groups, verdict)| Ballot {
            username,
            groups,
            verdict: *verdict,
        })
        .collect();
    requirements.tally(&ballots)
}

#[track_caller]
fn check(
    rules: &[RuleRequirement],
    policies: &[PolicyRequirement],
    ballots: &[&str],
    expected: Option<Outcome>,
) {
    let found = tally(&Requirements { rules, policies }, ballots);
    assert_eq!(found.outcome, expected, "{ballots:?}");
}

#[test]
fn anybody_decides_if_nobody_is_named() {
    check(&[], &[], &[], None);
    check(&[], &[], &["heron approves"], Some(Approved));
    check(&[], &[], &["heron denies"], Some(Denied(0)));
    let anybody = [rule("deep", ApprovalRule::default())];
    check(&anybody, &[], &["heron approves"], Some(Approved));
    let two = ApprovalRule {
        approvers: Some(Approvers::default()),
        minimum: Some(2),
    };
    let two = [rule("deep", two)];
    check(&two, &[], &["heron approves"], None);
    check(
        &two,
        &[],
        &["heron approves", "newt approves"],
        Some(Approved),
    );
}

#[test]
fn users_and_groups_that_are_named_decide_and_no_others() {
    let rules = [rule("deep", asked(&["heron"], &["wardens"], None))];
    check(&rules, &[], &["heron approves"], Some(Approved));
    check(&rules, &[], &["newt/wardens approves"], Some(Approved));
    check(&rules, &[], &["newt/anglers approves"], None);
    // The name of a user is no group, and the other way round.
    check(&rules, &[], &["wardens/heron approves"], None);
    check(&rules, &[], &["newt denies"], None);
    let found = tally(
        &Requirements {
            rules: &rules,
            policies: &[],
        },
        &["newt approves", "heron approves"],
    );
    assert_eq!(found.counts, [false, true]);
}

#[test]
fn one_rule_is_enough_with_its_own_minimum() {
    let rules = [
        rule("deep", asked(&[], &["wardens"], Some(2))),
        rule("shallow", asked(&["newt"], &[], None)),
    ];
    check(&rules, &[], &["heron/wardens approves"], None);
    check(
        &rules,
        &[],
        &["heron/wardens approves", "pike/wardens approves"],
        Some(Approved),
    );
    check(&rules, &[], &["newt approves"], Some(Approved));
}

#[test]
fn a_user_counts_once_toward_a_minimum() {
    let rules = [rule("deep", asked(&["heron"], &["wardens"], Some(2)))];
    let twice = ["heron approves", "heron/wardens approves"];
    check(&rules, &[], &twice, None);
}

#[test]
fn each_policy_must_be_satisfied_besides() {
    let rules = [rule("deep", asked(&["heron"], &[], None))];
    let policies = [
        policy("deep-water", asked(&[], &["keepers"], None)),
        policy("night", asked(&["newt"], &[], None)),
    ];
    check(&rules, &policies, &["heron approves"], None);
    check(&rules, &policies, &["heron/keepers approves"], None);
    check(
        &rules,
        &policies,
        &["heron/keepers approves", "newt approves"],
        Some(Approved),
    );
    // The policies alone, if no rule asks.
    check(
        &[],
        &policies,
        &["pike/keepers approves", "newt approves"],
        Some(Approved),
    );
    check(&[], &policies, &["pike/keepers approves"], None);
}

#[test]
fn one_approver_denies_alone_whatever_the_others_say() {
    let rules = [rule("deep", asked(&["heron", "newt"], &[], Some(2)))];
    let both = ["heron approves", "newt approves", "heron denies"];
    check(&rules, &[], &both, Some(Denied(2)));
    // Of a policy's approver, too.
    let policies = [policy("deep-water", asked(&["pike"], &[], None))];
    check(&rules, &policies, &["pike denies"], Some(Denied(0)));
    let by_nobody = ["otter denies", "heron approves", "newt approves"];
    check(&rules, &[], &by_nobody, Some(Approved));
}

#[test]
fn requirements_are_shown_to_people() {
    let rules = [
        rule("deep", asked(&["heron", "newt"], &["wardens"], Some(2))),
        rule("default", ApprovalRule::default()),
    ];
    let policies = [policy("deep-water", asked(&[], &["keepers"], None))];
    let all = Requirements {
        rules: &rules,
        policies: &policies,
    };
    assert_eq!(
        all.to_string(),
        "2 of users heron, newt and group wardens (ToolGrant deep) or 1 of anybody who may create ToolDecisions (ToolGrant default); and 1 of group keepers (ClusterToolPolicy deep-water)"
    );
    let nothing = Requirements {
        rules: &[],
        policies: &[],
    };
    assert_eq!(
        nothing.to_string(),
        "1 of anybody who may create ToolDecisions"
    );
    let groups = ["anglers", "keepers", "wardens"].map(str::to_owned);
    assert_eq!(all.groups_of(&groups), ["keepers", "wardens"]);
}

#[test]
fn a_decision_counts_for_its_own_approval_and_call_alone() {
    let decision = |uid: &str, digest: &str| ToolDecisionSpec {
        approval: ObjectIdentity {
            name: "otter-1".to_owned(),
            uid: uid.to_owned(),
        },
        call_digest: digest.to_owned(),
        verdict: DecisionVerdict::Approve,
        reason: String::new(),
        decided_by: UserIdentity::default(),
    };
    for (uid, digest, expected) in [
        ("u1", "c1:a", Ok(())),
        ("u1", "c1:b", Err(StateReason::OtherDigest)),
        ("u2", "c1:a", Err(StateReason::Gone)),
        ("", "", Err(StateReason::Gone)),
    ] {
        assert_eq!(is_about("u1", "c1:a", &decision(uid, digest)), expected);
    }
}

fn some_rule() -> impl Strategy<Value = ApprovalRule> {
    let users = prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..3);
    let groups = prop::collection::vec(prop::sample::select(vec!["g", "h"]), 0..2);
    let minimum = prop::option::of(1..4_u32);
    (users, groups, minimum).prop_map(|(users, groups, minimum)| asked(&users, &groups, minimum))
}

fn some_ballot() -> impl Strategy<Value = (String, Vec<String>, DecisionVerdict)> {
    let user = prop::sample::select(vec!["a", "b", "c", "d"]);
    let groups = prop::collection::vec(prop::sample::select(vec!["g", "h"]), 0..2);
    let verdict = prop::sample::select(vec![
        DecisionVerdict::Approve,
        DecisionVerdict::Approve,
        DecisionVerdict::Approve,
        DecisionVerdict::Deny,
    ]);
    (user, groups, verdict).prop_map(|(user, groups, verdict)| {
        let groups = groups.into_iter().map(str::to_owned).collect();
        (user.to_owned(), groups, verdict)
    })
}

proptest! {
    /// Order and repetition of ballots do not matter, more approvals never revoke an approval, and more
    /// denials never grant one.
    #[test]
    fn the_outcome_depends_on_the_set_of_ballots_alone(
        rules in prop::collection::vec(some_rule(), 0..3),
        policies in prop::collection::vec(some_rule(), 0..3),
        mut given in prop::collection::vec(some_ballot(), 0..6),
        more in some_ballot(),
    ) {
        let rules: Vec<_> = rules.into_iter().map(|asked| rule("deep", asked)).collect();
        let policies: Vec<_> = policies.into_iter().map(|asked| policy("deep-water", asked)).collect();
        let requirements = Requirements { rules: &rules, policies: &policies };
        let outcome = |given: &[(String, Vec<String>, DecisionVerdict)]| {
            let ballots: Vec<Ballot<'_>> = given
                .iter()
                .map(|(username, groups, verdict)| Ballot { username, groups, verdict: *verdict })
                .collect();
            match requirements.tally(&ballots).outcome {
                Some(Outcome::Denied(_)) => Some(false),
                Some(Outcome::Approved) => Some(true),
                None => None,
            }
        };
        let first = outcome(&given);
        let mut reversed = given.clone();
        reversed.reverse();
        reversed.extend(given.clone());
        prop_assert_eq!(outcome(&reversed), first);
        let verdict = more.2;
        given.push(more);
        let then = outcome(&given);
        match (first, verdict) {
            (Some(false), _) => prop_assert_eq!(then, Some(false)),
            (Some(true), DecisionVerdict::Approve) => prop_assert_eq!(then, Some(true)),
            (Some(true) | None, DecisionVerdict::Deny) => prop_assert!(then != Some(true) || first == Some(true)),
            (None, DecisionVerdict::Approve) => prop_assert!(then != Some(false)),
        }
    }
}
