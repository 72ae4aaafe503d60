//! Selectors of grants over the labels of Agents.
//!
//! Here: whether a selector can be used, whether it matches an Agent, and the labels by which grants
//! and Agents find each other. Not here: whether selectors are in force ([`crate::AgentSelectors`]), and
//! selectors over namespaces ([`super::selector`]).
//!
//! Invariant: a selector matches only Agents that have every label it names. So an index by one of
//! its labels finds all Agents that it may match, and all grants that may match an Agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use toolcrib_crds::{Agent, AgentSelector, ToolGrant};

use crate::diagnostics::finding::Finding;
use crate::{Code, ObjectRef, names};

/// Limits the labels of an Agent that selectors read, in order of name: each is a key of the index. The
/// chart's admission policy refuses more.
pub const MAX_GRANT_LABELS: usize = 32;
/// Limits the conditions of a selector, and the values of one, as the definition does. Each value is a
/// key of the index.
const MAX_TERMS: usize = 16;
const MAX_VALUES: usize = 32;
/// Limits the bytes of a selector in messages.
const SHOWN: usize = 256;

/// A label of Agents in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentLabel {
    pub namespace: String,
    pub name: String,
    /// `None`: any value.
    pub value: Option<String>,
}

/// Returns the labels that selectors may read.
pub fn grant_labels(
    labels: Option<&BTreeMap<String, String>>,
) -> impl Iterator<Item = (&String, &String)> {
    let all = labels.into_iter().flatten();
    let grants = all.filter(|(name, _)| name.starts_with(names::GRANT_LABEL_PREFIX));
    grants.take(MAX_GRANT_LABELS)
}

/// Returns the labels of an Agent by which grants find it: each with its value, and each as "any
/// value".
pub(crate) fn labels_of(key: &ObjectRef, agent: &Agent) -> Vec<AgentLabel> {
    let label = |name: &String, value: Option<&String>| AgentLabel {
        namespace: key.namespace.clone(),
        name: name.clone(),
        value: value.cloned(),
    };
    grant_labels(agent.metadata.labels.as_ref())
        .flat_map(|(name, value)| [label(name, None), label(name, Some(value))])
        .collect()
}

/// Returns the labels by which a grant finds Agents. None if it has no selector that can be used.
pub(crate) fn labels_selected(key: &ObjectRef, grant: &ToolGrant) -> Vec<AgentLabel> {
    let selector = Selector::of(grant);
    selector.map_or_else(Vec::new, |selector| selector.labels(&key.namespace))
}

/// A selector that can be used.
#[derive(Clone, Debug)]
pub(crate) struct Selector<'a> {
    /// Never empty, sorted.
    terms: Vec<Term<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term<'a> {
    name: &'a str,
    /// `None`: any.
    values: Option<BTreeSet<&'a str>>,
}

impl<'a> Selector<'a> {
    /// Returns the selector of a grant. `None`: it has none that can be used.
    pub fn of(grant: &'a ToolGrant) -> Option<Self> {
        Self::read(grant.spec.agent_selector.as_ref()?).ok()
    }

