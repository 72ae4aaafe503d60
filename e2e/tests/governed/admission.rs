//! Admission of agents' pods, and the messages for refused ones.

use anyhow::{Result, ensure};

use crate::support::{Desk, START};
use toolcrib_e2e::platform::PollResult;

#[test]
fn pods_are_admitted_with_the_mediator_or_refused() -> Result<()> {
    let desk = Desk::open("gates")?;

    let refusal = desk
        .platform
        .refused(&pod("gates", "lonely", Some("nobody"), ""))?;
    ensure!(
        refusal.contains("nobody"),
        "names the missing agent: {refusal}"
    );
    ensure!(
        refusal.to_lowercase().contains("agent"),
        "says what to do: {refusal}"
    );

    let refusal = desk.platform.refused(&pod(
        "gates",
        "sharing",
        Some("analyst"),
        "  shareProcessNamespace: true\n",
    ))?;
    ensure!(refusal.contains("shareProcessNamespace"), "{refusal}");

    // A pod without the label is not changed.
    desk.platform.apply(&pod("gates", "bystander", None, ""))?;
    let bystander = desk
        .platform
        .get(&["pod", "bystander", "--namespace", "gates"])?;
    assert_eq!(bystander["spec"]["initContainers"], serde_json::Value::Null);
    assert_eq!(bystander["spec"]["volumes"], serde_json::Value::Null);

    // An injected pod has the mediator as a native sidecar and passes Pod Security `restricted`,
    // which the example's namespace enforces.
    let analyst = desk
        .platform
        .get(&["pod", "analyst", "--namespace", "gates"])?;
    assert_eq!(
        analyst["spec"]["initContainers"][0]["name"],
        "toolcrib-mediator"
    );
    assert_eq!(
        analyst["spec"]["initContainers"][0]["restartPolicy"],
        "Always"
    );
    desk.passed()
}

#[test]
fn a_job_with_an_injected_agent_completes() -> Result<()> {
    let desk = Desk::open("jobs")?;
    desk.platform.apply(
        r#"
apiVersion: batch/v1
kind: Job
metadata: {name: question, namespace: jobs}
spec:
  backoffLimit: 0
  template:
    metadata:
      labels: {toolcrib.dev/agent: analyst}
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: runner
        image: docker.io/toolcrib/runner-python:dev
        imagePullPolicy: IfNotPresent
        command: [python3, /agent/ask.py, "What is my market context?"]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: program, mountPath: /agent, readOnly: true}]
      volumes:
      - name: program
        configMap: {name: agent-program}
"#,
    )?;
    desk.platform.eventually("the Job to complete", START, || {
        let job = desk
            .platform
            .get(&["job", "question", "--namespace", "jobs"])?;
        ensure!(
            job["status"]["failed"].as_u64().unwrap_or(0) == 0,
            "the Job failed: {}",
            job["status"]
        );
        Ok(PollResult::when(
            job["status"]["succeeded"] == 1,
            job["status"].to_string(),
        ))
    })?;
    let said = desk.platform.kubectl(&[
        "logs",
        "--namespace",
        "jobs",
        "job/question",
        "--container",
        "runner",
    ])?;
    ensure!(said.contains("analyst"), "{said}");
    desk.passed()
}

fn pod(namespace: &str, name: &str, agent: Option<&str>, more: &str) -> String {
    let labels = agent.map_or(String::new(), |agent| {
        format!("  labels: {{toolcrib.dev/agent: {agent}}}\n")
    });
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {namespace}
{labels}spec:
  automountServiceAccountToken: false
{more}  securityContext: {{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {{type: RuntimeDefault}}}}
  containers:
  - name: runner
    image: docker.io/toolcrib/runner-python:dev
    imagePullPolicy: IfNotPresent
    command: [sleep, infinity]
    securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
"
    )
}
