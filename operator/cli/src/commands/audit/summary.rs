//! The numbers of a summary: calls for each agent and tool, requests for each agent.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::columns::agent;
use crate::print;
use crate::record::{Call, Outcome, Request};

/// Most rows of a summary; models invent names of tools.
const MAX_ROWS: usize = 10_000;
/// The row for names beyond the bound of a summary.
const OTHERS: &str = "(others)";

/// The numbers so far.
#[derive(Debug, Default)]
pub(super) struct Summary {
    tools: BTreeMap<(String, String, String), ToolNumbers>,
    agents: BTreeMap<(String, String), AgentNumbers>,
}

impl Summary {
    pub fn call(&mut self, call: &Call) {
        let key = (
            call.namespace.clone(),
            call.agent.clone(),
            call.tool.clone(),
        );
        let key = match self.tools.len() < MAX_ROWS || self.tools.contains_key(&key) {
            true => key,
            false => (String::new(), String::new(), OTHERS.to_owned()),
        };
        self.tools.entry(key).or_default().add(call);
    }

    pub fn request(&mut self, request: &Request) {
        let key = (request.namespace.clone(), request.agent.clone());
        let key = match self.agents.len() < MAX_ROWS || self.agents.contains_key(&key) {
            true => key,
            false => (String::new(), OTHERS.to_owned()),
        };
        self.agents.entry(key).or_default().add(request);
    }

    /// A row for each agent and tool, under [`TOOL_HEADER`].
    pub fn rows(&self) -> Vec<Vec<String>> {
        self.tools.iter().map(|(key, it)| it.cells(key)).collect()
    }

    pub fn table(&self) -> String {
        let mut text = print::table(&TOOL_HEADER, &self.rows());
        if !self.agents.is_empty() {
            let rows = self.agents.iter().map(|(key, it)| it.cells(key));
            let rows: Vec<Vec<String>> = rows.collect();
            text += &format!("\n{}", print::table(&AGENT_HEADER, &rows));
        }
        text
    }

    /// A JSON object for each agent and tool, then one for each agent.
    pub fn values(&self) -> Vec<Value> {
        let tools = self.tools.iter().map(|((namespace, agent, tool), it)| {
            json!({
                "namespace": namespace, "agent": agent, "tool": tool, "calls": it.calls,
                "ok": it.ok, "failed": it.failed, "denied": it.denied, "unknown": it.unknown,
                "waiting": it.waiting,
                "p50_ms": it.latencies.quantile(50), "p95_ms": it.latencies.quantile(95),
            })
        });
        let agents = self.agents.iter().map(|((namespace, agent), it)| {
            json!({
                "namespace": namespace, "agent": agent, "requests": it.requests,
                "failed": it.failed, "prompt_tokens": it.prompt_tokens,
                "completion_tokens": it.completion_tokens,
            })
        });
        tools.chain(agents).collect()
    }
}

pub(super) const TOOL_HEADER: [&str; 10] = [
    "AGENT", "TOOL", "READS", "CALLS", "FAILED", "DENIED", "UNKNOWN", "P50", "P95", "WAITING",
];

#[derive(Debug, Default)]
struct ToolNumbers {
    read_only: Option<bool>,
    calls: u64,
    ok: u64,
    failed: u64,
    denied: u64,
    unknown: u64,
    waiting: u64,
    latencies: Latencies,
}

impl ToolNumbers {
    fn add(&mut self, call: &Call) {
        self.calls += 1;
        self.read_only = call.read_only.or(self.read_only);
        let number = match call.outcome {
            Outcome::Ok => &mut self.ok,
            Outcome::Failed => &mut self.failed,
            Outcome::Denied => &mut self.denied,
            Outcome::Unknown => &mut self.unknown,
            Outcome::Waiting => &mut self.waiting,
        };
        *number += 1;
        if call.executed == Some(true)
            && let Some(latency) = call.latency_ms
        {
            self.latencies.add(latency);
        }
    }

    fn cells(&self, (namespace, name, tool): &(String, String, String)) -> Vec<String> {
        let reads = match self.read_only {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        let quantile = |percent| match self.latencies.quantile(percent) {
            Some(ms) => format!("{ms} ms"),
            None => String::new(),
        };
        let mut cells = vec![agent(namespace, name), tool.clone(), reads.to_owned()];
        let numbers = [self.calls, self.failed, self.denied, self.unknown];
        cells.extend(numbers.map(|number| number.to_string()));
        cells.extend([quantile(50), quantile(95), self.waiting.to_string()]);
        cells
    }
}

const AGENT_HEADER: [&str; 5] = ["AGENT", "REQUESTS", "FAILED", "PROMPT", "COMPLETION"];

#[derive(Debug, Default)]
struct AgentNumbers {
    requests: u64,
    failed: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl AgentNumbers {
    fn add(&mut self, request: &Request) {
        self.requests += 1;
        self.failed += u64::from(request.error.is_some());
        self.prompt_tokens += request.prompt_tokens;
        self.completion_tokens += request.completion_tokens;
    }

    fn cells(&self, (namespace, name): &(String, String)) -> Vec<String> {
        let mut cells = vec![agent(namespace, name)];
        let tokens = [self.prompt_tokens, self.completion_tokens];
        let numbers = [self.requests, self.failed].into_iter().chain(tokens);
        cells.extend(numbers.map(|number| number.to_string()));
        cells
    }
}

/// Counts of latencies in buckets, each at most 1.6 % wide, so that memory does not grow with calls.
#[derive(Debug, Default)]
struct Latencies {
    buckets: BTreeMap<u32, u64>,
    calls: u64,
}

impl Latencies {
    /// Values below are counted one by one.
    const EXACT: u64 = 128;

    fn add(&mut self, ms: u64) {
        *self.buckets.entry(Self::bucket(ms)).or_default() += 1;
        self.calls += 1;
    }

    fn bucket(ms: u64) -> u32 {
        if ms < Self::EXACT {
            return ms as u32;
        }
        let bits = ms.ilog2();
        (bits - 5) * 64 + ((ms >> (bits - 6)) & 63) as u32
    }

    /// The least value in a bucket.
    fn value(bucket: u32) -> u64 {
        if u64::from(bucket) < Self::EXACT {
            return bucket.into();
        }
        let bits = bucket / 64 + 5;
        (64 + u64::from(bucket % 64)) << (bits - 6)
    }

    fn quantile(&self, percent: u64) -> Option<u64> {
        let rank = (self.calls * percent).div_ceil(100).max(1);
        let mut below = 0;
        self.buckets.iter().find_map(|(bucket, calls)| {
            below += calls;
            (below >= rank).then(|| Self::value(*bucket))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(50), None);
        for ms in 1..=10_000 {
            latencies.add(ms);
        }
        for (percent, exact) in [(50, 5_000), (95, 9_500)] {
            let near = latencies.quantile(percent).unwrap();
            assert!(
                near <= exact && near * 1_000 > exact * 980,
                "{percent}: {near}"
            );
        }
        for ms in [0, 127, 128, 129, 1 << 20, u64::MAX] {
            let value = Latencies::value(Latencies::bucket(ms));
            assert!(value <= ms && ms - value <= ms / 64, "{ms}: {value}");
        }
    }
}
