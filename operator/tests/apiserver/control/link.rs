//! The link end to end: the real controller with the mediator's real client.
//!
//! The mediators load the compiled files once and never again, as if the kubelet were down: tools
//! are lost by the link alone. Tokens are bound to pods (TokenRequest).

// clippy.toml allows unwrap in test functions, but not in their helpers.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use toolcrib_crds::{Agent, ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant};
use toolcrib_manifest::AgentPresence;
use toolcrib_operator::leadership::lease::Timing;
use toolcrib_sidecar::config::version::{Files, parse};
use toolcrib_sidecar::config::{CurrentConfig, EffectiveConfig, Observation};
use toolcrib_sidecar::metrics::Metrics;
use toolcrib_sidecar::outbound::link::{Link, LinkStatus};
use toolcrib_sidecar::outbound::model::ModelClient;
use toolcrib_sidecar::outbound::resolver::Resolver;
use toolcrib_sidecar::outbound::{LocalNames, Outbound};

use crate::support::harness::{DEADLINE, Harness, free_port};
use crate::support::pods::{self, AUDIENCE};
use crate::{ALL, READS, sorted, tools};

/// The mediator's end of the link, with its loaded files.
struct Mediator {
    current: Arc<CurrentConfig>,
    link: JoinHandle<()>,
    _token: tempfile::NamedTempFile,
}

impl Drop for Mediator {
    fn drop(&mut self) {
        self.link.abort();
    }
}

impl Mediator {
    async fn start(harness: &Harness, pod: &Pod, files: &BTreeMap<String, Value>) -> Self {
        let token_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token_file.path(), pods::token(harness, pod, AUDIENCE).await).unwrap();
        // Bytes of the Secret: the digests in agent.json are of these bytes.
        let secrets: Api<Secret> = harness.api(&harness.pond);
        let agent = files["agent.json"]["agent"].as_str().unwrap();
        let secret = secrets
            .get(&format!("toolcrib-{agent}-mediator"))
            .await
            .unwrap();
        let mut data = secret.data.unwrap();
        let mut take = |name: &str| data.remove(name).unwrap().0;
        let files = Files {
            agent: take("agent.json"),
            tools: take("tools.json"),
            providers: take("providers.json"),
            feeds: take("feeds.json"),
        };
        let version = parse(&files, &|_| None).unwrap();
        let current = Arc::new(CurrentConfig::default());
        current.observe(Observation::Loaded(Box::new(version)), "now".into());
        let host = format!("link.{}.svc", harness.system);
        let outbound = Outbound::new(LocalNames::Allowed, Resolver::of_machine())
            .with_address(&host, harness.link);
        let metrics = Arc::new(Metrics::default());
        let link = Link {
            current: current.clone(),
            metrics: metrics.clone(),
            status: LinkStatus::default(),
            models: Arc::new(ModelClient::new(metrics)),
            outbound: Arc::new(outbound),
            token_file: token_file.path().to_owned(),
            epoch: pod.name_any(),
        };
        Self {
            current,
            link: tokio::spawn(link.run()),
            _token: token_file,
        }
    }

    /// Waits until `seen` holds; returns the time.
    async fn until(&self, what: &str, seen: impl Fn(&EffectiveConfig) -> bool) -> Duration {
        let begun = Instant::now();
        let mut changes = self.current.subscribe();
        while !seen(&self.current.now()) {
            tokio::time::timeout_at(begun + DEADLINE, changes.changed())
                .await
                .unwrap_or_else(|_| {
                    let floor = self.current.now().floor.clone();
                    panic!("not in time: {what}; the floor is {floor:?}")
                })
                .unwrap();
        }
        begun.elapsed()
    }

    /// Waits until the mediator is linked and everything that is loaded is allowed.
    async fn whole(&self) {
        self.until("all stands", |now| {
            now.seen > 0 && now.presence == AgentPresence::Present && stands(now)
        })
        .await;
    }
}

/// True if everything that is loaded is allowed.
fn stands(now: &EffectiveConfig) -> bool {
    let Ok(version) = now.version() else {
        return false;
    };
    let floor = now.floor.as_ref();
    version
        .catalog
        .tools()
        .iter()
        .all(|tool| floor.is_none_or(|floor| floor.tools.get(tool.name()) == Some(&tool.digest)))
        && version
            .providers
            .keys()
            .all(|name| now.provider_stands(name))
        && now.feeds().count() == version.feeds.len()
}

