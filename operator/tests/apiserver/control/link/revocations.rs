//! Every way to take a tool, a feed or a model away, over the link.

use serde_json::{Value, json};

use super::{Mediator, delete, has, ours};
use crate::support::harness::Harness;
use crate::support::pods;
use crate::tools;

/// One source of an agent's tools or models; deleting it revokes them.
pub(super) struct Way {
    pub name: &'static str,
    /// The tool that goes; `None`: models or everything.
    pub tool: Option<&'static str>,
    pub object: Value,
    /// The object to apply instead; `None`: the object is deleted.
    pub without: Option<Value>,
}

fn read_tool() -> Value {
    json!({"name": "read", "inputSchema": {"type": "object"},
        "http": {"method": "GET", "path": "/read"}, "annotations": {"readOnly": true}})
}

fn secret(namespace: &str, name: &str, host: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {"toolcrib.dev/credential": "true"},
            "annotations": {"toolcrib.dev/hosts": host},
        },
        "stringData": {"token": format!("{name}-5c1d")},
    })
}

/// An agent that gets each tool from another source.
pub(super) fn otter(pond: &str, lake: &str) -> Vec<Way> {
    let surface = |name: &str| {
        let spec = json!({"url": format!("https://{name}.example"),
            "descriptor": {"version": 2, "tools": [read_tool()]}});
        ours("Surface", pond, name, spec)
    };
    let grant = |name: &str, surface: Value| {
        let spec = json!({"agents": ["otter"], "tools": [{"surface": surface, "allow": ["*"]}]});
        ours("ToolGrant", pond, name, spec)
    };
    let plain = |name: &str| json!({"name": name});
    let news = json!({"name": "news", "namespace": lake});
    let mut consenting = ours(
        "Surface",
        lake,
        "news",
        json!({
        "url": "https://news.example", "consumers": {"namespaces": {"from": "All"}},
        "descriptor": {"version": 2, "tools": [read_tool()]}}),
    );
    let with_consent = consenting.clone();
    consenting["spec"]
        .as_object_mut()
        .unwrap()
        .remove("consumers");
    let mut keyed = surface("keyed");
    keyed["spec"]["auth"] = json!({"secretKeyRef": {"name": "keyed", "key": "token"}});
    let way = |name, tool, object| Way {
        name,
        tool,
        object,
        without: None,
    };
    vec![
        way("setup", None, surface("granted")),
        way("setup", None, surface("default")),
        way("setup", None, keyed),
        way("setup", None, grant("surfaces", plain("gone"))),
        way("setup", None, grant("foreign", news.clone())),
        way("setup", None, grant("keys", plain("keyed"))),
        way(
            "grant",
            Some("granted.read"),
            grant("granted", plain("granted")),
        ),
        way(
            "defaults",
            Some("default.read"),
            ours(
                "ToolDefaults",
                pond,
                "default",
                json!({"tools": [{"surface": plain("default"), "allow": ["*"]}]}),
            ),
        ),
        way("surface", Some("gone.read"), surface("gone")),
        Way {
            name: "consent",
            tool: Some("news.read"),
            object: with_consent,
            without: Some(consenting),
        },
        way(
            "secret",
            Some("keyed.read"),
            secret(pond, "keyed", "keyed.example"),
        ),
        way(
            "provider",
            None,
            ours(
                "ModelProvider",
                pond,
                "reef",
                json!({"endpoints": [{"dialect": "OpenAI", "url": "https://reef.example/v1"}], "auth": "None"}),
            ),
        ),
        way(
            "agent",
            None,
            ours(
                "Agent",
                pond,
                "otter",
                json!({"surfaces": [
            plain("granted"), plain("default"), plain("keyed"), plain("gone"), news]}),
            ),
        ),
    ]
}

/// The histogram of revocations: how many were measured, and how many took at most two seconds.
async fn revocations(harness: &Harness) -> (u64, u64) {
    let text = reqwest::get(format!("http://{}/metrics", harness.health))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let of = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (
        of("toolcrib_revocation_seconds_count"),
        of("toolcrib_revocation_seconds_bucket{le=\"2.0\"}"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_revocation_is_denied_and_acknowledged_over_the_link() {
    let mut harness = Harness::new().await;
    let lake = harness.other_namespace().await;
    harness.start("heron");
    let ways = otter(&harness.pond, &lake);
    for way in &ways {
        harness.apply(way.object.clone()).await;
    }
    let files = harness
        .files("otter", "all tools", |files| {
            tools(files).len() == 5 && files["providers.json"]["providers"]["reef"].is_object()
        })
        .await;
    let mut mediators = Vec::new();
    for name in ["otter-1", "otter-2"] {
        let pod = pods::create(&harness, name, "otter").await;
        let mediator = Mediator::start(&harness, &pod, &files).await;
        mediator.whole().await;
        mediators.push(mediator);
    }
    for way in ways.iter().filter(|way| way.name != "setup") {
        let before = revocations(&harness).await.0;
        match &way.without {
            Some(without) => harness.apply(without.clone()).await,
            None => delete(&harness, &way.object).await,
        }
        for mediator in &mediators {
            mediator
                .until(way.name, |now| match way.tool {
                    Some(tool) => !has(now, tool),
                    None if way.name == "provider" => !now.provider_stands("reef"),
                    None => now.version().is_err(),
                })
                .await;
            if let Some(tool) = way.tool {
                let allowlist = mediator.current.now().allowlist.clone().unwrap();
                assert_eq!(
                    allowlist.tools.len(),
                    4,
                    "nothing but {tool} goes: {allowlist:?}"
                );
            }
        }
        harness
            .eventually("the last pod's acknowledgement", || async {
                (revocations(&harness).await.0 > before).then_some(())
            })
            .await;
        // A tool that is granted again is allowed again: the files never changed here.
        harness.apply(way.object.clone()).await;
        for mediator in &mediators {
            mediator.whole().await;
        }
    }
    let (all, _) = revocations(&harness).await;
    assert_eq!(all, 7, "each once");
    assert_eq!(harness.metric("revocations_open").await, 0.0);
    // Between two requests a mediator has no long poll for a moment.
    harness
        .eventually("both mediators wait", || async {
            (harness.metric("link_held").await == 2.0).then_some(())
        })
        .await;
    harness.end().await;
}
