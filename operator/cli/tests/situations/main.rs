//! Faults as users see them, in each place where they look: the columns of `kubectl get`,
//! conditions, Events, `kubectl toolcrib explain`, the program's answer, the record and metrics.
//! The test compares all of them with `docs/reference/situations.md`.
//!
//! The controller and the mediators are real and run in this process. The pods are only objects,
//! because the control plane has no node. `UPDATE_EXPECT=1` writes the page.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

#[allow(dead_code, reason = "the operator's tests use the rest")]
#[path = "../../../tests/apiserver/support/harness.rs"]
mod harness;
mod mediator;
mod page;
mod staging;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use harness::{DEADLINE, Harness, free_port};
use mediator::{AGENT, NameServer};
use page::Observation;
use serde_json::json;
use staging::{Ports, Scene, example, operator_goes, stage};
use table::SITUATIONS;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use toolcrib_e2e::platform::repository;
use toolcrib_e2e::services::{desk, model, serving};

/// The namespace's name on the page.
const NAMESPACE: &str = "trading";
const PAGE: &str = "docs/reference/situations.md";
/// Time between two looks at all places.
const LOOK: Duration = Duration::from_millis(300);
/// Looks in a row without a difference: a text that is right for a moment is not enough.
const EQUAL_LOOKS: u32 = 3;
/// The time without a change before `UPDATE_EXPECT` takes the sections as final: longer than the stale
/// time.
const UNCHANGED: Duration = Duration::from_secs(5);

async fn listen(router: axum::Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serving::serve_on(listener, router, std::future::pending()));
    address
}

/// The model calls the tool once, offered or not, and then repeats the result.
const SCRIPT: &str = r#"
steps:
- when: {round: 0}
  reply: {calls: [{tool: {named: trading-api__get_market_context}, arguments: {}}]}
- reply: {text: "The tool answered: {tool_result}"}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn each_situation_matches_the_page() {
    let keys = tempfile::tempdir().unwrap();
    fs::write(keys.path().join("model"), "sk-scripted-7c1e52f0").unwrap();
    fs::create_dir(keys.path().join("tokens")).unwrap();
    fs::write(keys.path().join("tokens/reader"), "desk-reader-41d9b7a2").unwrap();
    let script = model::Script::parse(SCRIPT).unwrap();
    let model = model::ModelState::new(keys.path().join("model"), script);
    let desk = desk::DeskState::new(keys.path().join("tokens"));
    let ports = Ports {
        desk: listen(desk::router(desk)).await.port(),
        model: listen(model::router(model)).await.port(),
        closed: free_port().port(),
    };
    let names = NameServer::start().await;
    let mut harness = Harness::new().await;
    harness.stale_after = Duration::from_secs(2);
    harness.name_servers = vec![names.address.to_string().parse().unwrap()];

    let mut staged = Vec::new();
    for situation in SITUATIONS {
        let namespace = format!("{}-{}", harness.pond, situation.name);
        harness.make_namespace(&namespace).await;
        if situation.name != "not-served" {
            harness.others.insert(namespace.clone());
        }
        let mut objects = example(&namespace, ports.service(situation), ports.model(situation));
        (situation.edit)(&mut objects);
        for mut object in objects.0 {
            object["metadata"]["namespace"] = json!(namespace);
            harness.apply(object).await;
        }
        staged.push(Scene {
            situation,
            namespace,
            mediated: None,
            answer: None,
            log: None,
            reporting: JoinSet::new(),
        });
    }
    harness.start("heron");
    futures::future::join_all(staged.iter_mut().map(|one| stage(&harness, one))).await;

    let mut sections = BTreeMap::new();
    let (last, others) = staged.split_last().unwrap();
    let golden = fs::read_to_string(repository().join(PAGE)).unwrap_or_default();
    settle(&harness, &ports, others, &mut sections, &golden).await;
    harness.stop().await;
    operator_goes(&harness, last).await;
    settle(
        &harness,
        &ports,
        std::slice::from_ref(last),
        &mut sections,
        &golden,
    )
    .await;

    let page = page(&sections);
    if updates() {
        fs::write(repository().join(PAGE), &page).unwrap();
    } else if page != golden {
        let sections = sections.values();
        let other: String = sections
            .filter(|section| !golden.contains(section.trim_end()))
            .cloned()
            .collect();
        panic!("{PAGE} differs (UPDATE_EXPECT=1 writes it). Its head, or these sections:\n{other}");
    }
    for one in staged {
        harness.others.insert(one.namespace);
    }
    harness.end().await;
}

