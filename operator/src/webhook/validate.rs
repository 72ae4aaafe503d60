//! Validates objects of our kinds with the checks that a CRD's schema cannot express.
//!
//! Denied are objects that must never be stored: nested deeper than compile reads, over the memory
//! limit of one object, with an address that no agent may reach, or with a schema that refers to
//! another host or takes too long to check. Every other mistake is a warning, since the referenced
//! object may be created a moment later, and compile withholds the tool meanwhile. Warnings also
//! name the agents that gain or lose tools by the change.
//!
//! Invariants: nothing is stored or sent (`sideEffects: None`), so a dry run is the same. No
//! guarantee depends on this webhook: without it (`failurePolicy: Ignore`) compile finds every
//! mistake. Only mistakes that the change introduces are denied: a stored object stays editable and
//! deletable.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use toolcrib_compile::{
    Code, Compilation, Diagnostic, Effect, Fate, Inputs, Kind, ObjectRef, Settings, Severity,
    Subject, check_defaults, check_grant, check_policy, check_provider, check_surface, compile,
    plan_compiled,
};

use super::agents::Agents;
use super::meter::Outcome;
use super::object::{self, Object, Unreadable};
use super::related_objects::{RelatedObjects, Unavailable, read_related};
use super::review::{AdmissionResponse, Request};

/// Time for reading the related objects. Less than the webhook's timeout: an answer without the
/// comparison is better than none.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of one warning in bytes; the API server cuts at 256.
const LINE: usize = 250;
/// Limit of the number of warnings; the API server drops them all if they exceed 4096 bytes.
const LINES: usize = 14;

/// Mistakes that no other object can correct; a change that introduces one is denied.
const DENIED: [Code; 4] = [
    Code::AddressRefused,
    Code::HeaderMappingRefused,
    Code::RemoteReference,
    Code::SchemaTooLarge,
];
/// Findings about Secrets and ConfigMaps, which the webhook does not read.
const NOT_KNOWN_HERE: [Code; 3] = [
    Code::SecretUnknown,
    Code::DescriptorUnknown,
    Code::CaNotFound,
];

/// The change that a review asks about.
struct ObjectChange {
    kind: Kind,
    key: ObjectRef,
    old: Option<Object>,
    new: Option<Object>,
}

/// Validates the object of a request, compared with the related objects of the cluster.
pub async fn validate(
    client: &Client,
    agents: &Agents,
    settings: &Arc<Settings>,
    request: &Request,
) -> (AdmissionResponse, Outcome) {
    let change = match ObjectChange::or_answer(request) {
        Ok(change) => change,
        Err(answered) => return answered,
    };
    let ObjectChange {
        kind,
        key,
        old,
        new,
    } = &change;
    let subject = Subject::new(*kind, key);
    let (old, new) = (old.as_ref(), new.as_ref());
    let found = read_related(client, agents, settings, &subject, old, new);
    let found = match tokio::time::timeout(COMPARE_TIMEOUT, found).await {
        Ok(found) => found,
        Err(_) => Err(Unavailable::TooSlow),
    };
    if let Err(why) = &found {
        tracing::info!(object = %subject, %why, "change not compared");
    }
    // Up to hundreds of compilations of a millisecond each must not delay other requests, so they
    // run on a blocking thread.
    let settings = Arc::clone(settings);
    let verdict = move || verdict(&change, found.as_ref(), &settings);
    let verdict = tokio::task::spawn_blocking(verdict).await;
    match verdict {
        Ok(verdict) => verdict,
        Err(error) => {
            tracing::error!(%error, "validation panicked");
            (AdmissionResponse::Allowed, Outcome::Passed)
        }
    }
}

/// Validates the object of a request by itself: no other object is read, no agent is affected.
pub fn validate_alone(request: &Request) -> (AdmissionResponse, Outcome) {
    match ObjectChange::or_answer(request) {
        Ok(change) => {
            let settings = Settings::default();
            let alone = RelatedObjects::only(Inputs::offline(settings.clone()));
            verdict(&change, Ok(&alone), &settings)
        }
        Err(answered) => answered,
    }
}

/// The validation that a request needs.
enum ValidationScope {
    Compare(ObjectChange),
    Nothing,
    /// The object was over the limit of one object before the change, and still is.
    StillTooExpensive(Unreadable),
}

