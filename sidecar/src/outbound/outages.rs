//! The services and model providers from which calls get no answer, for the report over the link.
//!
//! Here: counting, from the results of calls. Not here: feeds.
//!
//! Invariants: a server is reported after [`FAILURES`] calls in a row without an answer, and until
//! one gets an answer, whatever it says. The report of one server changes at most once in [`STEADY`],
//! so a server that comes and goes causes few writes of a status. Memory is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use toolcrib_manifest::{
    Auth, Execution, MOST_OUTAGES, MOST_PROVIDERS, Provider, ProviderOutage, ServiceOutage,
};
use toolcrib_mediation::{Certainty, ConnectionCause, ConnectionFailure, ResultCode, ToolFailure};

use super::error;

/// Number of calls in a row without an answer after which a server is reported.
const FAILURES: u32 = 3;
/// Shortest time between two changes of what is reported of a server.
const STEADY: Duration = Duration::from_secs(60);
/// Limits the servers that are counted. Files have fewer; those of earlier files are dropped with
/// the next report.
const MOST_COUNTED: usize = 1024;

/// The servers that did not answer lately.
#[derive(Debug, Default)]
pub struct Outages {
    servers: Mutex<BTreeMap<Server, Outage>>,
    change: Notify,
}

/// A server at an address: after a correction of the address, nothing is known of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Server {
    kind: ServerKind,
    name: String,
    base_url: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ServerKind {
    Service,
    Provider,
}

/// What the report says of all servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OutageReport {
    pub services: Vec<ServiceOutage>,
    pub providers: Vec<ProviderOutage>,
}

/// The calls of a server since its last answer.
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
pub struct Cause {
    /// The service was not called, since its token issuer did not answer.
    is_of_issuer: bool,
    connection: ConnectionCause,
}

impl Cause {
    fn of(execution: &Execution, connection: &ConnectionFailure) -> Self {
        let is_at = |url: &str| error::address(url) == connection.address;
        let is_of_issuer = match &execution.auth {
            Some(Auth::Oauth { token_url, .. }) => is_at(token_url) && !is_at(&execution.base_url),
            Some(_) | None => false,
        };
        Self {
            is_of_issuer,
            connection: connection.cause,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_of_issuer {
            f.write_str("its token issuer: ")?;
        }
        f.write_str(&self.connection.with_advice())
    }
}

/// What the result of a call says about its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Answer,
    NoAnswer(Cause),
    /// The call was refused here, or its turn ended.
    None,
}

impl Sign {
    /// A server at the address itself did not answer.
    pub fn no_answer(connection: &ConnectionFailure) -> Self {
        Sign::NoAnswer(Cause {
            is_of_issuer: false,
            connection: connection.cause,
        })
    }

    fn of_call<T>(execution: &Execution, result: &Result<T, ToolFailure>) -> Self {
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
    /// Counts the result of a call of a tool.
    pub fn count_call<T>(
        &self,
        execution: &Execution,
        result: &Result<T, ToolFailure>,
        now: Instant,
    ) {
        let (service, base_url) = (&execution.service, &execution.base_url);
        let sign = Sign::of_call(execution, result);
        self.count(ServerKind::Service, service, base_url, sign, now);
    }

    /// Counts a request to the provider of this name, at this address.
    pub fn count_request(&self, provider: &str, base_url: &str, sign: Sign, now: Instant) {
        self.count(ServerKind::Provider, provider, base_url, sign, now);
    }

    fn count(&self, kind: ServerKind, name: &str, base_url: &str, sign: Sign, now: Instant) {
        let mut servers = self.servers.lock();
        // The usual case costs no copy of the names.
        if servers.is_empty() && !matches!(sign, Sign::NoAnswer(_)) {
            return;
        }
        let server = Server {
            kind,
            name: name.to_owned(),
            base_url: base_url.to_owned(),
        };
        let is_full = servers.len() >= MOST_COUNTED;
        let change = match (servers.get_mut(&server), sign) {
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
                servers.insert(server, first);
                false
            }
            (None, Sign::Answer | Sign::NoAnswer(_)) | (_, Sign::None) => false,
        };
        if change {
            self.change.notify_one();
        }
    }

    /// Resolves after a server has become one to report, or none any more.
    pub async fn change(&self) {
        self.change.notified().await;
    }

