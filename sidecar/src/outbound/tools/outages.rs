//! The services from which calls get no answer, for the report over the link.
//!
//! Here: counting, from the results of calls. Not here: model providers, and feeds.
//!
//! Invariants: a service is reported after [`FAILURES`] calls in a row without an answer, and until
//! one gets an answer, whatever it says. The report of one service changes at most once in [`STEADY`],
//! so a service that comes and goes causes few writes of a status. Memory is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use toolcrib_manifest::{Auth, Execution, MOST_OUTAGES, ServiceOutage};
use toolcrib_mediation::{Certainty, ConnectionCause, ConnectionFailure, ResultCode, ToolFailure};

use crate::outbound::error;

/// Number of calls in a row without an answer after which a service is reported.
const FAILURES: u32 = 3;
/// Shortest time between two changes of what is reported of a service.
const STEADY: Duration = Duration::from_secs(60);
/// Limits the services that are counted. Files have fewer; those of earlier files are dropped with
/// the next report.
const MOST_COUNTED: usize = 1024;

/// The services that did not answer lately.
#[derive(Debug, Default)]
pub struct Outages {
    services: Mutex<BTreeMap<Service, Outage>>,
    change: Notify,
}

/// A service at an address: after a correction of the address, nothing is known of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Service {
    name: String,
    base_url: String,
}

/// The calls of a service since its last answer.
#[derive(Debug)]
struct Outage {
    calls: u32,
    /// Why the last of them got no answer.
    cause: Cause,
    reported: Option<Cause>,
    /// When `reported` changed.
    changed: Option<Instant>,
}

/// Why a call got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cause {
    server: Server,
    connection: ConnectionCause,
}

/// The server that did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Service,
    /// The service was not called, since there was no token for it.
    TokenIssuer,
}

impl Cause {
    fn of(execution: &Execution, connection: &ConnectionFailure) -> Self {
        let is_at = |url: &str| error::address(url) == connection.address;
        let server = match &execution.auth {
            Some(Auth::Oauth { token_url, .. })
                if is_at(token_url) && !is_at(&execution.base_url) =>
            {
                Server::TokenIssuer
            }
            Some(_) | None => Server::Service,
        };
        Self {
            server,
            connection: connection.cause,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server {
            Server::Service => write!(f, "{}", self.connection.with_advice()),
            Server::TokenIssuer => {
                write!(f, "its token issuer: {}", self.connection.with_advice())
            }
        }
    }
}

/// What the result of a call says about its service.
enum Sign {
    Answer,
    NoAnswer(Cause),
    /// The call was refused here, or its turn ended.
    None,
}

impl Sign {
    fn of<T>(execution: &Execution, result: &Result<T, ToolFailure>) -> Self {
        let Err(failure) = result else {
            return Sign::Answer;
        };
        if let Some(connection) = &failure.connection {
            return Sign::NoAnswer(Cause::of(execution, connection));
        }
        match (failure.code, failure.certainty) {
            // An MCP server that does not open a session has answered too.
            (ResultCode::Http(_) | ResultCode::McpError, _)
            | (_, Certainty::Ran | Certainty::Transient) => Sign::Answer,
            (_, Certainty::NeverRan | Certainty::Unreached | Certainty::Unclear) => Sign::None,
        }
    }
}

impl Outage {
    /// Decides what is reported now. Returns whether that is a change.
    fn settle(&mut self, now: Instant) -> bool {
        // The cause of a reported outage stays: the next call may fail by another one.
        let cause = self.reported.unwrap_or(self.cause);
        let due = (self.calls >= FAILURES).then_some(cause);
        if due == self.reported || !self.is_steady(now) {
            return false;
        }
        self.reported = due;
        self.changed = Some(now);
        true
    }

    fn is_steady(&self, now: Instant) -> bool {
        let changed = self.changed;
        changed.is_none_or(|changed| now.saturating_duration_since(changed) >= STEADY)
    }

