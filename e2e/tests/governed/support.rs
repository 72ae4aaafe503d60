//! The set-up of one test: the trading-desk example in a namespace of its own, with access to all
//! its parts.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use serde_json::Value;
use toolcrib_e2e::cluster::{Cluster, Name};
use toolcrib_e2e::evidence::Evidence;
use toolcrib_e2e::platform::{Platform, PollResult};

/// Timeout for scheduling, pulling from the node's own store, starting, and other quick steps of a
/// pod. On a busy machine, importing an SDK alone has taken two minutes.
pub const START: Duration = Duration::from_secs(400);
/// Timeout for a changed Secret to reach a pod: the kubelet syncs within a minute and a half, and
/// two cores are busy here.
pub const VOLUME: Duration = Duration::from_secs(200);

/// The values of the example's Secrets: only mediators and servers may see them.
pub const SECRETS: [&str; 3] = [
    "sk-scripted-7c1e52f0",
    "desk-reader-41d9b7a2",
    "desk-executor-e83c06f5",
];

/// Name of the injected container.
pub const MEDIATOR: &str = "toolcrib-mediator";

pub struct Desk {
    pub platform: Platform,
    pub namespace: String,
    evidence: Evidence,
}

/// The cluster that the tests use.
pub fn platform() -> Result<Platform> {
    let name: Name = std::env::var("TOOLCRIB_E2E_CLUSTER")
        .context("TOOLCRIB_E2E_CLUSTER must name the cluster; ./e2e/run test does it")?
        .parse()?;
    let cluster = Cluster::find(&name)?
        .with_context(|| format!("cluster {name} is not up: ./e2e/run test brings it up"))?;
    Ok(Platform::on(cluster))
}

impl Desk {
    /// Applies the example and waits until both agents' pods and the servers are ready.
    pub fn open(namespace: &str) -> Result<Desk> {
        let platform = platform()?;
        let desk = Desk {
            evidence: Evidence::of(&platform, &[namespace]),
            platform,
            namespace: namespace.to_string(),
        };
        desk.platform.apply(&Platform::example(Some(namespace))?)?;
        desk.platform.apply(&observer(namespace))?;
        desk.rollout("scripted-model")?;
        desk.rollout("trading-api")?;
        desk.platform
            .wait_ready(namespace, &["analyst", "executor", "observer"])?;
        Ok(desk)
    }

    /// Marks the test as passed. Without this call, the pods, events and logs of the namespace are
    /// printed.
    pub fn passed(&self) -> Result<()> {
        self.evidence.passed()
    }

    /// Waits until the Deployment's pods are ready.
    pub fn rollout(&self, deployment: &str) -> Result<()> {
        let deployment = format!("deployment/{deployment}");
        let namespace = self.namespace.as_str();
        self.platform.kubectl(&[
            "rollout",
            "status",
            "--timeout=120s",
            "--namespace",
            namespace,
            &deployment,
        ])?;
        Ok(())
    }

    /// Runs the agent's program with this question; returns the model's final text.
    pub fn ask(&self, agent: &str, question: &str) -> Result<String> {
        self.platform.exec(
            &self.namespace,
            agent,
            &["python3", "/agent/ask.py", question],
        )
    }

    /// Replaces the model's script.
    pub fn play(&self, script: &str) -> Result<()> {
        let header = format!("Authorization: Bearer {}", SECRETS[0]);
        let url = "http://scripted-model:8080/script";
        let mut command = vec![
            "exec",
            "--stdin",
            "--namespace",
            &self.namespace,
            "observer",
        ];
        command.extend(["--", "curl", "-sSf", "--max-time", "10", "-H", &header]);
        command.extend(["--data-binary", "@-", url]);
        let output = self.platform.try_kubectl(&command, script)?;
        ensure!(output.status.success(), "the script: {output:?}");
        Ok(())
    }

