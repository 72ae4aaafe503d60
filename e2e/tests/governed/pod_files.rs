//! Clawdapus pod files: imported, applied and running.
//!
//! The pod files are those of the import's own cases, unchanged except for the agents' images.
//! Their namespaces already have the example's model and service.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::evidence::Evidence;
use toolcrib_e2e::platform::{Platform, repository};

use crate::offline::plugin;
use crate::support::{SECRETS, platform};

/// Image and entrypoint of the agents' containers. They sleep until a test runs the agents' program
/// in them.
const RUNNER: &str =
    "image: docker.io/toolcrib/runner-python:dev\n    entrypoint: [sleep, infinity]\n";
const CONTEXT: &str = "What is my market context?";
const TRADE: &str = "Make a trade: buy 3 OTTR";

struct Pod {
    platform: Platform,
    namespace: &'static str,
    /// The agents' program, from the example.
    program: String,
    evidence: Evidence,
}

impl Pod {
    /// Imports the case's pod file after `edit`, applies all objects, and waits for the pods.
    fn open(
        case: &str,
        namespace: &'static str,
        agents: &[&str],
        edit: impl Fn(&str) -> String,
    ) -> Result<Pod> {
        let platform = platform()?;
        let evidence = Evidence::of(&platform, &[namespace]);
        let folder = tempfile::tempdir()?;
        let from = repository()
            .join("operator/cli/tests/authoring/import")
            .join(case);
        let text = std::fs::read_to_string(from.join("claw-pod.yml"))?;
        std::fs::write(folder.path().join("claw-pod.yml"), edit(&text))?;
        std::fs::copy(from.join("desk.json"), folder.path().join("desk.json"))?;
        let values = format!("TRADING_API_TOKEN={}\n", SECRETS[1]);
        std::fs::write(folder.path().join(".env"), values)?;
        let existing = existing(namespace)?;
        std::fs::write(folder.path().join("existing.yaml"), &existing)?;

        run(Command::new(plugin()?)
            .current_dir(folder.path())
            .args(["import", "claw-pod.yml", "--namespace", namespace])
            .args(["--describe", "trading-api=desk.json", "--with-secrets"])
            .args(["--filename", "existing.yaml", "--output-dir", "objects"])
            .env_remove("KUBECONFIG"))?;
        platform.apply(&existing)?;
        let objects = folder.path().join("objects");
        let objects = objects.to_str().context("the folder's name")?;
        platform.kubectl(&["apply", "--filename", objects])?;
        for deployment in ["scripted-model", "trading-api"].iter().chain(agents) {
            platform.kubectl(&[
                "rollout",
                "status",
                "--timeout=180s",
                "--namespace",
                namespace,
                &format!("deployment/{deployment}"),
            ])?;
        }
        let map = platform.get(&["configmap", "agent-program", "--namespace", namespace])?;
        Ok(Pod {
            platform,
            namespace,
            evidence,
            program: map["data"]["ask.py"]
                .as_str()
                .context("the program")?
                .to_owned(),
        })
    }

    fn ask(&self, agent: &str, question: &str) -> Result<String> {
        self.platform.exec(
            self.namespace,
            &format!("deployment/{agent}"),
            &["python3", "-c", &self.program, question],
        )
    }

    fn reads(&self, agent: &str) -> Result<()> {
        let answer = self.ask(agent, CONTEXT)?;
        ensure!(
            answer.contains("\"ok\":true") && answer.contains(agent),
            "{agent} reads: {answer}"
        );
        Ok(())
    }

    fn trades(&self, agent: &str) -> Result<()> {
        let answer = self.ask(agent, TRADE)?;
        ensure!(answer.contains("filled"), "{agent} trades: {answer}");
        Ok(())
    }

    fn may_not_trade(&self, agent: &str) -> Result<()> {
        let answer = self.ask(agent, TRADE)?;
        ensure!(
            answer.contains("\"ok\":false"),
            "{agent} must not trade: {answer}"
        );
        Ok(())
    }
}

/// Returns the example's model and service, and the agents' program. The provider is the only
/// object of our own kinds.
fn existing(namespace: &str) -> Result<String> {
    let all = Platform::example(Some(namespace))?;
    let ours = ["Surface", "Agent", "ToolGrant", "Pod", "Namespace"];
    let documents: Vec<&str> = all
        .split("---\n")
        .filter(|document| !document.trim().is_empty())
        .filter(|document| {
            !document.lines().any(|line| {
                line.strip_prefix("kind: ")
                    .is_some_and(|kind| ours.contains(&kind))
            })
        })
        .collect();
    Ok(documents.join("---\n"))
}

#[test]
fn the_guide_s_basic_pod_file_runs() -> Result<()> {
    let pod = Pod::open(
        "guide-basic",
        "imp-basic",
        &["analyst", "executor"],
        |text| {
            text.replace("image: analyst:latest\n", RUNNER)
                .replace("image: executor:latest\n", RUNNER)
        },
    )?;
    pod.reads("analyst")?;
    pod.may_not_trade("analyst")?;
    pod.trades("executor")?;
    pod.evidence.passed()
}

#[test]
fn the_guide_s_pod_file_with_defaults_runs() -> Result<()> {
    // The pod file names no image, so the test adds one.
    let pod = Pod::open("guide-defaults", "imp-defaults", &["analyst"], |text| {
        text.replace("  analyst:\n", &format!("  analyst:\n    {RUNNER}"))
    })?;
    pod.reads("analyst")?;
    pod.trades("analyst")?;
    pod.evidence.passed()
}

#[test]
fn the_decision_record_s_pod_file_runs() -> Result<()> {
    let pod = Pod::open("adr-020", "imp-adr", &["analyst", "executor"], |text| {
        text.replace("  analyst:\n", &format!("  analyst:\n    {RUNNER}"))
            .replace("  executor:\n", &format!("  executor:\n    {RUNNER}"))
    })?;
    pod.reads("analyst")?;
    pod.may_not_trade("analyst")?;
    pod.trades("executor")?;
    pod.evidence.passed()
}
