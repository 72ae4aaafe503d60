//! The question about one call, and its line in the record.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use toolcrib_dialect::json;
use toolcrib_manifest::{
    AgentFile, LONGEST_QUESTION, LONGEST_QUESTION_ARGUMENTS, MOST_REDACTED, Question, RawJson,
};
use toolcrib_mediation::{ApprovalNeed, ManagedCall, ResultCode, Scrubber, ToolFailure};
use toolcrib_record::{Line, QuestionLine, QuestionRule};
use toolcrib_rules::CallIdentity;

use super::OPEN_FOR;
use crate::history::line::{LineContext, scrubbed};

/// A call in the form that a person reviews.
pub(super) struct ReviewedCall<'a> {
    call: &'a ManagedCall,
    agent: &'a AgentFile,
    pod: &'a str,
    /// Sorted by name, numbers as they are sent.
    arguments: String,
}

/// A question, and its line in the record.
pub(super) struct NewQuestion {
    pub question: Question,
    pub line: Vec<u8>,
}

impl<'a> ReviewedCall<'a> {
    pub(super) fn new(
        call: &'a ManagedCall,
        agent: &'a AgentFile,
        pod: &'a str,
    ) -> Result<Self, ToolFailure> {
        let arguments = call.arguments().get();
        // Before the work of sorting.
        if arguments.len() > 4 * LONGEST_QUESTION_ARGUMENTS {
            return Err(too_large(call));
        }
        let arguments = json::sorted(arguments).ok_or_else(|| {
            ToolFailure::refused(
                ResultCode::PermissionDenied,
                format!(
                    "{} was not called: its arguments cannot be reviewed by a person",
                    call.name()
                ),
            )
        })?;
        if arguments.len() > LONGEST_QUESTION_ARGUMENTS {
            return Err(too_large(call));
        }
        Ok(Self {
            call,
            agent,
            pod,
            arguments,
        })
    }

    /// The digest of the call in a question with this id.
    pub(super) fn digest(&self, id: &str) -> String {
        CallIdentity {
            question: id,
            namespace: &self.agent.namespace,
            agent: &self.agent.agent,
            pod: self.pod,
            tool: self.call.name(),
            entry: self.call.digest(),
            arguments: &self.arguments,
        }
        .digest()
    }

    /// Makes a question with a new id.
    pub(super) fn ask(
        &self,
        who: LineContext<'_>,
        need: &ApprovalNeed,
        scrubber: &Scrubber,
        now: Timestamp,
    ) -> Result<NewQuestion, ToolFailure> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|_| {
            ToolFailure::refused(
                ResultCode::RequestFailed,
                format!(
                    "{} was not called: the system gives no random bytes",
                    self.call.name()
                ),
            )
        })?;
        let id = hex::encode(id);
        let shown = scrubber.scrubbed_json(self.arguments.as_bytes().into());
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let redacted = redacted(&self.arguments, &shown);
        let question = Question {
            call_digest: self.digest(&id),
            id,
            tool: self.call.name().to_owned(),
            entry: self.call.digest().to_owned(),
            arguments: shown,
            redacted,
            rules: need.rules.clone(),
            asked_at: now.to_string(),
            open_for_ms: u64::try_from(OPEN_FOR.as_millis()).unwrap_or(u64::MAX),
        };
        if question.arguments.len() > LONGEST_QUESTION_ARGUMENTS
            || body(&question).len() > LONGEST_QUESTION
        {
            return Err(too_large(self.call));
        }
        let line = self.line(who, need, &question, now);
        let line = scrubbed(&line, scrubber);
        Ok(NewQuestion { question, line })
    }

    fn line<'l>(
        &'l self,
        who: LineContext<'l>,
        need: &'l ApprovalNeed,
        question: &'l Question,
        now: Timestamp,
    ) -> Line<'l> {
        let rule = |rule: &toolcrib_manifest::AskingRule| QuestionRule {
            grant: rule.grant.clone(),
            rule: rule.rule.clone(),
        };
        let arguments = RawJson::from_text(question.arguments.clone());
        let expires_at = now.saturating_add(SignedDuration::try_from(OPEN_FOR).unwrap_or_default());
        Line::Question(QuestionLine {
            request_id: who.request_id.into(),
            call_id: self.call.id().in_request(who.request_id).into(),
            agent_id: who.agent_id.into(),
            namespace: who.namespace.into(),
            pod: who.pod.into(),
            pod_uid: Some(self.pod.into()),
            path: who.path.word(),
            timestamp: now.to_string().into(),
            question: question.id.as_str().into(),
            call_digest: question.call_digest.as_str().into(),
            name: question.tool.as_str().into(),
            entry: question.entry.as_str().into(),
            tier: self.call.tier().name().into(),
            arguments: Cow::Owned(arguments.expect("scrubbed JSON is JSON")),
            redacted: Cow::Borrowed(&question.redacted),
            rules: need.rules.iter().map(rule).collect::<Vec<_>>().into(),
            policies: Cow::Borrowed(&need.policies),
            expires_at: expires_at.unwrap_or(now).to_string().into(),
            chain: None,
            seq: None,
        })
    }
}

