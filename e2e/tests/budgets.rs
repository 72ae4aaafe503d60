//! Five pods call a tool in a loop under one budget of calls, while mediators and controllers are
//! killed.
//!
//! A separate target, since it disturbs every test that bounds the time of a revocation.

#[path = "governed/support.rs"]
#[expect(dead_code, reason = "shared with the other end-to-end tests")]
mod support;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};
use support::{Desk, START, condition, process_of};
use toolcrib_e2e::platform::{NAMESPACE, PollResult};

const HERE: &str = "budgets";
const PODS: usize = 5;
/// Calls that all pods together may make.
const LIMIT: usize = 300;
/// Number of calls over the limit that the docs allow. Each pod makes one call a second, and knows
/// the other pods' calls up to 15 seconds late. When it learns the last sum, it may have one more
/// call in flight.
const MOST_OVER: usize = PODS * 15 + PODS;
/// Timeout for the budget to end the loop. Without faults that takes a minute.
const LOOP: Duration = Duration::from_secs(300);

#[test]
fn five_pods_in_a_loop_stop_at_one_budget() -> Result<()> {
    let desk = Desk::open(HERE)?;
    desk.platform.apply(include_str!("budgets/objects.yaml"))?;
    let pods: Vec<String> = (1..=PODS)
        .map(|number| format!("spender-{number}"))
        .collect();
    for pod in &pods {
        let text = include_str!("budgets/pod.yaml").replace("POD", pod);
        desk.platform.apply(&text)?;
    }
    let names: Vec<&str> = pods.iter().map(String::as_str).collect();
    desk.platform.wait_ready(HERE, &names)?;

    let begun = Instant::now();
    let (mut killed, mut leader_is_killed) = (0, false);
    desk.platform
        .eventually("every pod to be refused", LOOP, || {
            let calls = calls(&desk)?;
            // Kills the controllers early: without a leader, each pod counts from the last sum that
            // it received.
            if calls > LIMIT / 15 && !leader_is_killed {
                kill_controllers(&desk)?;
                leader_is_killed = true;
            }
            if calls > LIMIT * (killed + 1) / 5 && calls < LIMIT {
                killed += 1;
                kill_mediator(&desk, &pods[random(PODS)?])?;
            }
            let refused = pods.iter().map(|pod| is_refused(&desk, pod));
            let refused = refused.collect::<Result<Vec<bool>>>()?;
            let is_over = refused.iter().all(|refused| *refused);
            match is_over {
                true => Ok(PollResult::Yes(())),
                false => Ok(PollResult::NotYet(format!(
                    "{calls} calls, refused: {refused:?}"
                ))),
            }
        })?;
    let spent = calls(&desk)?;
    println!(
        "{spent} calls of a budget of {LIMIT} by {PODS} pods in {:?}; {killed} mediators and the controllers were killed",
        begun.elapsed()
    );
    ensure!(
        killed > 0 && leader_is_killed,
        "nothing was killed: {killed}"
    );
    // A mediator that is killed after counting a call and before sending it loses that call.
    ensure!(spent + killed >= LIMIT, "{spent} of {LIMIT} calls");
    ensure!(spent <= LIMIT + MOST_OVER, "{spent} of {LIMIT} calls");

    // The pods keep calling, and every call is refused.
    desk.platform
        .eventually("the status to say so", START, || {
            let agent = desk.agent("spender")?;
            let budget = &agent["status"]["budgets"][0];
            let used = budget["used"].as_u64().unwrap_or_default();
            let is_counted = used >= LIMIT as u64 && budget["limit"] == LIMIT;
            let is_said = condition(&agent, "Ready")["reason"] == "BudgetUsedUp";
            Ok(PollResult::when(
                is_counted && is_said,
                agent["status"].to_string(),
            ))
        })?;
    ensure!(calls(&desk)? == spent, "calls after the budget was used up");
    desk.passed()
}

/// Counts the calls that have reached the trading desk.
fn calls(desk: &Desk) -> Result<usize> {
    let asked = desk.asked()?;
    let is_call = |path: &str| path.contains("market_context");
    let calls = asked
        .iter()
        .filter(|it| it["target"].as_str().is_some_and(is_call));
    Ok(calls.count())
}

/// Returns true if the budget refused the pod's last three calls.
fn is_refused(desk: &Desk, pod: &str) -> Result<bool> {
    let log = ["logs", "--namespace", HERE, pod, "-c", "runner", "--tail=3"];
    let log = desk.platform.kubectl(&log)?;
    let lines: Vec<&str> = log.lines().collect();
    Ok(lines.len() == 3 && lines.iter().all(|line| *line == "quota_exhausted"))
}

fn kill_mediator(desk: &Desk, pod: &str) -> Result<()> {
    let object = desk.platform.get(&["pod", pod, "--namespace", HERE])?;
    let mediator = process_of(
        &object["status"]["initContainerStatuses"][0],
        "toolcrib-sidecar",
    );
    // A mediator that is down already has no process.
    if let Ok(mediator) = mediator {
        kill_process(mediator, Signal::KILL).context("kill the mediator")?;
    }
    Ok(())
}

fn kill_controllers(desk: &Desk) -> Result<()> {
    let of = "--selector=app.kubernetes.io/component=controller";
    let delete = ["delete", "pods", "--namespace", NAMESPACE, of];
    let at_once = ["--grace-period=0", "--force", "--wait=false"];
    desk.platform.kubectl(&[&delete[..], &at_once].concat())?;
    Ok(())
}

fn random(below: usize) -> Result<usize> {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
    Ok(nanos as usize % below)
}
