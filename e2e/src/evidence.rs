//! Evidence of a failed end-to-end test: the pods, events and logs of its namespaces.
//!
//! A test holds an [`Evidence`] and ends with [`Evidence::passed`]. If the value is dropped
//! before that, by an error or a panic, it prints the state of the cluster into the test's
//! output.
//!
//! Not here: the end of a whole run (`e2e/run`). Invariants: the text is bounded, and contains no
//! value of a Secret. Secrets are read only to redact their values.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::platform::{NAMESPACE, Platform};

/// Bounds of each part, since a log can be as long as the test.
const MOST_LINES: usize = 60;
const MOST_BYTES: usize = 16 << 10;
/// Timeout of each request: a cluster that does not answer must not hide the original failure.
const TIMEOUT: &str = "--request-timeout=10s";
/// Shortest value that is redacted; shorter ones could be ordinary words.
const SHORTEST_SECRET: usize = 6;

/// Prints the state of namespaces when it is dropped, unless the test has passed.
pub struct Evidence {
    platform: Platform,
    namespaces: Vec<String>,
    passed: AtomicBool,
}

impl Evidence {
    /// Watches these namespaces and the operator's.
    pub fn of(platform: &Platform, namespaces: &[&str]) -> Self {
        let operator = std::iter::once(NAMESPACE);
        Self {
            platform: platform.clone(),
            namespaces: namespaces
                .iter()
                .copied()
                .chain(operator)
                .map(String::from)
                .collect(),
            passed: AtomicBool::new(false),
        }
    }

    /// Ends a test that has passed.
    pub fn passed(&self) -> Result<()> {
        self.passed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        if self.passed.load(Ordering::Relaxed) {
            return;
        }
        for namespace in &self.namespaces {
            eprintln!("{}", collect(&self.platform, namespace));
        }
    }
}

/// Collects the evidence of one namespace.
fn collect(platform: &Platform, namespace: &str) -> String {
    let ask = |arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend(["--namespace", namespace, TIMEOUT]);
        platform.kubectl(&all)
    };
    let list = |kind: &str| -> Result<Value> {
        Ok(serde_json::from_str(&ask(&[
            "get",
            kind,
            "--output=json",
        ])?)?)
    };
    let mut text = format!("==== namespace {namespace}\n");
    // Without the Secrets their values cannot be redacted, so nothing is shown.
    let secrets = match list("secrets") {
        Ok(secrets) => values(&secrets),
        Err(error) => return format!("{text}its Secrets cannot be read: {error:#}\n"),
    };
    let mut part = |title: &str, found: Result<String>| {
        let found = found.unwrap_or_else(|error| format!("{error:#}"));
        // Redacts before it cuts the text: half of a value would not be recognized.
        let shown = tail(&blanked(&found, &secrets), MOST_LINES, MOST_BYTES);
        writeln!(text, "---- {title}\n{shown}").expect("text grows");
    };
    part("pods", ask(&["get", "pods", "--output=wide"]));
    // Listed separately, because these kinds may be uninstalled.
    let ours = "agents,surfaces,toolgrants,modelproviders";
    part("objects", ask(&["get", ours, "--output=wide"]));
    part(
        "events",
        ask(&["get", "events", "--sort-by=.lastTimestamp"]),
    );
    match list("pods") {
        Err(error) => part("containers", Err(error)),
        Ok(pods) => {
            for pod in pods["items"].as_array().into_iter().flatten() {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                part(&format!("containers of {name}"), Ok(containers(pod)));
                part(
                    &format!("logs of {name}"),
                    ask(&["logs", name, "--all-containers", "--prefix", "--tail=60"]),
                );
            }
        }
    }
    text
}

/// One line per container: its name, restarts and state.
fn containers(pod: &Value) -> String {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let statuses = lists
        .iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let lines = statuses.map(|status| {
        format!(
            "{} restarts {} state {} before {}\n",
            status["name"].as_str().unwrap_or_default(),
            status["restartCount"],
            status["state"],
            status["lastState"]
        )
    });
    lines.collect()
}

/// Returns `NAME/KEY` and value of every text in the Secrets, longest value first, so a value
/// that contains another one is redacted whole.
fn values(secrets: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for secret in secrets["items"].as_array().into_iter().flatten() {
        let name = secret["metadata"]["name"].as_str().unwrap_or_default();
        for (key, value) in secret["data"].as_object().into_iter().flatten() {
            let bytes = STANDARD.decode(value.as_str().unwrap_or_default());
            let Some(text) = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok()) else {
                continue;
            };
            // Each line is a value too: a log may begin within a key of many lines.
            let parts = std::iter::once(text.as_str()).chain(text.lines());
            for part in parts.map(str::trim) {
                if part.len() >= SHORTEST_SECRET {
                    found.push((format!("{name}/{key}"), part.to_owned()));
                }
            }
        }
    }
    found.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    found
}

fn blanked(text: &str, values: &[(String, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(value, &format!("[Secret {name}]"))
    })
}

/// The last `lines` lines of the text, and of those the last `bytes` bytes.
fn tail(text: &str, lines: usize, bytes: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let kept = all[all.len().saturating_sub(lines)..].join("\n");
    let mut start = kept.len().saturating_sub(bytes);
    while !kept.is_char_boundary(start) {
        start += 1;
    }
    let cut = all.len() > lines || start > 0;
    let mark = if cut { "…\n" } else { "" };
    format!("{mark}{}\n", &kept[start..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_secrets_are_blanked() {
        let secrets = json!({"items": [
            {"metadata": {"name": "fish"}, "data": {
                "token": STANDARD.encode("kelp-91c4\n"),
                "bytes": STANDARD.encode([0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa]),
                "flag": STANDARD.encode("true"),
            }},
            {"metadata": {"name": "otter"}, "data": {
                "key": STANDARD.encode("kelp-91c4-more\nsecond line")}},
            {"metadata": {"name": "empty"}},
        ]});
        let text = "bearer kelp-91c4, then kelp-91c4-more; true; second line";
        assert_eq!(
            blanked(text, &values(&secrets)),
            "bearer [Secret fish/token], then [Secret otter/key]; true; [Secret otter/key]"
        );
    }

    #[test]
    fn long_parts_keep_their_end() {
        assert_eq!(tail("1\n2\n3\n", 2, 100), "…\n2\n3\n");
        assert_eq!(tail("1\n2", 2, 100), "1\n2\n");
        // The cut is in the middle of a character, which is left out.
        assert_eq!(tail("aé12", 2, 3), "…\n12\n");
        assert_eq!(tail("", 2, 3), "\n");
    }

    #[test]
    fn containers_show_restarts_and_state() {
        let pod = json!({"status": {
            "initContainerStatuses": [{"name": "mediator", "restartCount": 2,
                "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}],
            "containerStatuses": [{"name": "runner", "restartCount": 0,
                "state": {"waiting": {"reason": "ImagePullBackOff"}}, "lastState": {}}],
        }});
        assert_eq!(
            containers(&pod),
            "mediator restarts 2 state {\"running\":{}} before {\"terminated\":{\"exitCode\":1}}\n\
             runner restarts 0 state {\"waiting\":{\"reason\":\"ImagePullBackOff\"}} before {}\n"
        );
    }
}
