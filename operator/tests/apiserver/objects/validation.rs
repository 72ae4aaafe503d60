//! The validating webhook, called by a real API server.

use std::net::{SocketAddr, UdpSocket};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use toolcrib_crds::{Surface, ToolGrant};
use toolcrib_operator::cluster_args::ClusterArgs;
use toolcrib_operator::webhook;

use crate::support::harness::{Harness, free_port};

struct ValidatingWebhook {
    harness: Harness,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
    status: SocketAddr,
}

/// The outcome of a request, and its warnings.
#[derive(Debug)]
struct ApiResponse {
    status: u16,
    body: Value,
    warnings: Vec<String>,
}

impl ApiResponse {
    fn has(&self, words: &[&str]) -> bool {
        self.warnings
            .iter()
            .any(|line| words.iter().all(|word| line.contains(word)))
    }
}

impl ValidatingWebhook {
    /// Starts a webhook in this process, where the API server can reach it.
    async fn start() -> Self {
        let mut harness = Harness::new().await;
        // Definitions and namespaces are enough: no controller runs.
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().to_owned();
        let address = SocketAddr::new(this_side().ip(), free_port().port());
        let made =
            rcgen::generate_simple_self_signed([address.ip().to_string()]).expect("a certificate");
        std::fs::write(path.join("tls.crt"), made.cert.pem()).expect("written");
        std::fs::write(path.join("tls.key"), made.signing_key.serialize_pem()).expect("written");
        let args = webhook::Args {
            memory_limit: 256 << 20,
            listen: address,
            status_listen: free_port(),
            certificate_dir: path,
            // The API server calls a URL, at the plain path.
            webhook_config_name: String::new(),
            cluster: ClusterArgs {
                namespace: harness.system.clone(),
                webhook_service: "webhook".into(),
                link_service: "link".into(),
                refused_hosts: Vec::new(),
                cluster_domain: "reef.example".parse().expect("a domain"),
            },
            agent_wait_ms: 0,
            drain_seconds: 0,
            mediator_image: "example.test/mediator:1".into(),
            mediator_pull_policy: None,
            mediator_pull_secrets: Vec::new(),
            mediator_resources: Default::default(),
            mediator_history_bytes: 1 << 27,
            mediator_keepalive_ms: None,
            allowed_capability: Vec::new(),
            allowed_host_path: Vec::new(),
            allow_unconfined: false,
            mediator_record_bodies: false,
            mediator_metrics_port: None,
            mediator_otlp_endpoint: String::new(),
            mediator_export_records: false,
            mediator_export_arguments: false,
            mediator_export_when_behind: webhook::WhenBehindArg::Drop,
        };
        let status = args.status_listen;
        let (stop, stopped) = oneshot::channel::<()>();
        let client = harness.client.clone();
        let task = tokio::spawn(async move {
            let _directory = directory;
            webhook::run_until(client, args, async {
                stopped.await.unwrap_or(());
            })
            .await
        });
        harness
            .eventually("the webhook is ready", || async {
                let answer = reqwest::get(format!("http://{status}/readyz")).await.ok()?;
                (answer.status() == 200).then_some(())
            })
            .await;
        harness.resync = std::time::Duration::from_secs(3600);
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": harness.system},
            "webhooks": [{
                "name": "validate.toolcrib.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "timeoutSeconds": 10,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": harness.pond}},
                "rules": [{
                    "apiGroups": ["toolcrib.dev"], "apiVersions": ["v1alpha1"],
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                    "resources": ["surfaces", "agents", "toolgrants", "tooldefaults", "modelproviders"],
                    "scope": "Namespaced",
                }],
                "clientConfig": {
                    "url": format!("https://{address}/validate"),
                    "caBundle": ByteString(made.cert.pem().into_bytes()),
                },
            }],
        }))
        .expect("a configuration");
        let api: Api<ValidatingWebhookConfiguration> = Api::all(harness.client.clone());
        api.create(&PostParams::default(), &configuration)
            .await
            .expect("configured");
        let this = Self {
            harness,
            stop,
            task,
            status,
        };
        // The API server learns of the configuration by a watch.
        this.harness
            .eventually("the API server asks", || async {
                let said = this.create(&this.surface("probe", &too_deep()), true).await;
                (said.status == 403).then_some(())
            })
            .await;
        this
    }

    async fn send(&self, method: &str, path: String, body: &Value) -> ApiResponse {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(kube::client::Body::from(body.to_string().into_bytes()))
            .expect("a request");
        let answer = self.harness.client.send(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let warnings = answer
            .headers()
            .get_all("warning")
            .iter()
            .map(|value| String::from_utf8(value.as_bytes().to_vec()).expect("text"))
            .collect();
        let bytes = http_body_util::BodyExt::collect(answer.into_body())
            .await
            .expect("a body")
            .to_bytes();
        ApiResponse {
            status,
            body: serde_json::from_slice(&bytes).expect("JSON"),
            warnings,
        }
    }

    fn path(&self, kind: &str) -> String {
        let plural = match kind {
            "ToolDefaults" => "tooldefaults".to_owned(),
            other => format!("{}s", other.to_lowercase()),
        };
        let pond = &self.harness.pond;
        format!("/apis/toolcrib.dev/v1alpha1/namespaces/{pond}/{plural}")
    }

    async fn create(&self, object: &Value, dry: bool) -> ApiResponse {
        let path = self.path(object["kind"].as_str().expect("a kind"));
        let dry = if dry { "?dryRun=All" } else { "?" };
        self.send("POST", format!("{path}{dry}"), object).await
    }

    async fn replace(&self, object: &Value) -> ApiResponse {
        let path = self.path(object["kind"].as_str().expect("a kind"));
        let name = object["metadata"]["name"].as_str().expect("a name");
        self.send("PUT", format!("{path}/{name}"), object).await
    }

    /// Deletes the object in a dry run.
    async fn delete(&self, kind: &str, name: &str) -> ApiResponse {
        let path = format!("{}/{name}?", self.path(kind));
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
        self.send("DELETE", path, &options).await
    }

    fn surface(&self, name: &str, schema: &str) -> Value {
        let schema: Value = serde_json::from_str(schema).expect("JSON");
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
            "metadata": {"name": name, "namespace": self.harness.pond},
            "spec": {"url": "http://reed.example", "descriptor": {"version": 2, "tools": [
                {"name": "look", "inputSchema": schema, "http": {"method": "GET", "path": "/"}},
            ]}},
        })
    }

    async fn stop_webhook(&mut self) {
        let (unused, _) = oneshot::channel();
        std::mem::replace(&mut self.stop, unused)
            .send(())
            .expect("it runs");
        let task = std::mem::replace(&mut self.task, tokio::spawn(async { Ok(()) }));
        task.await.expect("no panic").expect("no error");
    }

    async fn end(self) {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.harness.client.clone());
        api.delete(&self.harness.system, &DeleteParams::default())
            .await
            .expect("deleted");
        self.harness.end().await;
    }
}