/// The body of the request with a question.
pub fn body(question: &Question) -> Vec<u8> {
    serde_json::to_vec(question).expect("texts and numbers always serialize")
}

fn too_large(call: &ManagedCall) -> ToolFailure {
    ToolFailure::refused(
        ResultCode::ApprovalTooLarge,
        format!(
            "{} was not called: it needs an approval, and a person can review at most \
             {LONGEST_QUESTION_ARGUMENTS} bytes of arguments",
            call.name()
        ),
    )
}

/// Returns JSON pointers to the values of `whole` that differ in `shown`.
fn redacted(whole: &str, shown: &str) -> Vec<String> {
    if whole == shown {
        return Vec::new();
    }
    let read = |text| serde_json::from_str(text).unwrap_or(Value::Null);
    let mut found = Vec::new();
    differing(&read(whole), &read(shown), &mut String::new(), &mut found);
    found
}

fn differing(whole: &Value, shown: &Value, at: &mut String, found: &mut Vec<String>) {
    if whole == shown || found.len() >= MOST_REDACTED {
        return;
    }
    let length = at.len();
    let mut enter = |name: &str, whole: &Value, shown: &Value, found: &mut Vec<String>| {
        at.push('/');
        at.push_str(&name.replace('~', "~0").replace('/', "~1"));
        differing(whole, shown, at, found);
        at.truncate(length);
    };
    match (whole, shown) {
        (Value::Object(whole), Value::Object(shown)) if whole.keys().eq(shown.keys()) => {
            for ((name, whole), shown) in whole.iter().zip(shown.values()) {
                enter(name, whole, shown, found);
            }
        }
        (Value::Array(whole), Value::Array(shown)) if whole.len() == shown.len() => {
            for (index, (whole, shown)) in whole.iter().zip(shown).enumerate() {
                enter(&index.to_string(), whole, shown, found);
            }
        }
        _ => found.push(at.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_secrets_are_named() {
        let whole = r#"{"a":{"b/c":["x","hunter22"],"d":12345678},"hunter22":1,"n":1}"#;
        let check = |secrets: &[&str], places: &[&str]| {
            let shown =
                Scrubber::new(secrets.iter().copied()).scrubbed_json(whole.as_bytes().into());
            assert_eq!(
                redacted(whole, std::str::from_utf8(&shown).unwrap()),
                places
            );
        };
        check(&[], &[]);
        check(&["12345678"], &["/a/d"]);
        // A name that was replaced: the object as a whole.
        check(&["hunter22"], &[""]);
        let whole = r#"{"a":{"b/c":["x","hunter22"],"d":12345678}}"#;
        let shown = Scrubber::new(["hunter22"]).scrubbed_json(whole.as_bytes().into());
        let shown = std::str::from_utf8(&shown).unwrap();
        assert_eq!(redacted(whole, shown), ["/a/b~1c/1"]);
    }
}