    /// Returns the services of these tools and those of these providers that do not answer, and
    /// forgets all other servers.
    pub fn report<'e>(
        &self,
        tools: impl Iterator<Item = &'e Execution>,
        providers: &BTreeMap<String, Provider>,
        now: Instant,
    ) -> OutageReport {
        let mut servers = self.servers.lock();
        let mut report = OutageReport::default();
        if servers.is_empty() {
            return report;
        }
        let services: BTreeSet<(&str, &str)> =
            tools.map(|it| (&*it.service, &*it.base_url)).collect();
        servers.retain(|server, outage| {
            outage.settle(now);
            let is_current = match server.kind {
                ServerKind::Service => services.contains(&(&*server.name, &*server.base_url)),
                ServerKind::Provider => providers.get(&server.name).is_some_and(|provider| {
                    let mut endpoints = provider.endpoints.iter();
                    endpoints.any(|it| it.trimmed_url() == server.base_url)
                }),
            };
            is_current && !outage.is_over(now)
        });
        for (server, outage) in servers.iter() {
            let Some(cause) = outage.reported else {
                continue;
            };
            let (name, reason) = (server.name.clone(), cause.to_string());
            match server.kind {
                ServerKind::Service => report.services.push(ServiceOutage {
                    service: name,
                    reason,
                }),
                ServerKind::Provider => report.providers.push(ProviderOutage {
                    provider: name,
                    reason,
                }),
            }
        }
        report.services.truncate(MOST_OUTAGES);
        report.providers.truncate(MOST_PROVIDERS);
        report
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

        fn report(&self, tool: &Execution, seconds: u64) -> Vec<ServiceOutage> {
            let report =
                self.outages
                    .report([tool].into_iter(), &BTreeMap::new(), self.at(seconds));
            assert_eq!(report.providers, []);
            report.services
        }

        fn call(&self, seconds: u64, result: &Result<(), ToolFailure>) {
            self.outages
                .count_call(&self.desk, result, self.at(seconds));
        }

        /// The report without its advice, and whether the link was woken for it.
        #[track_caller]
        fn check(&self, seconds: u64, expected: &[&str], woken: bool) {
            let report = self.report(&self.desk, seconds);
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
            let report = calls.report(&calls.desk, second);
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
        assert_eq!(calls.report(&corrected, 4), []);
        assert!(calls.outages.servers.lock().is_empty());
    }

    #[test]
    fn a_provider_is_reported_by_the_rule_of_services() {
        let outages = Outages::default();
        let begun = Instant::now();
        let providers: BTreeMap<String, Provider> = serde_json::from_value(json!({
            "reef": {"auth": "none", "endpoints": [{"base_url": "https://reef.test/v1/",
                "dialect": "openai"}]},
        }))
        .expect("providers");
        let at = |seconds| begun + Duration::from_secs(seconds);
        let check = |providers: &BTreeMap<String, Provider>, seconds, expected: &[&str]| {
            let report = outages.report(std::iter::empty(), providers, at(seconds));
            assert_eq!(report.services, []);
            let reasons: Vec<_> = report.providers.iter().map(|it| &*it.reason).collect();
            assert_eq!(reasons, expected);
        };
        let count = |sign, seconds| {
            outages.count_request("reef", "https://reef.test/v1", sign, at(seconds));
        };
        let refused = Sign::no_answer(&ConnectionFailure {
            cause: ConnectionCause::Refused,
            address: "https://reef.test".into(),
        });
        for second in 0..3 {
            check(&providers, second, &[]);
            count(refused, second);
        }
        assert!(outages.change().now_or_never().is_some());
        let reason = "connection refused: check that the server runs and listens at this port";
        check(&providers, 3, &[reason]);
        count(Sign::None, 90);
        check(&providers, 90, &[reason]);
        count(Sign::Answer, 91);
        check(&providers, 91, &[]);
        for second in 200..203 {
            count(refused, second);
        }
        check(&providers, 203, &[reason]);
        check(&BTreeMap::new(), 204, &[]);
    }

    #[test]
    fn the_number_of_servers_is_bounded() {
        let calls = Calls::new();
        for number in 0..2 * MOST_COUNTED {
            let service = execution(&format!("s{number}"), "http://a.test");
            let refused = failure(ConnectionCause::Refused);
            calls.outages.count_call(&service, &refused, calls.at(0));
        }
        assert_eq!(calls.outages.servers.lock().len(), MOST_COUNTED);
    }
}