fn has(now: &EffectiveConfig, tool: &str) -> bool {
    let floor = now.floor.as_ref();
    now.version().is_ok() && floor.is_none_or(|floor| floor.tools.contains_key(tool))
}

/// One source of an agent's tools or models; deleting it revokes them.
struct Way {
    name: &'static str,
    /// The tool that goes; `None`: models or everything.
    tool: Option<&'static str>,
    object: Value,
    /// The object to apply instead; `None`: the object is deleted.
    without: Option<Value>,
}

async fn delete(harness: &Harness, object: &Value) {
    let resource = match object["kind"].as_str().unwrap() {
        "Secret" => kube::api::ApiResource::erase::<Secret>(&()),
        "Agent" => kube::api::ApiResource::erase::<Agent>(&()),
        "Surface" => kube::api::ApiResource::erase::<Surface>(&()),
        "ToolGrant" => kube::api::ApiResource::erase::<ToolGrant>(&()),
        "ToolDefaults" => kube::api::ApiResource::erase::<ToolDefaults>(&()),
        "ModelProvider" => kube::api::ApiResource::erase::<ModelProvider>(&()),
        kind => panic!("{kind}"),
    };
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    let api: Api<DynamicObject> =
        Api::namespaced_with(harness.client.clone(), namespace, &resource);
    api.delete(
        object["metadata"]["name"].as_str().unwrap(),
        &DeleteParams::default(),
    )
    .await
    .unwrap();
}

fn ours(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
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
fn otter(pond: &str, lake: &str) -> Vec<Way> {
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
                let floor = mediator.current.now().floor.clone().unwrap();
                assert_eq!(floor.tools.len(), 4, "nothing but {tool} goes: {floor:?}");
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

/// The write workers are kept busy, and the mediator never loads other files.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_reaches_a_pod_while_others_are_compiled() {
    let mut harness = Harness::new().await;
    let lake = harness.other_namespace().await;
    harness.start("heron");
    for way in otter(&harness.pond, &lake) {
        harness.apply(way.object).await;
    }
    let files = harness
        .files("otter", "all tools", |files| {
            tools(files).len() == 5 && files["providers.json"]["providers"]["reef"].is_object()
        })
        .await;
    let pod = pods::create(&harness, "otter-1", "otter").await;
    let mediator = Mediator::start(&harness, &pod, &files).await;
    mediator.whole().await;
    for number in 0..60 {
        let name = format!("newt-{number}");
        let spec = json!({"surfaces": [{"name": "default"}]});
        harness
            .apply(ours("Agent", &harness.pond, &name, spec))
            .await;
    }
    // Every agent of the namespace is compiled anew, by two at a time.
    let mut defaults = ours("ToolDefaults", &harness.pond, "default", json!({}));
    defaults["spec"] =
        json!({"mode": "Native", "tools": [{"surface": {"name": "default"}, "allow": ["*"]}]});
    harness.apply(defaults).await;

    let reason = "toolcrib.dev/suspend-reason";
    let agents: Api<Agent> = harness.api(&harness.pond);
    let suspend =
        json!({"metadata": {"annotations": {reason: "runaway loop"}}, "spec": {"suspend": true}});
    let begun = Instant::now();
    agents
        .patch("otter", &PatchParams::default(), &Patch::Merge(&suspend))
        .await
        .unwrap();
    mediator
        .until("everything is denied", |now| now.version().is_err())
        .await;
    let took = begun.elapsed();
    println!("denied {took:?} after the patch began");
    assert!(took < Duration::from_secs(10), "{took:?}");

    let message = harness
        .condition::<Agent>("otter", "Ready", "True/Suspended")
        .await;
    assert!(message.ends_with("suspended: runaway loop"), "{message}");
    let files = harness
        .files("otter", "the files say so", |files| {
            files["agent.json"]["suspension"] == json!({"reason": "runaway loop"})
        })
        .await;
    assert_eq!(tools(&files), [] as [String; 0]);
    assert_eq!(files["providers.json"]["providers"], json!({}));
    harness.event("otter", "AgentSuspended").await;
    // The reason alone changes the files too.
    let reworded = json!({"metadata": {"annotations": {reason: "leak"}}});
    agents
        .patch("otter", &PatchParams::default(), &Patch::Merge(&reworded))
        .await
        .unwrap();
    harness
        .files("otter", "the other reason", |files| {
            files["agent.json"]["suspension"] == json!({"reason": "leak"})
        })
        .await;

    let resume = json!({"metadata": {"annotations": {reason: null}}, "spec": {"suspend": null}});
    agents
        .patch("otter", &PatchParams::default(), &Patch::Merge(&resume))
        .await
        .unwrap();
    mediator.whole().await;
    harness
        .files("otter", "all tools again", |files| tools(files).len() == 5)
        .await;
    harness.end().await;
}

/// A policy of the cluster takes tools over the link, stops agents, also those that come later, and
/// gives back when it is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_restricts_and_stops_agents() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    let executor = pods::create(&harness, "executor-1", "executor").await;
    let mediator = Mediator::start(&harness, &executor, &files).await;
    mediator.whole().await;
    // Tests share the cluster, so it selects this test's namespace.
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": harness.pond}});
    let name = format!("desk-{}", harness.pond);
    let deny = json!([{
        "host": format!("trading-api.{}.svc:4000", harness.pond),
        "tools": ["execute_*"],
    }]);
    let policy = |spec: Value| {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ClusterToolPolicy",
            "metadata": {"name": name}, "spec": spec,
        })
    };
    harness
        .apply(policy(json!({"namespaceSelector": here, "deny": deny})))
        .await;
    mediator
        .until("denied", |now| !has(now, "trading-api.execute_trade"))
        .await;
    assert!(has(&mediator.current.now(), READS[0]));
    let agents: Api<Agent> = harness.api(&harness.pond);
    let status = harness
        .eventually("the agent's status", || async {
            let status = agents.get("executor").await.unwrap().status?;
            (!status.policies.is_empty()).then_some(status)
        })
        .await;
    assert_eq!(status.policies, std::slice::from_ref(&name));
    assert_eq!(status.withheld[0].reason, "DeniedByPolicy");
    let policies: Api<ClusterToolPolicy> = Api::all(harness.client.clone());
    harness
        .eventually("the policy's status", || async {
            let status = policies.get(&name).await.unwrap().status?;
            let is_ready = |it: &Condition| it.type_ == "Ready" && it.status == "True";
            (status.matched_agents == Some(2) && status.conditions.iter().any(is_ready))
                .then_some(())
        })
        .await;

    harness
        .apply(policy(json!({"namespaceSelector": here, "suspend": true})))
        .await;
    mediator
        .until("everything is denied", |now| now.version().is_err())
        .await;
    let reason = format!("ClusterToolPolicy {name}");
    let message = harness
        .condition::<Agent>("executor", "Ready", "True/Suspended")
        .await;
    assert!(message.ends_with(&reason), "{message}");
    // It does not help to create an agent, or to write that it is not suspended.
    let spec = json!({"surfaces": [{"name": "trading-api"}], "suspend": false});
    harness
        .apply(ours("Agent", &harness.pond, "later", spec))
        .await;
    harness
        .condition::<Agent>("later", "Ready", "True/Suspended")
        .await;

    policies
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    mediator.whole().await;
    harness
        .files("executor", "all tools again", |files| {
            sorted(tools(files)) == ALL
        })
        .await;
    harness.end().await;
}