    /// Reads a selector. The API server refuses invalid ones, so an error can come only from files.
    /// The finding's field is relative to the grant.
    pub fn read(selector: &'a AgentSelector) -> Result<Self, Finding> {
        let refused = |field: String, message: &str| {
            let field = format!("spec.agentSelector{field}");
            Err(Finding::new(field, Code::SelectorRefused, message))
        };
        const PREFIX: &str = "is not a label that grants may select by: write a key that begins with grants.toolcrib.dev/, which only users who may create ToolGrants can set on an Agent";
        let count = selector.match_labels.len() + selector.match_expressions.len();
        if count > MAX_TERMS {
            let message = format!("has more than {MAX_TERMS} labels: remove some");
            return refused(String::new(), &message);
        }
        let mut terms = Vec::with_capacity(count);
        for (name, value) in &selector.match_labels {
            if !name.starts_with(names::GRANT_LABEL_PREFIX) {
                return refused(".matchLabels".to_owned(), &format!("{name:.316} {PREFIX}"));
            }
            let values = Some(BTreeSet::from([&**value]));
            terms.push(Term { name, values });
        }
        for (index, term) in selector.match_expressions.iter().enumerate() {
            let field = |name: &str| format!(".matchExpressions[{index}].{name}");
            if !term.key.starts_with(names::GRANT_LABEL_PREFIX) {
                return refused(field("key"), &format!("{:.316} {PREFIX}", term.key));
            }
            let values: BTreeSet<&str> = term.values.iter().map(String::as_str).collect();
            let values = match (&*term.operator, values.is_empty()) {
                ("In", false) if values.len() <= MAX_VALUES => Some(values),
                ("In", false) => {
                    let message = format!("has more than {MAX_VALUES} values: remove some");
                    return refused(field("values"), &message);
                }
                ("Exists", true) => None,
                ("In", true) => return refused(field("values"), "is missing: In needs values"),
                ("Exists", false) => {
                    return refused(field("values"), "remove it: Exists takes no values");
                }
                _ => {
                    return refused(
                        field("operator"),
                        "write In or Exists: NotIn and DoesNotExist would select agents that lack the label",
                    );
                }
            };
            let name = &term.key;
            terms.push(Term { name, values });
        }
        if terms.is_empty() {
            return refused(
                String::new(),
                "is empty, and would select every agent: name a label under matchLabels",
            );
        }
        terms.sort();
        Ok(Self { terms })
    }

    pub fn matches(&self, agent: &Agent) -> bool {
        let labels: BTreeMap<&str, &str> = grant_labels(agent.metadata.labels.as_ref())
            .map(|(name, value)| (&**name, &**value))
            .collect();
        self.terms.iter().all(|term| {
            let value = labels.get(term.name);
            value.is_some_and(|value| match &term.values {
                Some(values) => values.contains(value),
                None => true,
            })
        })
    }

    /// Returns the labels of the term with the fewest values. Every Agent that the selector matches
    /// has one of them.
    pub fn labels(&self, namespace: &str) -> Vec<AgentLabel> {
        let width = |term: &&Term<'_>| term.values.as_ref().map_or(usize::MAX, BTreeSet::len);
        let narrowest = self.terms.iter().min_by_key(width);
        let label = |name: &str, value: Option<&str>| AgentLabel {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            value: value.map(str::to_owned),
        };
        narrowest.map_or_else(Vec::new, |term| match &term.values {
            Some(values) => values.iter().map(|it| label(term.name, Some(it))).collect(),
            None => vec![label(term.name, None)],
        })
    }
}

