use super::super::conditions::Conditions;
use super::*;

fn whole(status: u16, body: &str) -> Answer {
    Answer::Whole {
        status,
        body: body.to_owned().into(),
    }
}

fn failed(status: u16, code: &str) -> Answer {
    whole(status, &format!(r#"{{"error":{{"code":"{code}"}}}}"#))
}

fn recorded(
    http_status: u16,
    error: Option<&str>,
    calls: &[(bool, Option<&str>)],
) -> RecordedRequest {
    let call = |&(executed, code): &(bool, Option<&str>)| RecordedCall {
        executed,
        code: code.map(str::to_owned),
    };
    RecordedRequest {
        http_status,
        error: error.map(str::to_owned),
        calls: calls.iter().map(call).collect(),
    }
}

/// A request while the upstream serves, after this number of changes of the grant.
fn after(changes: u32) -> Span {
    let conditions = Conditions::default();
    (0..changes).for_each(|_| conditions.turn_grant());
    let moment = conditions.now();
    Span {
        begin: moment,
        end: moment,
    }
}

/// A request during which the upstream went down.
fn beside_kill() -> Span {
    let conditions = Conditions::default();
    let begin = conditions.now();
    conditions.turn_upstream();
    Span {
        begin,
        end: conditions.now(),
    }
}

fn check(
    kind: Kind,
    span: Span,
    answer: &Answer,
    record: RecordedRequest,
    expected: Option<Verdict>,
) {
    let verdict = judge(kind, span, answer, Some(&record));
    match expected {
        Some(expected) => assert_eq!(verdict, expected, "{kind:?} {record:?}"),
        None => assert!(
            matches!(verdict, Verdict::Unexpected(_)),
            "{kind:?} {answer:?} {record:?}: {verdict:?}"
        ),
    }
}

const RAN: (bool, Option<&str>) = (true, None);
const DENIED: (bool, Option<&str>) = (false, Some("permission_denied"));
const ROUNDS: Kind = Kind::Rounds { count: 2, tool: 0 };

#[test]
fn a_turn_needs_its_answer_its_record_and_all_its_calls() {
    let (fine, ok) = (whole(200, "{}"), Some(Verdict::Expected));
    check(
        ROUNDS,
        after(0),
        &fine,
        recorded(200, None, &[RAN, RAN]),
        ok,
    );
    for record in [
        recorded(200, None, &[RAN]),
        recorded(200, None, &[RAN, DENIED]),
        recorded(200, None, &[RAN, (true, Some("http_5xx"))]),
        recorded(502, None, &[RAN, RAN]),
        recorded(200, Some("canceled"), &[RAN, RAN]),
    ] {
        check(ROUNDS, after(0), &fine, record, None);
    }
    let record = || recorded(200, None, &[RAN, RAN]);
    check(ROUNDS, after(0), &failed(502, UNREACHABLE), record(), None);
    check(ROUNDS, after(0), &Answer::Closed, record(), None);
}

#[test]
fn a_taken_tool_must_be_denied_and_a_given_one_must_run() {
    let ran = || recorded(200, None, &[RAN]);
    let denied = || recorded(200, None, &[DENIED]);
    let (fine, ok) = (whole(200, "{}"), || Some(Verdict::Expected));
    for (changes, of_ran, of_denied) in [
        (0, ok(), None),
        (1, ok(), ok()),
        (2, None, ok()),
        (3, ok(), ok()),
        (4, ok(), None),
    ] {
        check(Kind::Revocable, after(changes), &fine, ran(), of_ran);
        check(Kind::Revocable, after(changes), &fine, denied(), of_denied);
    }
}

#[test]
fn only_a_request_beside_a_kill_may_fail_and_only_with_its_code() {
    let down = || Some(Verdict::FailedWhileDown);
    let record = || recorded(502, Some(UNREACHABLE), &[]);
    let failure = failed(502, UNREACHABLE);
    check(Kind::NoCall, beside_kill(), &failure, record(), down());
    check(Kind::NoCall, after(0), &failure, record(), None);
    let other = failed(503, "overloaded");
    check(
        Kind::NoCall,
        beside_kill(),
        &other,
        recorded(503, Some("overloaded"), &[]),
        None,
    );
    let broken = Answer::Broken("reset".to_owned());
    check(Kind::NoCall, beside_kill(), &broken, record(), down());
    check(
        Kind::NoCall,
        beside_kill(),
        &broken,
        recorded(200, None, &[]),
        None,
    );
    let fine = whole(200, "{}");
    check(
        Kind::NoCall,
        beside_kill(),
        &fine,
        recorded(200, None, &[]),
        Some(Verdict::Expected),
    );
}

#[test]
fn a_stream_needs_its_end() {
    let record = || recorded(200, None, &[]);
    let end = whole(200, "data: {}\n\ndata: [DONE]\n\n");
    check(
        Kind::Streamed,
        after(0),
        &end,
        record(),
        Some(Verdict::Expected),
    );
    let cut = whole(200, "data: {}\n\n");
    check(Kind::Streamed, after(0), &cut, record(), None);
    check(Kind::Streamed, beside_kill(), &cut, record(), None);
    let said = recorded(200, Some(UNREACHABLE), &[]);
    check(
        Kind::Streamed,
        beside_kill(),
        &cut,
        said,
        Some(Verdict::FailedWhileDown),
    );
}

#[test]
fn a_client_that_hangs_up_is_recorded_as_canceled() {
    let canceled = || recorded(499, Some("canceled"), &[(true, Some("canceled"))]);
    let ok = || Some(Verdict::Expected);
    check(Kind::HungUp, after(0), &Answer::Closed, canceled(), ok());
    check(
        Kind::HungUp,
        after(0),
        &Answer::Closed,
        recorded(200, None, &[]),
        None,
    );
    check(Kind::HungUp, after(0), &whole(200, ""), canceled(), None);
    check(
        Kind::CanceledStream,
        after(0),
        &Answer::Closed,
        recorded(200, None, &[]),
        ok(),
    );
}

#[test]
fn a_refusal_has_its_status_and_code() {
    let ok = || Some(Verdict::Expected);
    let (answer, record) = (failed(400, "n_not_supported"), |code| {
        recorded(400, Some(code), &[])
    });
    check(
        Kind::TwoAnswers,
        after(0),
        &answer,
        record("n_not_supported"),
        ok(),
    );
    check(
        Kind::TwoAnswers,
        after(0),
        &answer,
        record("invalid_request"),
        None,
    );
    check(
        Kind::TwoAnswers,
        after(0),
        &whole(200, "{}"),
        record("n_not_supported"),
        None,
    );
    let refused = failed(401, "unauthorized");
    assert_eq!(
        judge(Kind::WrongToken, after(0), &refused, None),
        Verdict::Expected
    );
    let passed = judge(Kind::WrongToken, after(0), &whole(200, "{}"), None);
    assert!(matches!(passed, Verdict::Unexpected(_)));
    let invalid = failed(400, "invalid_request");
    assert_eq!(
        judge(Kind::InvalidBody, after(0), &invalid, None),
        Verdict::Expected
    );
    let half = judge(Kind::HalfBody, after(0), &Answer::Closed, None);
    assert_eq!(half, Verdict::Expected);
}
