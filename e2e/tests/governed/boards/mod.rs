//! Every query of the chart's dashboards, and every alert, in a real Prometheus that scrapes the pods which
//! the chart's PodMonitors select.
//!
//! Debian's Prometheus is built without service discovery for Kubernetes, so the test finds the targets and
//! their labels as the Prometheus operator does. Not here: whether names and labels exist
//! (`docs/tests/reference/boards.rs`).

mod prometheus;

use anyhow::{Context, Result, ensure};
use serde::Deserialize as _;
use serde_json::{Value, json};
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::platform::{NAMESPACE, Platform, PollResult, RELEASE, repository};
use toolcrib_e2e::runner;

use crate::support::{Desk, START};
use prometheus::Prometheus;

const HERE: &str = "boards";
const AGENT: &str = "clerk";

#[test]
fn every_query_of_the_dashboards_gives_data() -> Result<()> {
    let desk = Desk::open(HERE)?;
    let platform = &desk.platform;
    desk.play(include_str!("script.yaml"))?;
    platform.apply(include_str!("objects.yaml"))?;
    let pod = runner::pod(HERE, AGENT, AGENT, include_str!("program.py"));
    platform.apply(&pod.to_string())?;
    platform.wait_ready(HERE, &[AGENT])?;
    desk.wait_in_force(AGENT)?;

    let objects = rendered(platform)?;
    let of_kind = |kind: &'static str| objects.iter().filter(move |it| it["kind"] == kind);
    let mut jobs = Vec::new();
    for monitor in of_kind("PodMonitor") {
        let targets = targets(platform, monitor)?;
        jobs.push(json!({"job_name": monitor["metadata"]["name"], "static_configs": targets}));
    }
    let rule = of_kind("PrometheusRule").next().context("a rule")?;
    let prometheus = Prometheus::start(platform.cluster(), &jobs, &rule["spec"])?;
    let scraped = "min_over_time(up[1m])";
    // Two replicas of each program; the agents' pods of the example, and the clerk's.
    let wanted = 2 + 2 + 3;
    platform.eventually("every target to be scraped", START, || {
        let series = prometheus.query(scraped)?;
        let all = series.len() == wanted && prometheus.query("up == 0")?.is_empty();
        Ok(PollResult::when(all, json!(series).to_string()))
    })?;

    // Events of the operator, after the first scrape.
    let grant = ["delete", "toolgrant", "clerk-reads", "--namespace", HERE];
    platform.kubectl(&grant)?;
    let pod = runner::pod(HERE, "tried", AGENT, "pass").to_string();
    let tried = ["create", "--dry-run=server", "--filename=-"];
    let tried = platform.try_kubectl(&tried, &pod)?;
    ensure!(tried.status.success(), "{tried:?}");

    let mut waiting = queries(&objects)?;
    ensure!(waiting.len() > 50, "{} queries", waiting.len());
    platform.eventually("every query to give data", START, || {
        let mut without = Vec::new();
        for query in std::mem::take(&mut waiting) {
            if !query.has_data(&prometheus)? {
                without.push(query);
            }
        }
        waiting = without;
        let names: Vec<&str> = waiting.iter().map(|it| it.expression.as_str()).collect();
        Ok(PollResult::when(waiting.is_empty(), names.join("\n")))
    })?;

    let alerts = rule["spec"]["groups"][0]["rules"].as_array();
    let alerts = alerts.context("rules")?.len();
    platform.eventually("every alert to be evaluated", START, || {
        let rules = prometheus.rules()?;
        let failed = rules.iter().find(|it| it["health"] == "err");
        ensure!(failed.is_none(), "{failed:?}");
        let evaluated = rules.iter().filter(|it| it["health"] == "ok").count();
        Ok(PollResult::when(
            evaluated == alerts,
            json!(rules).to_string(),
        ))
    })?;
    desk.passed()
}

/// The chart's objects for this release, with everything for Prometheus and Grafana.
fn rendered(platform: &Platform) -> Result<Vec<Value>> {
    let text = run(platform
        .cluster()
        .helm()
        .args(["template", RELEASE])
        .arg(repository().join("charts/toolcrib"))
        .args(["--namespace", NAMESPACE])
        .args(["--set", &format!("secretNamespaces={{{HERE}}}")])
        .args(["--set", "mediator.metricsPort=9464"])
        .args(["--set", "metrics.podMonitor.enabled=true"])
        .args(["--set", "alerts.enabled=true,dashboards.enabled=true"]))?;
    serde_yaml::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).context("YAML of the chart"))
        .collect()
}

