//! Tests of an Agent's conditions: pods, writes, suspensions, withheld tools and repeated facts.

use super::super::{ReportState, TokenFault, pod_warnings};
use super::*;

fn otter() -> ObjectRef {
    ObjectRef::new("pond", "otter")
}

/// An agent without tools and pods, whose objects are written.
fn facts(agent: &ObjectRef) -> AgentFacts<'_> {
    AgentFacts {
        policies: &[],
        agent,
        generation: Some(3),
        mode: Mode::Mediated,
        refusal: None,
        suspension: None,
        tools: &[],
        feeds: &[],
        withheld: &[],
        diagnostics: &[],
        network: &Network::Unrestricted,
        digests: None,
        kept: Vec::new(),
        written: WriteOutcome::Done,
        pods: Vec::new(),
        usage: None,
        budgets: Vec::new(),
        record: Vec::new(),
        created: None,
    }
}

fn pod(name: &str, report: ReportState, overdue: bool) -> PodState {
    PodState {
        name: name.into(),
        report,
        overdue,
        is_older_than_leader: false,
        withheld: Vec::new(),
        providers: Vec::new(),
        outages: Vec::new(),
        provider_outages: Vec::new(),
    }
}

#[test]
fn a_refused_provider_key_is_reported_until_new_files_load() {
    let refused = |report: ReportState| PodState {
        providers: vec!["reef refused its key with status 401".into()],
        ..pod("a", report, false)
    };
    let (in_force, ready, _) = check(vec![refused(ReportState::Loaded)]);
    assert_eq!(in_force, "True/InForce");
    assert_eq!(ready, "False/ProviderKeyRefused");
    let warnings = pod_warnings(&WriteOutcome::Done, &[refused(ReportState::Loaded)]);
    assert_eq!(
        warnings,
        [(
            "ProviderKeyRefused",
            "provider reef refused its key with status 401 (a); correct the key in the Secret \
             that the ModelProvider names: the pods load it by themselves"
                .to_owned()
        )]
    );
    // The pod has earlier files, perhaps with an earlier key: it is refused until it loads others.
    let (in_force, ready, _) = check(vec![refused(ReportState::Behind)]);
    assert_eq!(in_force, "False/Pending");
    assert_eq!(ready, "False/ProviderKeyRefused");
    let warnings = pod_warnings(&WriteOutcome::Done, &[refused(ReportState::Behind)]);
    assert!(
        warnings[0]
            .1
            .contains("have not loaded the present files yet")
    );
}

/// A new leader has no reports yet. It must not say that a fault is over that it has not heard of.
#[test]
fn a_fault_that_pods_reported_to_an_earlier_leader_stays_until_they_report_again() {
    let otter = otter();
    let now = Timestamp::UNIX_EPOCH;
    let status = |before: Option<&AgentStatus>, pods: Vec<PodState>| {
        let facts = AgentFacts {
            pods,
            ..facts(&otter)
        };
        agent(before, &facts, now)
    };
    let ready = |status: &AgentStatus| {
        let mut conditions = status.conditions.iter();
        let ready = conditions.find(|it| it.type_ == "Ready").expect("Ready");
        (
            format!("{}/{}", ready.status, ready.reason),
            ready.message.clone(),
        )
    };
    let unheard = PodState {
        is_older_than_leader: true,
        ..pod("a", ReportState::None, false)
    };
    let refused = PodState {
        providers: vec!["reef refused its key with status 401".into()],
        ..pod("a", ReportState::Loaded, false)
    };
    let down = PodState {
        outages: vec!["desk (connection refused)".into()],
        ..pod("a", ReportState::Loaded, false)
    };
    let without_model = PodState {
        provider_outages: vec!["reef (connection refused)".into()],
        ..pod("a", ReportState::Loaded, false)
    };
    for (fault, expected) in [
        (refused, "False/ProviderKeyRefused"),
        (without_model, "True/ProviderUnreachable"),
        (down, "True/ServiceUnreachable"),
    ] {
        let before = status(None, vec![fault]);
        assert_eq!(ready(&before).0, expected);
        let after = status(Some(&before), vec![unheard.clone()]);
        assert_eq!(ready(&after), ready(&before));
        // A new pod has reported to no earlier leader.
        let new = status(Some(&before), vec![pod("b", ReportState::None, false)]);
        assert_eq!(ready(&new).0, "True/Ready");
        let healthy = status(Some(&after), vec![pod("a", ReportState::Loaded, false)]);
        assert_eq!(ready(&healthy).0, "True/Ready");
    }
}