impl ObjectChange {
    /// Returns the change to validate, or the answer if there is nothing to validate.
    fn or_answer(request: &Request) -> Result<Self, (AdmissionResponse, Outcome)> {
        match Self::read(request) {
            Ok(ValidationScope::Compare(change)) => Ok(change),
            Ok(ValidationScope::Nothing) => Err((AdmissionResponse::Allowed, Outcome::Passed)),
            Ok(ValidationScope::StillTooExpensive(why)) => {
                let lines = capped(vec![why.to_string()]);
                Err((AdmissionResponse::Warned(lines), Outcome::Warned))
            }
            Err(why) => Err(denied(Outcome::Malformed, &why.to_string())),
        }
    }

    fn read(request: &Request) -> Result<ValidationScope, Unreadable> {
        let Some(kind) = object::kind(&request.kind.kind) else {
            return Ok(ValidationScope::Nothing);
        };
        let read = |object: &Option<Box<serde_json::value::RawValue>>| {
            let text = object.as_ref().map(|object| object.get());
            text.filter(|text| *text != "null")
                .map(|text| Object::read(kind, text))
        };
        // An undecodable old version granted nothing.
        let old = read(&request.old_object);
        let stored = matches!(old, Some(Err(_)));
        let old = old.and_then(Result::ok);
        let new = match read(&request.object) {
            // The object is stored already; the change may concern its finalizers or labels.
            Some(Err(why @ Unreadable::TooExpensive { .. })) if stored => {
                return Ok(ValidationScope::StillTooExpensive(why));
            }
            Some(Err(_)) if stored => return Ok(ValidationScope::Nothing),
            new => new.transpose()?,
        };
        let same = matches!((&old, &new), (Some(old), Some(new)) if new.same_spec(old));
        if same || (old.is_none() && new.is_none()) {
            return Ok(ValidationScope::Nothing);
        }
        let key = ObjectRef::new(request.namespace.clone(), request.name.clone());
        Ok(ValidationScope::Compare(Self {
            kind,
            key,
            old,
            new,
        }))
    }
}

fn verdict(
    change: &ObjectChange,
    found: Result<&RelatedObjects, &Unavailable>,
    settings: &Settings,
) -> (AdmissionResponse, Outcome) {
    let subject = Subject::new(change.kind, &change.key);
    let alone = RelatedObjects::only(Inputs::offline(settings.clone()));
    let related = found.unwrap_or(&alone);
    let after = related.with(change.new.as_ref());
    let left_out = change.old.as_ref().and_then(Object::left_out);
    let before = related.before(&subject, change.old.as_ref());
    let findings = findings(&after, change, &subject);
    let known: BTreeSet<Diagnostic> = self::findings(&before, change, &subject)
        .into_iter()
        .collect();
    let fatal = |finding: &&Diagnostic| DENIED.contains(&finding.code) && !known.contains(*finding);
    if let Some(finding) = findings.iter().find(fatal) {
        let text = format!("{}: {}", finding.code, finding.located());
        return denied(Outcome::Refused, &text);
    }
    // Without related objects, every reference is missing, so findings and differences mean nothing.
    match found {
        Ok(_) => {}
        Err(why @ Unavailable::TooMany { .. }) => {
            let line = format!(
                "the webhook did not compute who gains or loses tools: {why}: run `kubectl toolcrib plan -f FILE`"
            );
            return (
                AdmissionResponse::Warned(capped(vec![line])),
                Outcome::Warned,
            );
        }
        // These reasons are of no use to the person who applies the object.
        Err(
            Unavailable::NotSynced
            | Unavailable::TooSlow
            | Unavailable::Api(_)
            | Unavailable::Panicked(_),
        ) => {
            return (AdmissionResponse::Allowed, Outcome::Passed);
        }
    }
    // The controller decides later whether the new version fits into the memory budget.
    let out = left_out.filter(|_| change.new.is_some());
    let out = out.map(|reason| format!("{}: until now {reason}", Code::TooExpensive));
    let mut lines: Vec<String> = out.into_iter().collect();
    lines.extend(
        findings
            .iter()
            .filter(|finding| !NOT_KNOWN_HERE.contains(&finding.code))
            .map(|finding| format!("{}: {}", finding.code, finding.located())),
    );
    lines.extend(differences(&before, &after, related, change.kind));
    if lines.is_empty() {
        return (AdmissionResponse::Allowed, Outcome::Passed);
    }
    (AdmissionResponse::Warned(capped(lines)), Outcome::Warned)
}