    /// Whether forgetting it changes nothing.
    fn is_over(&self, now: Instant) -> bool {
        self.calls == 0 && self.reported.is_none() && self.is_steady(now)
    }
}

impl Outages {
    /// Counts the result of a call of this service.
    pub fn count<T>(&self, execution: &Execution, result: &Result<T, ToolFailure>, now: Instant) {
        let sign = Sign::of(execution, result);
        let service = Service {
            name: execution.service.clone(),
            base_url: execution.base_url.clone(),
        };
        let mut services = self.services.lock();
        let is_full = services.len() >= MOST_COUNTED;
        let change = match (services.get_mut(&service), sign) {
            (Some(known), Sign::Answer) => {
                known.calls = 0;
                known.settle(now)
            }
            (Some(known), Sign::NoAnswer(cause)) => {
                known.calls = known.calls.saturating_add(1);
                known.cause = cause;
                known.settle(now)
            }
            (None, Sign::NoAnswer(cause)) if !is_full => {
                let first = Outage {
                    calls: 1,
                    cause,
                    reported: None,
                    changed: None,
                };
                services.insert(service, first);
                false
            }
            (None, Sign::Answer | Sign::NoAnswer(_)) | (_, Sign::None) => false,
        };
        if change {
            self.change.notify_one();
        }
    }

    /// Resolves after a service has become one to report, or none any more.
    pub async fn change(&self) {
        self.change.notified().await;
    }