#[test]
fn a_service_without_an_answer_is_named_and_the_agent_stays_ready() {
    let silent = |outages: &[&str]| PodState {
        outages: outages.iter().map(ToString::to_string).collect(),
        ..pod("a", ReportState::Loaded, false)
    };
    let both = vec![
        silent(&["desk (connection refused)"]),
        silent(&["desk (connection refused)", "reed (timed out)"]),
        silent(&[]),
    ];
    let warnings = pod_warnings(&WriteOutcome::Done, &both);
    assert_eq!(
        warnings,
        [(
            "ServiceUnreachable",
            "the last calls got no answer from service desk (connection refused), reed (timed out): \
             `kubectl toolcrib audit --failed` shows the address"
                .to_owned()
        )]
    );
    // One pod more or less changes no text.
    assert_eq!(pod_warnings(&WriteOutcome::Done, &both[1..]), warnings);
    let (_, ready, _) = check(both);
    assert_eq!(ready, "True/ServiceUnreachable");
}

#[test]
fn a_model_provider_without_an_answer_is_named_before_services() {
    let silent = PodState {
        outages: vec!["desk (connection refused)".into()],
        provider_outages: vec!["reef (the name does not resolve)".into()],
        ..pod("a", ReportState::Loaded, false)
    };
    let warnings = pod_warnings(&WriteOutcome::Done, std::slice::from_ref(&silent));
    assert_eq!(
        warnings[0],
        (
            "ProviderUnreachable",
            "the last requests got no answer from model provider reef (the name does not resolve): \
             `kubectl toolcrib audit --requests` shows the address"
                .to_owned()
        )
    );
    assert_eq!(warnings[1].0, "ServiceUnreachable");
    let (_, ready, _) = check(vec![silent]);
    assert_eq!(ready, "True/ProviderUnreachable");
}

/// `InForce` and `Ready` as `status/reason`, and `running inForce [stale]`.
fn check(pods: Vec<PodState>) -> (String, String, String) {
    check_written(WriteOutcome::Done, pods)
}

fn check_written(written: WriteOutcome, pods: Vec<PodState>) -> (String, String, String) {
    check_suspended(None, written, pods)
}

fn check_suspended(
    suspension: Option<&Suspension>,
    written: WriteOutcome,
    pods: Vec<PodState>,
) -> (String, String, String) {
    let status = status_after(None, suspension, written, pods);
    let condition = |type_: &str| {
        let found = status.conditions.iter().find(|c| c.type_ == type_).unwrap();
        format!("{}/{}", found.status, found.reason)
    };
    let pods = status.pods.as_ref().unwrap();
    let pods = format!("{} {} {:?}", pods.running, pods.in_force, pods.stale);
    (condition("InForce"), condition("Ready"), pods)
}

fn status_after(
    before: Option<&AgentStatus>,
    suspension: Option<&Suspension>,
    written: WriteOutcome,
    pods: Vec<PodState>,
) -> AgentStatus {
    let digests = Digests {
        manifest: "m1".into(),
        credentials: "c1".into(),
    };
    let otter = otter();
    let facts = AgentFacts {
        suspension,
        digests: Some(&digests),
        written,
        pods,
        ..facts(&otter)
    };
    agent(before, &facts, Timestamp::UNIX_EPOCH)
}

#[test]
fn a_status_after_a_failed_first_write_names_no_earlier_write() {
    let failed = || WriteOutcome::Failed("secrets is forbidden".to_owned());
    let status = |before, written| status_after(before, None, written, Vec::new());
    let first = status(None, failed());
    assert!(!first.conditions.is_empty());
    assert!(!was_written(&first));
    let second = status(Some(&first), WriteOutcome::Done);
    assert!(was_written(&second));
    assert!(was_written(&status(Some(&second), failed())));
}