/// As in `kubectl -l`: `role=reader,team in (kelp,reeds),reviewed`.
impl fmt::Display for Selector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for term in &self.terms {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(term.name);
            match &term.values {
                None => {}
                Some(values) if values.len() == 1 => {
                    text.push('=');
                    text.extend(values.iter().copied());
                }
                Some(values) => {
                    let values: Vec<&str> = values.iter().copied().collect();
                    text.push_str(" in (");
                    text.push_str(&values.join(","));
                    text.push(')');
                }
            }
        }
        f.write_str(&toolcrib_bounds::cut(&text, SHOWN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn agent(labels: Value) -> Agent {
        let object = json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": "otter", "namespace": "pond", "labels": labels}, "spec": {},
        });
        serde_json::from_value(object).expect("an Agent")
    }

    fn selector(value: Value) -> AgentSelector {
        serde_json::from_value(value).expect("a selector")
    }

    fn role(operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": "grants.toolcrib.dev/role", "operator": operator, "values": values}]})
    }

    /// `expected`: the selector's text, and whether it matches; or the refused field.
    #[track_caller]
    fn check(value: Value, expected: Result<(&str, bool), &str>) {
        let otter = agent(json!({
            "grants.toolcrib.dev/role": "reader", "grants.toolcrib.dev/team": "reeds",
            "app": "otter",
        }));
        let selector = selector(value);
        let found = Selector::read(&selector);
        match (&found, expected) {
            (Ok(found), Ok((text, matches))) => {
                assert_eq!(
                    (&*found.to_string(), found.matches(&otter)),
                    (text, matches)
                );
                // An agent that it matches has one of its labels.
                let key = ObjectRef::new("pond", "otter");
                let labels = labels_of(&key, &otter);
                let mut index = found.labels("pond").into_iter();
                assert!(!matches || index.any(|label| labels.contains(&label)));
            }
            (Err(found), Err(field)) => {
                assert_eq!((&*found.field, found.code), (field, Code::SelectorRefused));
            }
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => panic!("{found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn a_selector_matches_labels_that_the_agent_has() {
        let (role_is, both) = ("grants.toolcrib.dev/role", "grants.toolcrib.dev/team");
        check(
            json!({"matchLabels": {role_is: "reader"}}),
            Ok(("grants.toolcrib.dev/role=reader", true)),
        );
        check(
            json!({"matchLabels": {role_is: "writer"}}),
            Ok(("grants.toolcrib.dev/role=writer", false)),
        );
        check(
            json!({"matchLabels": {role_is: "reader", both: "kelp"}}),
            Ok((
                "grants.toolcrib.dev/role=reader,grants.toolcrib.dev/team=kelp",
                false,
            )),
        );
        check(
            role("In", &["writer", "reader"]),
            Ok(("grants.toolcrib.dev/role in (reader,writer)", true)),
        );
        check(
            role("In", &["writer"]),
            Ok(("grants.toolcrib.dev/role=writer", false)),
        );
        check(role("Exists", &[]), Ok((role_is, true)));
        let missing = "grants.toolcrib.dev/lost";
        check(
            json!({"matchExpressions": [{"key": missing, "operator": "Exists"}]}),
            Ok((missing, false)),
        );
    }

    #[test]
    fn selectors_that_could_match_an_agent_without_the_label_are_refused() {
        check(json!({}), Err("spec.agentSelector"));
        check(
            json!({"matchLabels": {"app": "otter"}}),
            Err("spec.agentSelector.matchLabels"),
        );
        let key = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        check(key, Err("spec.agentSelector.matchExpressions[0].key"));
        let operator = "spec.agentSelector.matchExpressions[0].operator";
        check(role("NotIn", &["writer"]), Err(operator));
        check(role("DoesNotExist", &[]), Err(operator));
        let values = "spec.agentSelector.matchExpressions[0].values";
        check(role("In", &[]), Err(values));
        let many: Vec<String> = (0..=MAX_VALUES).map(|at| format!("v{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(role("In", &many), Err(values));
        let many: BTreeMap<String, String> = (0..=MAX_TERMS)
            .map(|at| (format!("grants.toolcrib.dev/l{at}"), String::new()))
            .collect();
        check(json!({"matchLabels": many}), Err("spec.agentSelector"));
        check(role("Exists", &["reader"]), Err(values));
    }

    #[test]
    fn labels_over_the_bound_do_not_count() {
        let name = |at: usize| format!("grants.toolcrib.dev/l{at:02}");
        let labels: BTreeMap<String, String> = (0..=MAX_GRANT_LABELS)
            .map(|at| (name(at), String::new()))
            .collect();
        let otter = agent(json!(labels));
        let has = |at: usize| {
            let selector = selector(json!({"matchLabels": {name(at): ""}}));
            Selector::read(&selector).is_ok_and(|selector| selector.matches(&otter))
        };
        assert!(has(MAX_GRANT_LABELS - 1));
        assert!(!has(MAX_GRANT_LABELS));
    }
}