/// Opens a connection to the link and sends a head and a part of a body.
async fn half_a_report(
    harness: &Harness,
    tls: &TlsConnector,
    authorization: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let host = ServerName::try_from(format!("link.{}.svc", harness.system)).unwrap();
    let stream = TcpStream::connect(harness.link).await?;
    let mut stream = tls.connect(host, stream).await?;
    let head = format!(
        "POST /v1/link HTTP/1.1\r\nHost: link\r\n{authorization}Content-Length: 60000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&[b' '; 30_000]).await?;
    Ok(stream)
}

/// A grant is suspended, its time is over, or it is in force; status says which, and a suspension
/// is published like a deletion.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_grant_is_revoked_over_the_link_and_its_status_says_so() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    harness
        .condition::<ToolGrant>("executor-all", "Active", "True/Active")
        .await;
    let executor = pods::create(&harness, "executor-1", "executor").await;
    let mediator = Mediator::start(&harness, &executor, &files).await;
    mediator.whole().await;
    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    let patch = |spec: Value| {
        let grants = grants.clone();
        async move {
            let change = Patch::Merge(json!({ "spec": spec }));
            let name = "executor-all";
            grants
                .patch(name, &PatchParams::default(), &change)
                .await
                .unwrap();
        }
    };
    patch(json!({"suspend": true})).await;
    mediator.until("revoked", |now| !has(now, READS[0])).await;
    harness
        .condition::<ToolGrant>("executor-all", "Active", "False/Suspended")
        .await;
    patch(json!({"suspend": null})).await;
    mediator.whole().await;
    // Rules with conditions wait for the files, so the tools without conditions are gone.
    patch(json!({"notAfter": "2020-01-01T00:00:00Z"})).await;
    mediator.until("expired", |now| !has(now, READS[0])).await;
    harness
        .condition::<ToolGrant>("executor-all", "Active", "False/Expired")
        .await;
    patch(json!({"notAfter": null, "notBefore": "2999-01-01T00:00:00Z"})).await;
    harness
        .condition::<ToolGrant>("executor-all", "Active", "False/NotYet")
        .await;
    harness
        .eventually("limits in the agent's status", || async {
            let agent = harness.api::<Agent>(&harness.pond).get("executor").await;
            let tools = agent.unwrap().status.unwrap_or_default().tools;
            let limits = "from 2999-01-01T00:00:00Z";
            let limited = tools
                .iter()
                .any(|tool| tool.limits.as_deref() == Some(limits));
            limited.then_some(())
        })
        .await;
    drop(mediator);
    harness.end().await;
}