#[test]
fn tools_that_were_never_written_are_withheld_and_counted() {
    let otter = otter();
    let tool = |name: &str| ToolSummary {
        name: name.to_owned(),
        surface: ObjectRef::new("pond", "reed"),
        entry_digest: String::new(),
        rules: Vec::new(),
        approval: Vec::new(),
        would_deny: Vec::new(),
        tier: toolcrib_manifest::Tier::ReadOnly,
        read_only: true,
        grant: GrantSource {
            kind: Kind::ToolGrant,
            key: ObjectRef::new("pond", "reads"),
        },
        credential: CredentialKind::None,
        limits: None,
    };
    let tools = [tool("reed.fish"), tool("reed.look")];
    let earlier = WithheldItem {
        what: "reed.leap".to_owned(),
        code: Code::ToolNotFound,
        message: "no such tool".to_owned(),
    };
    let check = |before: Option<&AgentStatus>, written: WriteOutcome, expected: &[&str]| {
        let facts = AgentFacts {
            tools: &tools,
            withheld: std::slice::from_ref(&earlier),
            written,
            ..facts(&otter)
        };
        let status = agent(before, &facts, Timestamp::UNIX_EPOCH);
        let lines = status.withheld.iter();
        let lines: Vec<String> = lines
            .map(|item| format!("{} {}", item.name, item.reason))
            .collect();
        assert_eq!(lines, expected);
        assert_eq!(status.withheld_count, Some(count(expected.len())));
        let given = status.tool_count.unwrap_or_default() as usize;
        assert_eq!(given + expected.len(), 3, "each tool is counted once");
        status
    };
    let failed = || WriteOutcome::Failed("no right to read in namespace pond".to_owned());
    let all = [
        "reed.fish ApplyFailed",
        "reed.leap ToolNotFound",
        "reed.look ApplyFailed",
    ];
    let first = check(None, failed(), &all);
    let compiled = first.conditions.iter().find(|it| it.type_ == "Compiled");
    assert_eq!(
        compiled.map(|it| &*it.message),
        Some("no right to read in namespace pond")
    );
    let written = AgentStatus {
        manifest_digest: Some("m1".to_owned()),
        ..first
    };
    // The earlier files stay in force.
    check(Some(&written), failed(), &["reed.leap ToolNotFound"]);
    check(
        Some(&written),
        WriteOutcome::Done,
        &["reed.leap ToolNotFound"],
    );
}

fn summary(in_force: &str, ready: &str, pods: &str) -> (String, String, String) {
    (in_force.to_owned(), ready.to_owned(), pods.to_owned())
}