    /// All requests to the trading desk so far.
    pub fn asked(&self) -> Result<Vec<Value>> {
        let log = self.observe("http://trading-api:4000/log", SECRETS[1])?;
        Ok(log["requests"]
            .as_array()
            .context("the desk's log")?
            .clone())
    }

    /// All requests to the model so far.
    pub fn model_requests(&self) -> Result<Vec<Value>> {
        let log = self.observe("http://scripted-model:8080/requests", SECRETS[0])?;
        Ok(log["requests"]
            .as_array()
            .context("the model's requests")?
            .clone())
    }

    fn observe(&self, url: &str, token: &str) -> Result<Value> {
        let header = format!("Authorization: Bearer {token}");
        let text = self.platform.exec(
            &self.namespace,
            "observer",
            &["curl", "-sSf", "--max-time", "10", "-H", &header, url],
        )?;
        serde_json::from_str(&text).with_context(|| text)
    }

    pub fn agent(&self, name: &str) -> Result<Value> {
        self.platform
            .get(&["agent", name, "--namespace", &self.namespace])
    }

    /// The lines of the mediator's record on stdout, without its own log between them.
    pub fn record(&self, pod: &str) -> Result<Vec<Value>> {
        Ok(lines(&self.log(pod)?))
    }

    /// The mediator's output in the node's log, which mixes both streams.
    pub fn log(&self, pod: &str) -> Result<String> {
        let pod = ["logs", "--namespace", &self.namespace, pod, "-c", MEDIATOR];
        self.platform.kubectl(&pod)
    }

    /// The process of the pod's mediator.
    pub fn mediator_process(&self, pod: &str) -> Result<Pid> {
        let pod = ["pod", pod, "--namespace", &self.namespace];
        let pod = self.platform.get(&pod)?;
        process_of(
            &pod["status"]["initContainerStatuses"][0],
            "toolcrib-sidecar",
        )
    }

    /// Waits until the agent's status says that all its pods have loaded the compiled files.
    pub fn wait_in_force(&self, name: &str) -> Result<Value> {
        self.platform
            .eventually(&format!("agent {name} to be in force"), VOLUME, || {
                let agent = self.agent(name)?;
                let pods = &agent["status"]["pods"];
                let all = pods["running"].as_u64() > Some(0) && pods["running"] == pods["inForce"];
                if all && condition(&agent, "InForce")["status"] == "True" {
                    Ok(PollResult::Yes(agent))
                } else {
                    Ok(PollResult::NotYet(agent["status"].to_string()))
                }
            })
    }
}

/// The names of the tools in a request to the model.
pub fn offered(request: &Value) -> Vec<String> {
    let tools = request["body"]["tools"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    tools
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str().map(String::from))
        .collect()
}

/// The condition of this type, or null.
pub fn condition(object: &Value, kind: &str) -> Value {
    object["status"]["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|condition| condition["type"] == kind))
        .cloned()
        .unwrap_or(Value::Null)
}

/// The record's lines in a log.
pub fn lines(log: &str) -> Vec<Value> {
    log.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Finds the process of this program in the container with this status. The node's processes run on
/// this machine.
pub fn process_of(status: &Value, program: &str) -> Result<Pid> {
    let id = status["containerID"].as_str();
    let id = id.and_then(|id| id.rsplit('/').next());
    let id = id.with_context(|| format!("a container: {status}"))?;
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process that has just ended has neither file.
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let runs = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        if groups.contains(id) && runs.ends_with(program) {
            return Pid::from_raw(pid).context("a process");
        }
    }
    anyhow::bail!("no process of container {id} on this machine runs {program}")
}

/// Returns a pod without an agent, which reads the servers' logs with the servers' own tokens.
fn observer(namespace: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: observer, namespace: {namespace}}}
spec:
  automountServiceAccountToken: false
  securityContext: {{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {{type: RuntimeDefault}}}}
  containers:
  - name: observer
    image: docker.io/toolcrib/runner-python:dev
    imagePullPolicy: IfNotPresent
    command: [sleep, infinity]
    securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
"#
    )
}
