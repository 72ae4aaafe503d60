//! The demonstration: applies the trading-desk example and shows what its agents may do.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::approvals::{self, Person};
use crate::cluster::Progress;
use crate::platform::{Platform, PollResult};

/// The example's namespace.
pub const NAMESPACE: &str = "trading";
/// Timeout for the agents to be ready. Their pods are ready before, and mediators report a change
/// at once.
const IN_FORCE: Duration = Duration::from_secs(120);

/// Applies the example and asks both agents. Safe to repeat.
pub fn tell(platform: &Platform, progress: &Progress) -> Result<()> {
    progress.stage("applying crds/examples/trading-desk");
    platform.apply(&Platform::example(None)?)?;
    for server in ["deployment/scripted-model", "deployment/trading-api"] {
        platform.kubectl(&[
            "rollout",
            "status",
            "--timeout=120s",
            "--namespace",
            NAMESPACE,
            server,
        ])?;
    }
    platform.wait_ready(NAMESPACE, &["analyst", "executor"])?;
    progress.stage("the agents' pods are ready");
    platform.eventually("both agents to be ready", IN_FORCE, || {
        let agents = platform.kubectl(&[
            "get",
            "agents",
            "--namespace",
            NAMESPACE,
            "--output",
            r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}"#,
        ])?;
        Ok(PollResult::when(agents == "True True", agents))
    })?;

    say(
        "What the admin sees",
        &["kubectl get agents --namespace trading"],
    );
    print!(
        "{}",
        platform.kubectl(&["get", "agents", "--namespace", NAMESPACE])?
    );

    let scenes = [
        (
            "The analyst may read",
            "analyst",
            "What is my market context?",
        ),
        (
            "The analyst may not trade; its model asks anyway",
            "analyst",
            "Make a trade: buy 3 OTTR",
        ),
        (
            "The executor may, with a credential of its own",
            "executor",
            "Make a trade: buy 3 OTTR",
        ),
    ];
    for (title, agent, question) in scenes {
        let shown = format!(
            "kubectl exec --namespace trading {agent} -- python3 /agent/ask.py '{question}'"
        );
        say(title, &[&shown]);
        print!(
            "{}",
            platform.exec(NAMESPACE, agent, &["python3", "/agent/ask.py", question])?
        );
    }

    a_large_trade(platform)?;

    let direct = "curl -s -w ' (%{http_code})\\n' -H \"Authorization: Bearer $OPENAI_API_KEY\" http://trading-api:4000/api/v1/positions";
    say(
        "Bypassing the mediator yields nothing",
        &[
            "kubectl exec --namespace trading executor -- sh -c …",
            direct,
        ],
    );
    print!(
        "{}",
        platform.exec(NAMESPACE, "executor", &["sh", "-c", direct])?
    );

    say(
        "The mediator's record",
        &["kubectl logs --namespace trading executor --container toolcrib-mediator"],
    );
    let log = platform.kubectl(&[
        "logs",
        "--namespace",
        NAMESPACE,
        "executor",
        "--container",
        "toolcrib-mediator",
    ])?;
    for line in log
        .lines()
        .filter(|line| line.contains("tool_trace"))
        .rev()
        .take(1)
    {
        println!("{line}");
    }
    Ok(())
}

/// A trade that waits until a person approves it.
fn a_large_trade(platform: &Platform) -> Result<()> {
    let question = "Make a large trade: buy 500 OTTR";
    let shown = format!(
        "kubectl exec --namespace {NAMESPACE} executor -- python3 /agent/ask.py '{question}' &"
    );
    let list = ["get", "toolapprovals", "--namespace", NAMESPACE];
    let listed = format!("kubectl {}", list.join(" "));
    say(
        "A large trade waits until a lead of the desk approves it",
        &[&shown, &listed],
    );
    let carol = Person {
        name: "carol",
        groups: &["desk-leads"],
    };
    let answer = thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let ask = ["python3", "/agent/ask.py", question];
            platform.exec(NAMESPACE, "executor", &ask)
        });
        let approval = approvals::pending(platform, NAMESPACE, IN_FORCE)?;
        print!("{}", platform.kubectl(&list)?);
        let decision = approvals::decision(&approval, carol, "Approve", "");
        let text = serde_yaml::to_string(&decision)?;
        let create = "kubectl create --as carol --as-group desk-leads --filename - <<END";
        println!("$ {create}\n{text}END");
        let name = approvals::decide(platform, &decision, carol)?;
        println!("tooldecision.toolcrib.dev/{name} created");
        asked
            .join()
            .map_err(|_| anyhow!("the agent was not asked"))?
    })?;
    print!("{answer}");
    print!("$ {listed}\n{}", platform.kubectl(&list)?);
    Ok(())
}

fn say(title: &str, commands: &[&str]) {
    println!("\n# {title}");
    for command in commands {
        println!("$ {command}");
    }
}