#[test]
fn in_force_depends_on_reports_of_pods_only() {
    use ReportState::{Behind, Loaded, NoMediator, None, Rejected, TokenRefused};
    let cases = [
        (vec![], summary("Unknown/NoPods", "True/NoPods", "0 0 []")),
        (
            vec![pod("a", None, false)],
            summary("Unknown/NoReport", "True/Ready", "1 0 []"),
        ),
        (
            vec![pod("a", None, true)],
            summary("Unknown/NoReport", "False/Stale", r#"1 0 ["a"]"#),
        ),
        (
            vec![pod("a", Loaded, true)],
            summary("True/InForce", "True/Ready", "1 1 []"),
        ),
        (
            vec![pod("a", Loaded, false), pod("b", Behind, false)],
            summary("False/Pending", "True/Ready", "2 1 []"),
        ),
        (
            vec![pod("a", Loaded, true), pod("b", Behind, true)],
            summary("False/Stale", "False/Stale", r#"2 1 ["b"]"#),
        ),
        (
            vec![pod("a", Loaded, true), pod("b", NoMediator, true)],
            summary("False/NoMediator", "False/NoMediator", "2 1 []"),
        ),
        (
            vec![pod("a", Rejected("hash mismatch".into()), false)],
            summary("False/ManifestRejected", "True/Ready", "1 0 []"),
        ),
        (
            vec![pod("a", Rejected("hash mismatch".into()), true)],
            summary(
                "False/ManifestRejected",
                "False/ManifestRejected",
                r#"1 0 ["a"]"#,
            ),
        ),
        (
            vec![
                pod("a", Loaded, true),
                pod("b", TokenRefused(TokenFault::EarlierAgent), true),
            ],
            summary("False/TokenReplaced", "False/TokenReplaced", "2 1 []"),
        ),
        (
            vec![pod("a", TokenRefused(TokenFault::Refused), false)],
            summary("False/TokenRefused", "False/TokenRefused", "1 0 []"),
        ),
    ];
    for (pods, expected) in cases {
        assert_eq!(check(pods.clone()), expected, "{pods:?}");
    }
}

#[test]
fn a_suspended_agent_is_ready_unless_a_pod_may_still_serve() {
    use ReportState::{Behind, Loaded};
    let suspension = Suspension {
        reason: Some("runaway loop".into()),
    };
    let check = |pods| check_suspended(Some(&suspension), WriteOutcome::Done, pods);
    assert_eq!(
        check(Vec::new()),
        summary("Unknown/NoPods", "True/Suspended", "0 0 []")
    );
    assert_eq!(
        check(vec![pod("a", Loaded, false), pod("b", Behind, false)]),
        summary("False/Pending", "True/Suspended", "2 1 []")
    );
    assert_eq!(
        check(vec![pod("a", Behind, true)]),
        summary("False/Stale", "False/Stale", r#"1 0 ["a"]"#)
    );
}

#[test]
fn a_fault_of_the_pods_is_a_warning_event_with_its_remedy() {
    use ReportState::{Behind, None, Rejected};
    let warnings = |written: WriteOutcome, pods: &[PodState]| {
        let warnings = pod_warnings(&written, pods).into_iter();
        warnings
            .map(|(reason, note)| format!("{reason}: {note}"))
            .collect::<Vec<String>>()
    };
    let pods = [
        pod("a", Rejected("hash mismatch".into()), true),
        pod("b", Behind, true),
        pod("c", Behind, true),
        pod("d", None, true),
    ];
    assert_eq!(
        warnings(WriteOutcome::Done, &pods),
        [
            "ManifestRejected: the mediator refuses the compiled files in a: hash mismatch; delete the pods, so that new ones get the mediator of the operator's release",
            "Stale: pod b has not loaded the compiled files in time (also c): the kubelet of its node has not refreshed the volume, or its mediator cannot reach the operator; `kubectl describe pod b` shows its events, `kubectl logs b -c toolcrib-mediator` its mediator's log",
            "Stale: pod d has not reported to the operator in time: its mediator does not run, waits for its files, or cannot reach the operator; `kubectl describe pod d` shows its events, `kubectl logs d -c toolcrib-mediator` its mediator's log",
        ]
    );
    let failed = WriteOutcome::Failed("no right".into());
    assert_eq!(warnings(failed, &pods), Vec::<String>::new());
    let young = [
        pod("a", Rejected("hash mismatch".into()), false),
        pod("b", Behind, false),
        pod("d", None, false),
    ];
    assert_eq!(warnings(WriteOutcome::Done, &young), Vec::<String>::new());
}

/// A pod may have mounted a Secret that another user wrote before the operator.
#[test]
fn reports_are_not_trusted_beside_an_object_of_another_owner() {
    let conflict = WriteOutcome::Conflict("Secret pond/toolcrib-otter-mediator".into());
    assert_eq!(
        check_written(conflict, vec![pod("a", ReportState::Loaded, false)]),
        summary("Unknown/Conflict", "False/Conflict", "1 0 []")
    );
}

#[test]
fn accepted_reports_every_mistake_of_the_agent_itself() {
    let found = |object: &Subject, code: Code, message: &str| Diagnostic {
        object: object.clone(),
        field: "spec".to_owned(),
        code,
        severity: code.severity(),
        message: message.to_owned(),
    };
    let otter = otter();
    let own = Subject::new(Kind::Agent, &otter);
    let grant = Subject::new(Kind::ToolGrant, &otter);
    let refusal = found(&own, Code::NoModelProvider, "no model");
    let diagnostics = [
        found(&own, Code::InvalidValue, "no unit"),
        found(&own, Code::TierAboveMaximum, "a warning"),
        found(&own, Code::SurfaceNotFound, "of another object"),
        refusal.clone(),
        found(&grant, Code::InvalidValue, "the grant's"),
    ];
    let accepted = |refusal: Option<&Diagnostic>, diagnostics: &[Diagnostic]| {
        let facts = AgentFacts {
            refusal,
            diagnostics,
            ..facts(&otter)
        };
        let Verdict(_, reason, message) = super::accepted(&facts);
        format!("{}: {message}", reason.0)
    };
    assert_eq!(
        accepted(Some(&refusal), &diagnostics),
        "NoModelProvider: Agent pond/otter: spec: no model; Agent pond/otter: spec: no unit"
    );
    assert_eq!(
        accepted(None, &diagnostics[..3]),
        "InvalidValue: Agent pond/otter: spec: no unit"
    );
    assert_eq!(accepted(None, &diagnostics[1..3]), "Accepted: ");
    let without_model = [
        found(&grant, Code::NoModel, "of another object"),
        found(&own, Code::NoModel, "requests are refused"),
    ];
    assert_eq!(
        accepted(None, &without_model),
        "Accepted: Agent pond/otter: spec: requests are refused"
    );
}

#[test]
fn an_agent_without_tools_and_model_is_not_ready() {
    let otter = otter();
    let own = Subject::new(Kind::Agent, &otter);
    let mut found = toolcrib_compile::Diagnostics::default();
    found.add(&own, "spec.models", Code::NoModel, "requests are refused");
    let found = found.into_sorted();
    let without_model = AgentFacts {
        diagnostics: &found,
        ..facts(&otter)
    };
    let Verdict(status, reason, message) = ready(&without_model, &[]);
    assert_eq!(status, ConditionStatus::False);
    assert_eq!(reason.0, "NoModel");
    assert!(message.contains("requests are refused"), "{message}");
    let Verdict(status, reason, _) = ready(&facts(&otter), &[]);
    assert_eq!((status, reason.0), (ConditionStatus::True, "NoPods"));
}

#[test]
fn an_agent_with_all_grants_withheld_is_not_ready() {
    let digests = Digests {
        manifest: "m1".into(),
        credentials: "c1".into(),
    };
    let withheld = [WithheldItem {
        what: "reed.fish".into(),
        code: Code::SecretNotLabelled,
        message: "label the Secret".into(),
    }];
    let otter = otter();
    let facts = AgentFacts {
        withheld: &withheld,
        digests: Some(&digests),
        ..facts(&otter)
    };
    let Verdict(status, reason, message) = ready(&facts, &[]);
    assert_eq!(
        (status, reason.0, &*message),
        (
            ConditionStatus::False,
            "AllWithheld",
            "everything that is granted is withheld (1 in status.withheld); first: \
             reed.fish: label the Secret"
        )
    );
}

#[test]
fn at_most_ten_stale_pods_are_named() {
    let many: Vec<PodState> = (10..22)
        .map(|number| pod(&format!("p{number}"), ReportState::Behind, true))
        .collect();
    let (_, _, pods) = check(many);
    let names: Vec<String> = (10..20).map(|number| format!("p{number}")).collect();
    assert_eq!(pods, format!("12 0 {names:?}"));
}

#[test]
fn unchanged_facts_give_an_equal_status() {
    let otter = otter();
    let facts = AgentFacts {
        written: WriteOutcome::Failed("why".into()),
        usage: Some(Usage {
            calls: 3,
            ..Usage::default()
        }),
        created: Some(Timestamp::from_second(5).unwrap()),
        ..facts(&otter)
    };
    let first = agent(None, &facts, Timestamp::from_second(10).unwrap());
    let second = agent(Some(&first), &facts, Timestamp::from_second(20).unwrap());
    assert_eq!(first, second);
    let since = first.usage.unwrap().since.unwrap();
    assert_eq!(since.0.as_second(), 5);
}