/// Returns the findings about the object itself, errors first.
fn findings(inputs: &Inputs, change: &ObjectChange, subject: &Subject) -> Vec<Diagnostic> {
    let key = &change.key;
    let all = match change.kind {
        Kind::Surface => check_surface(inputs, key).map(|report| report.diagnostics),
        Kind::ToolGrant => check_grant(inputs, key).map(|report| report.diagnostics),
        Kind::ToolDefaults => check_defaults(inputs, key).map(|report| report.diagnostics),
        Kind::ModelProvider => check_provider(inputs, key).map(|report| report.diagnostics),
        Kind::Agent => compile(inputs, key).map(|compilation| compilation.diagnostics),
        Kind::ClusterToolPolicy => check_policy(inputs, key).map(|report| report.diagnostics),
        Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Namespace => None,
    };
    let mut own: Vec<Diagnostic> = all.unwrap_or_default();
    own.retain(|finding| finding.object == *subject);
    own.sort_by_key(|finding| match finding.severity {
        Severity::Error => 0,
        Severity::Warning => 1,
    });
    own
}

/// Lists what each agent gains or loses, and the tools of a grant that it does not get, such as for
/// their tier. Losses come first, because they surprise more.
fn differences(
    before: &Inputs,
    after: &Inputs,
    related: &RelatedObjects,
    changed: Kind,
) -> Vec<String> {
    // One line for each changed tool of each agent, of which a few are shown.
    let mut lines: Vec<(u8, String)> = Vec::new();
    for agent in &related.affected {
        let (old, new) = (compile(before, agent), compile(after, agent));
        // The findings about an Agent itself have its withheld tools already.
        if changed == Kind::ToolGrant {
            lines.extend(withheld(agent, old.as_ref(), new.as_ref()));
        }
        let Some(plan) = plan_compiled(after, agent, old.as_ref(), new.as_ref()) else {
            continue;
        };
        if plan.fate == Fate::Deleted {
            lines.push((
                0,
                format!("Agent {agent} goes: its pods are denied everything"),
            ));
            continue;
        }
        if let Some(suspended) = plan.suspended {
            lines.push((0, suspended));
        }
        if let Some(refused) = plan.refused {
            lines.push((0, format!("Agent {agent} is not accepted: {refused}")));
        }
        for change in &plan.changes {
            let rank = match change.effect {
                Effect::Loss => 1,
                Effect::Gain => 3,
                Effect::Change => 4,
            };
            let line = format!("Agent {agent} {change}");
            lines.push((rank, toolcrib_bounds::cut(&line, LINE).into_owned()));
        }
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Lists the tools that only the new compilation withholds, with the rank of their lines.
fn withheld(
    agent: &ObjectRef,
    old: Option<&Compilation>,
    new: Option<&Compilation>,
) -> Vec<(u8, String)> {
    let known = old.into_iter().flat_map(|old| &old.withheld);
    let known: BTreeSet<&str> = known.map(|item| &*item.what).collect();
    let items = new.into_iter().flat_map(|new| &new.withheld);
    let items = items
        .filter(|item| !NOT_KNOWN_HERE.contains(&item.code) && !known.contains(item.what.as_str()));
    items
        .map(|item| {
            let line = format!(
                "{}: Agent {agent} does not get {}: {}",
                item.code, item.what, item.message
            );
            (2, toolcrib_bounds::cut(&line, LINE).into_owned())
        })
        .collect()
}

/// Cuts warnings to the number and length that the API server passes on. Control characters, which
/// it refuses, become spaces.
fn capped(lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(LINES);
    let mut shown: Vec<String> = lines
        .into_iter()
        .take(LINES)
        .map(|line| {
            let line: String = format!("toolcrib: {line}")
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            toolcrib_bounds::cut(&line, LINE).into_owned()
        })
        .collect();
    if more > 0 {
        shown.push(format!(
            "toolcrib: and {more} more: `kubectl toolcrib plan -f` shows all"
        ));
    }
    shown
}

fn denied(outcome: Outcome, why: &str) -> (AdmissionResponse, Outcome) {
    (
        AdmissionResponse::Denied(format!("toolcrib: {why}")),
        outcome,
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};
    use toolcrib_compile::ServiceFacts;

    use super::*;

    fn reading(kind: &str, old: Value, new: Value) -> Result<ValidationScope, Unreadable> {
        let request = json!({
            "uid": "u-7", "operation": "UPDATE", "namespace": "pond", "name": "reed",
            "kind": {"kind": kind}, "oldObject": old, "object": new,
        });
        ObjectChange::read(&serde_json::from_str(&request.to_string()).unwrap())
    }

    fn surface(spec: Value) -> Value {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
            "metadata": {"name": "reed", "namespace": "pond"}, "spec": spec,
        })
    }

    fn tool(schema: Value) -> Value {
        surface(
            json!({"url": "http://reed.example", "descriptor": {"version": 2, "tools": [
                {"name": "look", "inputSchema": schema, "http": {"method": "GET", "path": "/"}},
            ]}}),
        )
    }

    fn deep(levels: usize) -> Value {
        let text = format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        serde_json::from_str(&text).unwrap()
    }

    /// Returns a Surface of few bytes that is over the memory limit of one object.
    fn heavy() -> Value {
        let lists = vec![json!([]); 300_000];
        surface(
            json!({"url": "http://reed.example", "descriptor": {"version": 2, "filler": lists}}),
        )
    }

    /// Returns the message of the denial; empty if the change is admitted.
    fn check(old: Value, new: Value) -> String {
        match reading("Surface", old, new) {
            Err(why) => why.to_string(),
            Ok(ValidationScope::Nothing | ValidationScope::StillTooExpensive(_)) => String::new(),
            Ok(ValidationScope::Compare(change)) => {
                match verdict(&change, Err(&Unavailable::NotSynced), &Settings::default()).0 {
                    AdmissionResponse::Denied(why) | AdmissionResponse::Later(why) => why,
                    AdmissionResponse::Allowed
                    | AdmissionResponse::Warned(_)
                    | AdmissionResponse::Patched(_) => String::new(),
                }
            }
        }
    }

    #[test]
    fn only_mistakes_that_must_never_be_stored_are_denied() {
        let plain = tool(json!({"type": "object"}));
        assert_eq!(check(Value::Null, plain.clone()), "");
        assert_eq!(check(Value::Null, tool(json!({"type": "nonsense"}))), "");
        for (new, word) in [
            (
                surface(json!({"url": "http://169.254.169.254/latest"})),
                "AddressRefused",
            ),
            (
                tool(json!({"$ref": "http://elsewhere.example/s.json"})),
                "RemoteReference",
            ),
            (tool(json!({"properties": deep(60)})), "SchemaTooLarge"),
            (tool(deep(100)), "nested deeper"),
            (surface(json!({"url": 5})), "cannot be read"),
            (heavy(), "TooExpensive: it takes"),
        ] {
            let why = check(plain.clone(), new.clone());
            assert!(why.contains(word), "{word}: {why}");
            // A stored object stays editable and deletable.
            assert_eq!(check(new.clone(), plain.clone()), "");
            let mut labelled = new.clone();
            labelled["metadata"]["labels"] = json!({"a": "b"});
            assert_eq!(check(new.clone(), labelled), "");
            assert_eq!(check(new, Value::Null), "");
        }
    }

    #[test]
    fn a_change_with_too_many_related_objects_is_admitted_with_a_warning() {
        let Ok(ValidationScope::Compare(change)) = reading("Surface", Value::Null, tool(json!({})))
        else {
            panic!("is read");
        };
        let what = "objects and lists are affected";
        let over = Unavailable::TooMany { what, most: 2000 };
        let AdmissionResponse::Warned(lines) = verdict(&change, Err(&over), &Settings::default()).0
        else {
            panic!("is warned of");
        };
        assert_eq!(
            lines,
            [
                "toolcrib: the webhook did not compute who gains or loses tools: over 2000 objects and lists are affected: run `kubectl toolcrib plan -f FILE`"
            ]
        );
    }

    #[test]
    fn patterns_that_would_expand_are_not_compiled() {
        let properties: serde_json::Map<String, Value> = (0..400)
            .map(|at| {
                (
                    format!("p{at}"),
                    json!({"pattern": format!(r"\p{{L}}{{60}}k{at}")}),
                )
            })
            .collect();
        let bomb = tool(json!({"properties": properties}));
        let Ok(ValidationScope::Compare(change)) = reading("Surface", Value::Null, bomb) else {
            panic!("is read");
        };
        let alone = RelatedObjects::only(Inputs::offline(Settings::default()));
        let mut answer = None;
        let used = allocation_counter::measure(|| {
            answer = Some(verdict(&change, Ok(&alone), &Settings::default()).0)
        });
        let Some(AdmissionResponse::Warned(lines)) = answer else {
            panic!("is warned of: {answer:?}");
        };
        assert!(lines[0].contains("UnsupportedPattern"), "{lines:?}");
        assert!(used.bytes_max < 4 * 1024 * 1024, "{used:?}");
    }

    #[test]
    fn an_object_that_stays_over_its_budget_is_admitted_with_a_warning() {
        let mut labelled = heavy();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        let Ok(ValidationScope::StillTooExpensive(why)) = reading("Surface", heavy(), labelled)
        else {
            panic!("expected StillTooExpensive");
        };
        let why = why.to_string();
        assert!(why.starts_with("TooExpensive: it takes"), "{why}");
        assert!(why.ends_with("make it smaller, or split it"), "{why}");
    }

    #[test]
    fn an_object_that_the_controller_has_no_room_for_is_admitted_with_a_warning() {
        let mut old = tool(json!({"type": "object"}));
        old["metadata"]["generation"] = json!(4);
        old["status"] = json!({"conditions": [{
            "type": "Accepted", "status": "False", "reason": "TooExpensive", "message": "no room",
            "observedGeneration": 4, "lastTransitionTime": "2026-01-02T03:04:05Z",
        }]});
        let mut new = tool(json!({"type": "object", "properties": {}}));
        new["metadata"]["generation"] = json!(5);
        let alone = RelatedObjects::only(Inputs::offline(Settings::default()));
        let warned = |new: Value| match reading("Surface", old.clone(), new) {
            Ok(ValidationScope::Compare(change)) => {
                match verdict(&change, Ok(&alone), &Settings::default()).0 {
                    AdmissionResponse::Warned(lines) => lines,
                    AdmissionResponse::Allowed
                    | AdmissionResponse::Patched(_)
                    | AdmissionResponse::Denied(_)
                    | AdmissionResponse::Later(_) => Vec::new(),
                }
            }
            _ => Vec::new(),
        };
        let lines = warned(new);
        assert_eq!(lines[0], "toolcrib: TooExpensive: until now no room");
        assert_eq!(warned(Value::Null), Vec::<String>::new());
    }

    #[test]
    fn hosts_are_checked_as_the_installation_has_them() {
        #[derive(Parser)]
        struct Flags {
            #[command(flatten)]
            args: super::super::Args,
        }
        let flags = Flags::parse_from([
            "webhook",
            "--mediator-image=example.test/mediator:1",
            "--namespace=den",
            "--link-service=link",
            "--webhook-service=hook",
            "--refused-hosts=vault.test",
            "--cluster-domain=reef.example",
        ]);
        let set = flags.args.compile_settings();
        let answer_to = |url: &str, settings: &Settings| {
            let new = surface(json!({"url": url, "descriptor": {"version": 2, "tools": []}}));
            let Ok(ValidationScope::Compare(change)) = reading("Surface", Value::Null, new) else {
                panic!("is read");
            };
            let mut inputs = Inputs::offline(settings.clone());
            let news = ServiceFacts {
                external_name: true,
                ..ServiceFacts::default()
            };
            inputs.set_service(ObjectRef::new("lake", "news"), news);
            match verdict(&change, Ok(&RelatedObjects::only(inputs)), settings).0 {
                AdmissionResponse::Denied(why) => why,
                AdmissionResponse::Warned(lines) => lines.join("; "),
                other @ (AdmissionResponse::Allowed
                | AdmissionResponse::Patched(_)
                | AdmissionResponse::Later(_)) => {
                    format!("{other:?}")
                }
            }
        };
        for (url, code) in [
            ("https://vault.test", "AddressRefused"),
            ("https://link.den.svc", "AddressRefused"),
            ("https://hook.den.svc.reef.example", "AddressRefused"),
            ("http://news.lake.svc.reef.example", "ExternalNameRefused"),
        ] {
            let plain = answer_to(url, &Settings::default());
            assert!(!plain.contains(code), "{url}: {plain}");
            let set = answer_to(url, &set);
            assert!(set.contains(code), "{url}: {set}");
        }
    }

    #[test]
    fn lines_are_capped_in_number_and_length() {
        let lines: Vec<String> = (0..100)
            .map(|n| format!("{n}\n{}", "é".repeat(500)))
            .collect();
        let shown = capped(lines);
        assert_eq!(shown.len(), LINES + 1);
        assert!(shown[LINES].contains("86 more"), "{}", shown[LINES]);
        let bytes: usize = shown.iter().map(String::len).sum();
        assert!(bytes < 4096, "{bytes}");
        assert!(
            shown
                .iter()
                .all(|line| line.len() <= 256 && !line.contains('\n'))
        );
    }
}