/// Strangers are refused before their bodies arrive, with a token and without one.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_strangers_are_not_read_and_a_revocation_still_arrives() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    let ca = files["agent.json"]["link"]["ca"].as_str().unwrap();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = TlsConnector::from(Arc::new(config));
    let mut open = Vec::new();
    let mut refused = 0;
    for number in 0..200 {
        let authorization = match number % 2 {
            0 => String::new(),
            _ => format!("Authorization: Bearer nobody-{number}\r\n"),
        };
        // A connection may have been closed for a newcomer.
        let Ok(mut stream) = half_a_report(&harness, &tls, &authorization).await else {
            continue;
        };
        let mut start = [0; 12];
        let answer = tokio::time::timeout(DEADLINE, stream.read_exact(&mut start));
        if answer.await.unwrap().is_ok() {
            assert_eq!(&start[9..], b"401");
            refused += 1;
        }
        open.push(stream);
    }
    assert!(refused > 100, "{refused}");
    // Silent connections, more than one address may have.
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.extend(TcpStream::connect(harness.link).await);
    }
    let executor = pods::create(&harness, "executor-1", "executor").await;
    let mediator = Mediator::start(&harness, &executor, &files).await;
    mediator.whole().await;
    delete(
        &harness,
        &ours("ToolGrant", &harness.pond, "executor-all", json!({})),
    )
    .await;
    mediator.until("revoked", |now| !has(now, READS[0])).await;
    // A report with a pod's own token is read, up to its bound.
    let token = pods::token(&harness, &executor, AUDIENCE).await;
    let http = harness.https("link", harness.link, &files["agent.json"]["link"]["ca"]);
    let url = format!(
        "{}/v1/link",
        files["agent.json"]["link"]["url"].as_str().unwrap()
    );
    let mut report = json!({"epoch": "e", "version": "0", "usage": {}}).to_string();
    for (length, expected) in [(64 * 1024, 200), (64 * 1024 + 1, 413)] {
        report.extend(std::iter::repeat_n(' ', length - report.len()));
        let answer = http.post(&url).bearer_auth(&token).body(report.clone());
        assert_eq!(answer.send().await.unwrap().status(), expected);
    }
    drop((open, silent, mediator));
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_mediator_loses_a_tool_while_controllers_are_replaced() {
    let mut harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    let pod = pods::create(&harness, "executor-1", "executor").await;
    let mediator = Mediator::start(&harness, &pod, &files).await;
    mediator.whole().await;
    // Records everything in force from here on.
    let (current, mut changes) = (mediator.current.clone(), mediator.current.subscribe());
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = lost.clone();
    let watching = tokio::spawn(async move {
        while changes.changed().await.is_ok() {
            if !stands(&current.now()) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let mut seen = mediator.current.now().seen;
    for pod in ["newt", "heron"] {
        harness.stop().await;
        harness.start(pod);
        mediator
            .until("the next leader's answer", |now| now.seen > seen)
            .await;
        seen = mediator.current.now().seen;
    }
    assert_eq!(lost.load(Ordering::SeqCst), 0);
    watching.abort();
    // The last revocation arrives like the first.
    delete(
        &harness,
        &ours("ToolGrant", &harness.pond, "executor-all", json!({})),
    )
    .await;
    mediator.until("revoked", |now| !has(now, READS[0])).await;
    harness.end().await;
}

/// A Service that does not know the leader: connections go to each replica in turn.
struct Service(JoinHandle<()>);

impl Drop for Service {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Service {
    async fn of(at: SocketAddr, behind: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        Self(tokio::spawn(async move {
            let mut turn = 0;
            let mut open = tokio::task::JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let address = behind[turn % behind.len()];
                turn += 1;
                open.spawn(async move {
                    // Refused: this replica does not lead.
                    if let Ok(mut far) = TcpStream::connect(address).await {
                        let copied = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                        tracing::debug!(?copied, "connection over");
                    }
                });
            }
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mediator_finds_the_next_leader_behind_a_service() {
    let harness = Harness::new().await;
    let timing = Timing {
        duration: Duration::from_secs(4),
        renew_deadline: Duration::from_secs(3),
        retry: Duration::from_millis(500),
    };
    let launch = |pod| harness.launch(harness.client.clone(), pod, timing, free_port());
    let (heron, newt) = (launch("heron"), launch("newt"));
    let _service = Service::of(harness.link, vec![heron.link, newt.link]).await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    let pod = pods::create(&harness, "executor-1", "executor").await;
    let mediator = Mediator::start(&harness, &pod, &files).await;
    mediator.whole().await;
    let seen = mediator.current.now().seen;
    let (leader, other) = match heron.metric("leader").await {
        1.0 => (heron, newt),
        _ => (newt, heron),
    };
    // The leader ends abruptly, so its lease has to expire.
    leader.kill().await;
    mediator
        .until("the other one's answer", |now| now.seen > seen)
        .await;
    assert!(stands(&mediator.current.now()));
    delete(
        &harness,
        &ours("ToolGrant", &harness.pond, "executor-all", json!({})),
    )
    .await;
    mediator.until("revoked", |now| !has(now, READS[0])).await;
    other.kill().await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pods_long_poll_returns_changes() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    let pod = pods::create(&harness, "executor-1", "executor").await;
    let token = pods::token(&harness, &pod, AUDIENCE).await;
    let link = &files["agent.json"]["link"];
    let http = harness.https("link", harness.link, &link["ca"]);
    let url = format!("{}/v1/link", link["url"].as_str().unwrap());
    let send = |seen: u64, hold_ms: u64| {
        let body = json!({"epoch": "e", "version": "0", "seen": seen, "hold_ms": hold_ms});
        let request = http.post(&url).bearer_auth(&token).body(body.to_string());
        tokio::spawn(async move {
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            let text = answer.text().await.unwrap();
            (
                status,
                serde_json::from_str::<Value>(&text).unwrap_or(Value::String(text)),
            )
        })
    };
    let held = |count: f64| {
        let harness = &harness;
        async move {
            harness
                .eventually("held", || async {
                    (harness.metric("link_held").await == count).then_some(())
                })
                .await;
        }
    };
    // The controller knows the token once it knows the pod.
    let first = harness
        .eventually("an answer", || async {
            let (status, down) = send(0, 0).await.unwrap();
            (status == 200).then_some(down)
        })
        .await;
    let seq = first["seq"].as_u64().unwrap();
    let given = |down: &Value| down["floor"]["tools"].as_object().unwrap().len();
    assert_eq!(given(&first), 2);

    // A poll shorter than this test: the answer is the same again. The wanted manifest is
    // reported once it is written, which may happen between the two.
    let (status, again) = send(seq, 1).await.unwrap();
    assert_eq!(
        (status, &again["seq"], &again["floor"]),
        (200, &first["seq"], &first["floor"])
    );
    // Long enough that only news can end the poll.
    let long = 60_000;
    let waiting = send(seq, long);
    held(1.0).await;
    let later = send(seq, long);
    assert_eq!(waiting.await.unwrap(), (409, json!("superseded")));
    held(1.0).await;
    delete(
        &harness,
        &ours("ToolGrant", &harness.pond, "executor-all", json!({})),
    )
    .await;
    let (status, down) = later.await.unwrap();
    assert_eq!((status, given(&down)), (200, 0));
    assert!(down["seq"].as_u64().unwrap() > seq);
    held(0.0).await;

    // A pod that is deleted while it polls gets no more news of the agent.
    let waiting = send(down["seq"].as_u64().unwrap(), 8_000);
    held(1.0).await;
    pods::remove(&harness, &pod).await;
    assert_eq!(waiting.await.unwrap(), (403, json!("no_agent_pod")));
    harness.end().await;
}