fn page(sections: &BTreeMap<usize, String>) -> String {
    let mut page = String::from(
        "# Situations\n\n\
         What columns, conditions, Events, `explain`, the program's answer, the record and metrics say in\n\
         situations that go wrong. A test stages each one and compares it with this page. The namespace is\n\
         `trading`; the agent and its pod are called `analyst`. The columns CALLS and DENIED are left out.\n\
         [Troubleshooting](../troubleshooting.md) leads from a symptom to its cause.\n\n",
    );
    for situation in SITUATIONS {
        let anchor: String = situation
            .title
            .to_lowercase()
            .chars()
            .filter(|character| character.is_alphanumeric() || *character == ' ')
            .map(|character| if character == ' ' { '-' } else { character })
            .collect();
        page += &format!("- [{}](#{anchor})\n", situation.title);
    }
    page.push('\n');
    page += &sections.values().cloned().collect::<String>();
    page.trim_end().to_owned() + "\n"
}

fn updates() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some()
}

/// Looks until the sections equal those of the page several times in a row, or, with `UPDATE_EXPECT`,
/// stop changing.
async fn settle(
    harness: &Harness,
    ports: &Ports,
    staged: &[Scene],
    sections: &mut BTreeMap<usize, String>,
    golden: &str,
) {
    let begun = tokio::time::Instant::now();
    let mut looks_at = tokio::time::interval(LOOK);
    let mut same = 0;
    let mut changed = begun;
    let mut other = String::new();
    loop {
        looks_at.tick().await;
        let looks = staged.iter().map(|one| section(harness, ports, one));
        let came: Vec<String> = futures::future::join_all(looks).await;
        let mut all = true;
        for (one, text) in staged.iter().zip(came) {
            let number = SITUATIONS
                .iter()
                .position(|other| other.name == one.situation.name);
            let is_equal = if updates() {
                sections.get(&number.unwrap()) == Some(&text)
            } else {
                golden.contains(text.trim_end())
            };
            if !is_equal {
                all = false;
                other.clone_from(&text);
            }
            sections.insert(number.unwrap(), text);
        }
        same = if all { same + 1 } else { 0 };
        if !all {
            changed = tokio::time::Instant::now();
        }
        if same >= EQUAL_LOOKS && (!updates() || changed.elapsed() >= UNCHANGED) {
            return;
        }
        if begun.elapsed() > DEADLINE {
            // Otherwise the caller shows how the page differs.
            let is_changing = updates() || all;
            assert!(!is_changing, "the sections still change, such as:\n{other}");
            return;
        }
    }
}

async fn section(harness: &Harness, ports: &Ports, one: &Scene) -> String {
    let seen = Observation {
        title: one.situation.title,
        text: one.situation.text,
        namespace: &one.namespace,
        mediated: one.mediated.as_ref(),
        answer: one.answer.as_deref(),
        log: one.log.as_deref(),
    };
    let explained = explain(&one.namespace, &harness.system).await;
    let text = page::section(harness, &seen, &explained).await;
    let replaced = [
        (one.namespace.clone(), NAMESPACE),
        (harness.system.clone(), "toolcrib-system"),
        (ports.service(one.situation).to_string(), "4000"),
        (ports.model(one.situation).to_string(), "8080"),
    ];
    page::normalized(&text, &replaced)
}

async fn explain(namespace: &str, system: &str) -> String {
    let namespace = namespace.to_owned();
    let system = system.to_owned();
    let run = move || {
        Command::new(env!("CARGO_BIN_EXE_kubectl-toolcrib"))
            .args(["explain", AGENT, "--namespace", &namespace])
            .args([
                "--operator-namespace",
                &system,
                "--cluster-domain=cluster.local",
            ])
            .env(
                "KUBECONFIG",
                std::env::var("TOOLCRIB_TEST_KUBECONFIG").unwrap(),
            )
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    text(output.stderr) + &text(output.stdout)
}
