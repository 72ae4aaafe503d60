//! Revoking and granting again, in running pods.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;
use toolcrib_e2e::platform::PollResult;

use crate::support::{Desk, VOLUME};

/// Timeout for a new grant to reach a running pod. It is half of the kubelet's own interval, so a
/// longer time means that no refresh hint had an effect.
const HINTED: Duration = Duration::from_secs(30);

#[test]
fn deleting_a_grant_revokes_the_tool_in_the_running_pod() -> Result<()> {
    let desk = Desk::open("withdrawal")?;
    let before = desk.wait_in_force("analyst")?;
    assert_eq!(before["status"]["toolCount"], 1);
    let pod = pod_start(&desk, "analyst")?;

    let grant = desk.platform.kubectl(&[
        "get",
        "toolgrant",
        "analyst-reads",
        "--namespace",
        &desk.namespace,
        "--output=yaml",
    ])?;
    let delete = [
        "delete",
        "toolgrant",
        "analyst-reads",
        "--namespace",
        &desk.namespace,
    ];
    desk.platform.kubectl(&delete)?;
    // If the tool is not offered, the script's last step lists the offered ones.
    desk.platform
        .eventually("the tool to be withdrawn", VOLUME, || {
            let answer = desk.ask("analyst", "What is my market context?")?;
            Ok(PollResult::when(
                answer.trim() == "I was offered these tools: local_clock",
                answer,
            ))
        })?;
    let asked = desk.asked()?.len();
    let answer = desk.ask("analyst", "Make a trade: buy 3 OTTR");
    assert_eq!(
        desk.asked()?.len(),
        asked,
        "nothing was executed: {answer:?}"
    );

    desk.platform.apply(&grant)?;
    let given = Instant::now();
    desk.platform
        .eventually("the tool to be back", HINTED, || {
            let answer = desk.ask("analyst", "What is my market context?")?;
            Ok(PollResult::when(answer.contains("analyst"), answer))
        })?;
    println!("given back after {:.1} s", given.elapsed().as_secs_f64());
    assert_eq!(
        pod_start(&desk, "analyst")?,
        pod,
        "no container was restarted"
    );

    a_policy_of_the_cluster_restricts_it(&desk)?;

    // Without its Agent the pod has no access.
    desk.platform
        .kubectl(&["delete", "agent", "analyst", "--namespace", &desk.namespace])?;
    desk.platform
        .eventually("access to be withdrawn", VOLUME, || {
            let output = desk.platform.try_kubectl(
                &[
                    "exec",
                    "--namespace",
                    &desk.namespace,
                    "analyst",
                    "--",
                    "python3",
                    "/agent/ask.py",
                    "hello",
                ],
                "",
            )?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Ok(PollResult::when(
                !output.status.success() && said.contains("access of this agent is withdrawn"),
                said,
            ))
        })?;
    ensure!(
        desk.ask("executor", "What is my market context?")?
            .contains("executor"),
        "another agent is affected"
    );
    desk.passed()
}

/// Checks that a ClusterToolPolicy denies the agent's tools, suspends the agent, and restores both
/// when it is deleted.
fn a_policy_of_the_cluster_restricts_it(desk: &Desk) -> Result<()> {
    let policy = |restriction: &str| {
        format!(
            "apiVersion: toolcrib.dev/v1alpha1
kind: ClusterToolPolicy
metadata: {{name: {0}-analyst}}
spec: {{agents: [{{namespace: {0}, name: analyst}}], {restriction}}}
",
            desk.namespace
        )
    };
    let deny = format!(
        "deny: [{{surface: {{namespace: {}, name: trading-api}}}}]",
        desk.namespace
    );
    desk.platform.apply(&policy(&deny))?;
    let denied = Instant::now();
    desk.platform
        .eventually("the tool to be denied", HINTED, || {
            let answer = desk.ask("analyst", "What is my market context?")?;
            Ok(PollResult::when(
                answer.trim() == "I was offered these tools: local_clock",
                answer,
            ))
        })?;
    println!(
        "denied by a policy after {:.1} s",
        denied.elapsed().as_secs_f64()
    );
    desk.platform.apply(&policy("suspend: true"))?;
    let stopped = Instant::now();
    desk.platform
        .eventually("the agent to be stopped", HINTED, || {
            let answer = desk.ask("analyst", "What is my market context?");
            Ok(PollResult::when(answer.is_err(), format!("{answer:?}")))
        })?;
    println!(
        "stopped by a policy after {:.1} s",
        stopped.elapsed().as_secs_f64()
    );
    let policy = format!("{}-analyst", desk.namespace);
    desk.platform
        .kubectl(&["delete", "clustertoolpolicy", &policy])?;
    desk.platform
        .eventually("the tool to be back", HINTED, || {
            let answer = desk.ask("analyst", "What is my market context?");
            let back = answer.as_ref().is_ok_and(|it| it.contains("analyst"));
            Ok(PollResult::when(back, format!("{answer:?}")))
        })
        .map(drop)
}

/// Returns values that change when a container of the pod is restarted.
fn pod_start(desk: &Desk, pod: &str) -> Result<Vec<Value>> {
    let pod = desk
        .platform
        .get(&["pod", pod, "--namespace", &desk.namespace])?;
    let all = ["containerStatuses", "initContainerStatuses"];
    Ok(all
        .iter()
        .flat_map(|list| pod["status"][list].as_array().cloned().unwrap_or_default())
        .map(|container| container["containerID"].clone())
        .collect())
}