/// The running pods that a PodMonitor selects, each as a target with its labels.
fn targets(platform: &Platform, monitor: &Value) -> Result<Vec<Value>> {
    let spec = &monitor["spec"];
    let endpoint = &spec["podMetricsEndpoints"][0];
    let mut targets = Vec::new();
    for namespace in list(&spec["namespaceSelector"]["matchNames"]) {
        let namespace = namespace.as_str().context("a namespace")?;
        let selector = format!("--selector={}", selector(&spec["selector"]));
        let pods = platform.get(&["pods", "--namespace", namespace, &selector])?;
        for pod in list(&pods["items"]) {
            let spec = &pod["spec"];
            let port = list(&spec["containers"])
                .chain(list(&spec["initContainers"]))
                .flat_map(|container| list(&container["ports"]))
                .find(|port| port["name"] == endpoint["port"]);
            let port = port.with_context(|| format!("a pod without its port: {pod}"))?;
            let address = pod["status"]["podIP"].as_str().context("an address")?;
            let mut labels = json!({"namespace": namespace, "pod": pod["metadata"]["name"]});
            for rule in list(&endpoint["relabelings"]) {
                let target = rule["targetLabel"].as_str().context("a target label")?;
                labels[target] = pod_label(pod, &rule["sourceLabels"][0]).clone();
            }
            let address = format!("{address}:{}", port["containerPort"]);
            targets.push(json!({"targets": [address], "labels": labels}));
        }
    }
    Ok(targets)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A label selector as kubectl takes it.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let expressions = list(&selector["matchExpressions"]).map(|expression| {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = list(&expression["values"])
            .filter_map(Value::as_str)
            .collect();
        match values.is_empty() {
            true => key.to_owned(),
            false => format!("{key} in ({})", values.join(",")),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

/// The pod's label that the service discovery names so.
fn pod_label<'a>(pod: &'a Value, discovered: &Value) -> &'a Value {
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    let named = |key: &str| {
        let letters = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let key: String = key.chars().map(letters).collect();
        *discovered == format!("__meta_kubernetes_pod_label_{key}")
    };
    let mut labels = labels.filter(|(key, _)| named(key));
    labels.next().map_or(&Value::Null, |(_, value)| value)
}

/// A query of a panel, with Grafana's variables replaced.
struct Query {
    expression: String,
    /// The labels that the panel's legend shows.
    legend: Vec<String>,
}

impl Query {
    fn has_data(&self, prometheus: &Prometheus) -> Result<bool> {
        let series = prometheus.query(&self.expression)?;
        for label in &self.legend {
            let lacks = series.iter().find(|it| it["metric"][label].is_null());
            ensure!(lacks.is_none(), "{}: no label {label}", self.expression);
        }
        Ok(series.iter().any(|it| it["value"][1] != "NaN"))
    }
}

/// The queries of all dashboards in the chart's ConfigMaps.
fn queries(objects: &[Value]) -> Result<Vec<Query>> {
    let mut queries = Vec::new();
    let is_board = |object: &&Value| object["metadata"]["labels"]["grafana_dashboard"] == "1";
    for object in objects.iter().filter(is_board) {
        let data = object["data"].as_object().context("data")?;
        for text in data.values().filter_map(Value::as_str) {
            let board: Value = serde_json::from_str(text)?;
            for target in list(&board["panels"]).flat_map(|panel| list(&panel["targets"])) {
                let expression = target["expr"].as_str().context("a query")?;
                let legend = target["legendFormat"].as_str().context("a legend")?;
                queries.push(Query {
                    expression: expression
                        .replace("$namespace", HERE)
                        .replace("$agent", AGENT)
                        .replace("$__rate_interval", "1m"),
                    legend: legend
                        .split("{{")
                        .filter_map(|part| Some(part.split_once("}}")?.0.to_owned()))
                        .collect(),
                });
            }
        }
    }
    Ok(queries)
}