/// Nested deeper than this code reads, but not too deep for a value tree.
fn too_deep() -> String {
    format!(r#"{{"a":{}{}}}"#, "[".repeat(100), "]".repeat(100))
}

/// This machine's address, as seen from the API server.
fn this_side() -> SocketAddr {
    let path = std::env::var("TOOLCRIB_TEST_KUBECONFIG").expect("checked by the harness");
    let kubeconfig = Kubeconfig::read_from(path).expect("kubeconfig");
    let cluster = kubeconfig.clusters[0].cluster.as_ref().expect("a cluster");
    let server: http::Uri = cluster
        .server
        .as_ref()
        .expect("a server")
        .parse()
        .expect("a URI");
    // Nothing is sent: connecting picks the route.
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let port = server.port_u16().unwrap_or(443);
    socket
        .connect((server.host().expect("a host"), port))
        .expect("a route");
    socket.local_addr().expect("an address")
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_apply_warns_of_mistakes_gains_and_losses() {
    let mut world = ValidatingWebhook::start().await;
    let h = &world.harness;
    let pond = h.pond.clone();
    let analyst = format!("{pond}/analyst");

    // A grant for an agent that does not exist yet.
    let grant = |name: &str, allow: Value| {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
            "metadata": {"name": name, "namespace": pond},
            "spec": {"agents": ["analyst"], "tools": [
                {"surface": {"name": "trading-api"}, "allow": allow},
            ]},
        })
    };
    let said = world.create(&grant("early", json!(["*"])), true).await;
    assert_eq!(said.status, 201, "{said:?}");
    assert!(said.has(&["AgentNotFound", "analyst"]), "{said:?}");

    h.apply_example().await;
    // The webhook has a watch of Agents of its own.
    h.eventually("a gain is named", || async {
        let said = world
            .create(&grant("more", json!(["execute_trade"])), true)
            .await;
        said.has(&[&analyst, "gains", "trading-api.execute_trade", "more"])
            .then_some(())
    })
    .await;
    // A dry run stores nothing, so the same is stored now.
    let grants: Api<ToolGrant> = h.api(&pond);
    assert!(grants.get_opt("more").await.expect("read").is_none());
    let said = world
        .create(&grant("more", json!(["execute_trade"])), false)
        .await;
    assert!(
        said.has(&["gains", "trading-api.execute_trade"]),
        "{said:?}"
    );
    // A tool above the tier of the agent: the grant is in order, and gives nothing.
    let reader = json!({"apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": "reader", "namespace": pond},
        "spec": {"surfaces": [{"name": "trading-api"}], "policy": {"maxTier": "ReadOnly"}}});
    h.apply(reader).await;
    let mut above = grant("above", json!(["execute_trade"]));
    above["spec"]["agents"] = json!(["reader"]);
    h.eventually("a tool above the agent's tier is named", || async {
        let said = world.create(&above, true).await;
        let does_not_get = "reader does not get trading-api.execute_trade";
        said.has(&["TierAboveMaximum", does_not_get]).then_some(())
    })
    .await;
    // A selector, and then the label by which it selects.
    let role = "grants.toolcrib.dev/role";
    let mut selecting = grant("selecting", json!(["execute_trade"]));
    selecting["spec"]["agents"] = json!([]);
    selecting["spec"]["agentSelector"] = json!({"matchLabels": {role: "clerk"}});
    let said = world.create(&selecting, false).await;
    assert!(said.has(&["SelectsNoAgent", role]), "{said:?}");
    let clerk = |labels: Value| {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": "clerk", "namespace": pond, "labels": labels},
            "spec": {"surfaces": [{"name": "trading-api"}]},
        })
    };
    let said = world.create(&clerk(json!({role: "clerk"})), false).await;
    assert!(
        said.has(&["clerk", "gains", "trading-api.execute_trade", "selecting"]),
        "{said:?}"
    );
    let version = said.body["metadata"]["resourceVersion"].clone();
    // The webhook has a watch of Agents of its own.
    h.eventually("the loss of a grant by label is named", || async {
        let said = world.delete("ToolGrant", "selecting").await;
        said.has(&["clerk", "loses", "trading-api.execute_trade"])
            .then_some(())
    })
    .await;
    let mut without = clerk(json!({"team": "reeds"}));
    without["metadata"]["resourceVersion"] = version;
    let said = world.replace(&without).await;
    assert!(
        said.has(&["clerk", "loses", "trading-api.execute_trade"]),
        "{said:?}"
    );
    let said = world.delete("ToolGrant", "analyst-reads").await;
    assert!(
        said.has(&[&analyst, "loses", "trading-api.get_market_context"]),
        "{said:?}"
    );
    let said = world.delete("Surface", "trading-api").await;
    let executor = format!("{pond}/executor");
    assert!(
        said.has(&[&analyst, "loses"]) && said.has(&[&executor, "loses"]),
        "{said:?}"
    );
    let said = world.delete("Agent", "analyst").await;
    assert!(said.has(&[&analyst, "denied everything"]), "{said:?}");
    let said = world
        .create(&grant("wrong", json!(["sell_everything"])), true)
        .await;
    assert!(said.has(&["ToolNotFound", "sell_everything"]), "{said:?}");

    // Wrong, but not dangerous: stored, with a warning.
    let said = world
        .create(&world.surface("crooked", r#"{"type": "nonsense"}"#), false)
        .await;
    assert_eq!(said.status, 201);
    assert!(said.has(&["InvalidSchema"]), "{said:?}");
    // The owner of an address is known only from a list of Services.
    let services: Api<Service> = h.api(&pond);
    let service = json!({
        "metadata": {"name": "tide", "namespace": pond}, "spec": {"ports": [{"port": 80}]},
    });
    let service = serde_json::from_value(service).expect("a Service");
    let tide = services.create(&PostParams::default(), &service).await;
    let address = tide
        .expect("created")
        .spec
        .and_then(|spec| spec.cluster_ip)
        .expect("the cluster gives it one");
    let by_address = |url: String| {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
            "metadata": {"name": "by-address", "namespace": pond}, "spec": {"url": url},
        })
    };
    // An address of no Service.
    let said = world
        .create(&by_address("http://192.0.2.7".to_owned()), true)
        .await;
    assert_eq!(said.status, 201, "{said:?}");
    // A Service of the cluster's own domain, whose author chooses where it leads.
    let service = json!({
        "metadata": {"name": "elsewhere", "namespace": pond},
        "spec": {"type": "ExternalName", "externalName": "news.example"},
    });
    let service = serde_json::from_value(service).expect("a Service");
    let created = services.create(&PostParams::default(), &service).await;
    created.expect("created");
    let url = format!("http://elsewhere.{pond}.svc.reef.example");
    let said = world.create(&by_address(url), true).await;
    assert_eq!(said.status, 201, "{said:?}");
    assert!(said.has(&["ExternalNameRefused"]), "{said:?}");
    // With the agent's own, more surfaces than are read for one answer.
    let mut wide = grant("wide", json!(["*"]));
    let surface = |at: usize| json!({"surface": {"name": format!("reed-{at}")}, "allow": ["*"]});
    wide["spec"]["tools"] = (0..64).map(surface).collect();
    let said = world.create(&wide, true).await;
    assert_eq!(said.status, 201, "{said:?}");
    assert!(
        said.has(&["did not compute", "over 64 surfaces", "plan -f"]),
        "{:?}",
        said.warnings
    );
    // Objects that must never be stored.
    for (name, object, word) in [
        ("deep", world.surface("deep", &too_deep()), "nested deeper"),
        (
            "remote",
            world.surface("remote", r#"{"$ref": "http://elsewhere.example/schema"}"#),
            "RemoteReference",
        ),
        (
            "metadata",
            json!({
                "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
                "metadata": {"name": "metadata", "namespace": pond},
                "spec": {"url": "http://169.254.169.254/"},
            }),
            "AddressRefused",
        ),
        (
            "by-address",
            by_address(format!("http://{address}")),
            "is the address of Service",
        ),
    ] {
        let said = world.create(&object, false).await;
        assert_eq!(said.status, 403, "{said:?}");
        let message = said.body["message"].as_str().unwrap_or_default();
        assert!(message.contains(word), "{name}: {message}");
    }

    // Safety does not depend on the webhook: without it, the denied object is stored.
    world.stop_webhook().await;
    let said = world
        .create(&world.surface("deep", &too_deep()), false)
        .await;
    assert_eq!(said.status, 201, "{said:?}");
    let surfaces: Api<Surface> = world.harness.api(&pond);
    surfaces.get("deep").await.expect("110 levels can be read");
    assert!(
        reqwest::get(format!("http://{}/readyz", world.status))
            .await
            .is_err()
    );
    world.end().await;
}
