//! The rules of the files in force, for the record: which lines are due.
//!
//! A load only replaces the set; the lines are written before the next line of the record, so a load
//! never waits for a disk. Invariant: a file of the record that names a rule has the rule's line, unless
//! the process was killed right after the load.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use toolcrib_manifest::RawJson;
use toolcrib_mediation::Scrubber;
use toolcrib_record::{Line, RulesLine};

use super::line::{escaped, to_json};
use crate::config::version::Version;

/// Most bytes of the rules of one line.
const MAX_RULES: usize = 64 * 1024;

/// The rules of the tools that have rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSet {
    namespace: String,
    agent: String,
    manifest: Option<String>,
    /// Lists of rules by tool. A list that is too long is in several parts.
    tools: BTreeMap<String, Vec<RawJson>>,
}

impl RuleSet {
    /// The rules of a version of the files, without secrets.
    pub fn of(version: &Version, scrubber: &Scrubber) -> Self {
        let tools = version.catalog.tools().iter();
        let ruled = tools.filter(|tool| !tool.tool.extension.rules.is_empty());
        let lists = ruled.map(|tool| {
            let texts = tool.tool.extension.rules.iter().map(|rule| {
                let text = serde_json::to_vec(rule).expect("texts and raw JSON always serialize");
                scrubber.scrubbed_json(escaped(text.into())).into_owned()
            });
            (tool.tool.name.clone(), parts(texts))
        });
        Self {
            namespace: version.agent.namespace.clone(),
            agent: version.agent.agent.clone(),
            manifest: version.agent.digest.as_ref().map(|it| it.manifest.clone()),
            tools: lists.collect(),
        }
    }
}

#[cfg(test)]
impl RuleSet {
    /// Tools, each with its list of rules.
    pub(super) fn of_tools<'a>(
        agent: &str,
        tools: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let list = |text: &str| vec![RawJson::from_text(text).unwrap()];
        let tools = tools.into_iter();
        Self {
            agent: agent.to_owned(),
            tools: tools
                .map(|(name, text)| (name.to_owned(), list(text)))
                .collect(),
            ..Self::default()
        }
    }
}

/// Joins rules into lists of at most [`MAX_RULES`] bytes, with at least one rule each.
fn parts(rules: impl Iterator<Item = Vec<u8>>) -> Vec<RawJson> {
    let mut lists: Vec<Vec<u8>> = Vec::new();
    for rule in rules {
        match lists
            .last_mut()
            .filter(|list| list.len() + rule.len() < MAX_RULES)
        {
            Some(list) => {
                list.push(b',');
                list.extend(rule);
            }
            None => lists.push([b"[".as_slice(), &rule].concat()),
        }
    }
    let texts = lists.into_iter().map(|mut list| {
        list.push(b']');
        String::from_utf8(list).expect("JSON is UTF-8")
    });
    let read = |text: String| RawJson::from_text(text).expect("a list of JSON objects");
    texts.map(read).collect()
}

/// The sets of a writer: the one in force, and the one whose lines are in the file.
#[derive(Debug, Default)]
pub(super) struct WrittenRules {
    in_force: Arc<RuleSet>,
    written: Arc<RuleSet>,
}

impl WrittenRules {
    pub fn load(&mut self, set: RuleSet) {
        self.in_force = Arc::new(set);
    }

    /// Makes all lines due: a new file has none of them.
    pub fn begin_file(&mut self) {
        self.written = Arc::default();
    }

    /// Takes the lines that are due, without the members of the chain.
    pub fn take_due(&mut self, pod: &str, pod_uid: Option<&str>) -> Vec<Vec<u8>> {
        if Arc::ptr_eq(&self.in_force, &self.written) {
            return Vec::new();
        }
        let set = self.in_force.clone();
        let before = std::mem::replace(&mut self.written, set.clone());
        let timestamp = jiff::Timestamp::now().to_string();
        let due = set.tools.iter();
        let due = due.filter(|(name, lists)| before.tools.get(*name) != Some(lists));
        due.flat_map(|(name, lists)| lists.iter().map(move |rules| (name, rules)))
            .map(|(name, rules)| {
                let line = Line::Rules(RulesLine {
                    namespace: set.namespace.as_str().into(),
                    agent: set.agent.as_str().into(),
                    pod: pod.into(),
                    pod_uid: pod_uid.map(Into::into),
                    timestamp: timestamp.as_str().into(),
                    manifest: set.manifest.as_deref().map(Into::into),
                    name: name.as_str().into(),
                    rules: Cow::Borrowed(rules),
                    chain: None,
                    seq: None,
                });
                escaped(to_json(&line).into()).into_owned()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tools: &[(&str, &str)]) -> RuleSet {
        RuleSet::of_tools("otter", tools.iter().copied())
    }

    fn due(rules: &mut WrittenRules) -> Vec<String> {
        let lines = rules.take_due("otter-0", None);
        let line = |line: &Vec<u8>| {
            let Ok(Line::Rules(line)) = Line::parse(line) else {
                panic!("{line:?}");
            };
            format!("{} {}", line.name, line.rules.get())
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn only_changed_rules_are_due_and_all_in_a_new_file() {
        let mut rules = WrittenRules::default();
        assert_eq!(due(&mut rules), Vec::<String>::new());
        rules.load(set(&[("desk.buy", "[1]"), ("desk.sell", "[2]")]));
        assert_eq!(due(&mut rules), ["desk.buy [1]", "desk.sell [2]"]);
        assert_eq!(due(&mut rules), Vec::<String>::new());
        rules.load(set(&[("desk.sell", "[3]")]));
        assert_eq!(due(&mut rules), ["desk.sell [3]"]);
        rules.begin_file();
        assert_eq!(due(&mut rules), ["desk.sell [3]"]);
    }

    #[test]
    fn long_lists_are_split_between_rules() {
        let rule = |length: usize| format!("{:?}", "x".repeat(length)).into_bytes();
        let rules = [rule(10), rule(MAX_RULES), rule(20), rule(30)];
        let lists = parts(rules.into_iter());
        let read = |list: &RawJson| serde_json::from_str::<Vec<String>>(list.get()).unwrap();
        let lengths: Vec<Vec<usize>> = lists
            .iter()
            .map(|list| read(list).iter().map(String::len).collect())
            .collect();
        assert_eq!(lengths, [vec![10], vec![MAX_RULES], vec![20, 30]]);
    }
}