    /// Returns the services of these tools that do not answer, and forgets all others.
    pub fn report<'e>(
        &self,
        tools: impl Iterator<Item = &'e Execution>,
        now: Instant,
    ) -> Vec<ServiceOutage> {
        let mut services = self.services.lock();
        if services.is_empty() {
            return Vec::new();
        }
        let current: BTreeSet<(&str, &str)> =
            tools.map(|it| (&*it.service, &*it.base_url)).collect();
        services.retain(|service, calls| {
            calls.settle(now);
            current.contains(&(&*service.name, &*service.base_url)) && !calls.is_over(now)
        });
        let reported = services.iter().filter_map(|(service, calls)| {
            Some(ServiceOutage {
                service: service.name.clone(),
                reason: calls.reported?.to_string(),
            })
        });
        reported.take(MOST_OUTAGES).collect()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;
    use toolcrib_mediation::{ConnectionFailure, ResultCode};

    use super::*;

    const ISSUER: &str = "https://tokens.pond.svc:443/token";

    fn execution(service: &str, base_url: &str) -> Execution {
        let text = json!({"transport": "http", "service": service, "base_url": base_url,
            "method": "GET", "path": "/", "auth": {"type": "oauth", "token_url": ISSUER,
            "client_id": "desk", "client_secret": "s", "file": "f"}});
        serde_json::from_value(text).expect("an execution")
    }

    fn failure(cause: ConnectionCause) -> Result<(), ToolFailure> {
        failure_at("http://desk.pond.svc:4000", cause)
    }

    fn failure_at(url: &str, cause: ConnectionCause) -> Result<(), ToolFailure> {
        let address = error::address(url);
        Err(ToolFailure::unreachable("desk.quote").because(ConnectionFailure { cause, address }))
    }

    /// Outages whose calls are made at seconds after the beginning.
    struct Calls {
        outages: Outages,
        begun: Instant,
        desk: Execution,
    }

    impl Calls {
        fn new() -> Self {
            Self {
                outages: Outages::default(),
                begun: Instant::now(),
                desk: execution("desk", "http://desk.pond.svc:4000"),
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.begun + Duration::from_secs(seconds)
        }

        fn call(&self, seconds: u64, result: &Result<(), ToolFailure>) {
            self.outages.count(&self.desk, result, self.at(seconds));
        }

        /// The report without its advice, and whether the link was woken for it.
        #[track_caller]
        fn check(&self, seconds: u64, expected: &[&str], woken: bool) {
            let report = self
                .outages
                .report([&self.desk].into_iter(), self.at(seconds));
            let report: Vec<String> = report
                .iter()
                .map(|outage| {
                    let (cause, _) = outage.reason.rsplit_once(": ").expect("an advice");
                    format!("{}: {cause}", outage.service)
                })
                .collect();
            assert_eq!(report, expected);
            assert_eq!(self.outages.change().now_or_never().is_some(), woken);
        }
    }

    #[test]
    fn a_service_is_reported_after_three_calls_without_an_answer_until_one_has_one() {
        let calls = Calls::new();
        let refused = failure(ConnectionCause::Refused);
        calls.call(0, &refused);
        calls.call(1, &refused);
        calls.check(1, &[], false);
        // A success begins the count again.
        calls.call(2, &Ok(()));
        calls.call(3, &refused);
        calls.call(4, &refused);
        calls.check(4, &[], false);
        calls.call(5, &refused);
        calls.check(5, &["desk: connection refused"], true);
        // The cause stays.
        calls.call(6, &failure(ConnectionCause::TimedOut));
        calls.check(6, &["desk: connection refused"], false);
        calls.call(90, &Ok(()));
        calls.check(90, &[], true);
    }

    #[test]
    fn an_answer_with_an_error_is_an_answer_and_a_refused_call_says_nothing() {
        let calls = Calls::new();
        let refused = failure(ConnectionCause::Refused);
        let without = |certainty| Err(ToolFailure::new(ResultCode::RequestFailed, certainty, "no"));
        for second in 0..2 {
            calls.call(second, &refused);
        }
        calls.call(2, &without(Certainty::NeverRan));
        calls.call(2, &without(Certainty::Unclear));
        calls.call(3, &refused);
        calls.check(3, &["desk: connection refused"], true);
        calls.call(90, &without(Certainty::Ran));
        calls.check(90, &[], true);
    }

    /// A server that does not open a session, such as a proxy that answers 502, has answered.
    #[test]
    fn an_mcp_server_that_opens_no_session_has_answered() {
        for code in [ResultCode::Http(502), ResultCode::McpError] {
            let calls = Calls::new();
            for second in 0..3 {
                calls.call(second, &failure(ConnectionCause::Refused));
            }
            calls.check(3, &["desk: connection refused"], true);
            calls.call(90, &Err(ToolFailure::new(code, Certainty::Unreached, "no")));
            calls.check(90, &[], true);
        }
    }

    #[test]
    fn a_token_issuer_that_does_not_answer_is_named_as_such() {
        let calls = Calls::new();
        for second in 0..3 {
            calls.call(second, &failure_at(ISSUER, ConnectionCause::TimedOut));
        }
        calls.check(3, &["desk: its token issuer: timed out"], true);
    }

    /// The link may have told of the outage less than a minute ago: the next report tells of its end.
    #[test]
    fn the_end_of_an_outage_is_reported_a_minute_after_its_beginning() {
        let calls = Calls::new();
        for second in 0..3 {
            calls.call(second, &failure(ConnectionCause::Refused));
        }
        calls.check(3, &["desk: connection refused"], true);
        calls.call(10, &Ok(()));
        calls.check(10, &["desk: connection refused"], false);
        calls.check(62, &[], false);
    }

    #[test]
    fn a_service_that_comes_and_goes_changes_the_report_once_a_minute() {
        let calls = Calls::new();
        let refused = failure(ConnectionCause::Refused);
        let mut changes = 0;
        let mut before = Vec::new();
        for second in 0..600 {
            let is_up = second % 8 >= 5;
            calls.call(second, if is_up { &Ok(()) } else { &refused });
            let report = calls
                .outages
                .report([&calls.desk].into_iter(), calls.at(second));
            changes += u32::from(report != before);
            before = report;
        }
        assert!((2..=11).contains(&changes), "{changes}");
    }

    #[test]
    fn a_corrected_address_and_a_removed_service_are_not_reported() {
        let calls = Calls::new();
        for second in 0..3 {
            calls.call(second, &failure(ConnectionCause::NameNotFound));
        }
        calls.check(3, &["desk: the name does not resolve"], true);
        let corrected = execution("desk", "http://desk.pond.svc:8080");
        let report = calls.outages.report([&corrected].into_iter(), calls.at(4));
        assert_eq!(report, []);
        assert!(calls.outages.services.lock().is_empty());
    }

    #[test]
    fn counted_services_are_bounded() {
        let calls = Calls::new();
        for number in 0..2 * MOST_COUNTED {
            let service = execution(&format!("s{number}"), "http://a.test");
            let refused = failure(ConnectionCause::Refused);
            calls.outages.count(&service, &refused, calls.at(0));
        }
        assert_eq!(calls.outages.services.lock().len(), MOST_COUNTED);
    }
}
