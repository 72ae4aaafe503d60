//! claw-api end to end: the real controller, called as a mediator calls it, with the address,
//! authority, token and request format of the agent's compiled files.

// clippy.toml allows unwrap in test functions, but not in their helpers.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use toolcrib_crds::{Agent, ToolGrant};
use toolcrib_manifest::{Auth, RawJson, Tool};
use toolcrib_mediation::http_call;
use toolcrib_operator::claw::descriptor::descriptor;
use toolcrib_operator::controller::ClawScope;

use crate::support::harness::{Harness, rendered};
use crate::support::pods;

const TOKEN: &str = "auditor-6f0c2b9e-41aa";
const VERBS: [&str; 5] = [
    "list_agents",
    "get_agent",
    "explain_tool",
    "recent_calls",
    "explain_call",
];

/// Starts an installation that serves claw-api, as the chart configures it.
async fn installed(scope: ClawScope) -> (Harness, String) {
    let mut harness = Harness::new().await;
    harness.claw_scope = Some(scope);
    let lake = harness.other_namespace().await;
    harness.start("heron");
    let system = harness.system.clone();
    let port = harness.claw.port();
    harness
        .apply(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "claw", "namespace": system},
            "spec": {"selector": {"app": "toolcrib"}, "ports": [{"name": "claw-api", "port": port}]},
        }))
        .await;
    let spec = json!({
        "service": {"name": "claw", "port": port, "scheme": "https"},
        "auth": {"type": "Bearer", "fallback": "Deny"},
        "consumers": {"namespaces": {"from": "All"}},
        "descriptor": descriptor(),
    });
    harness
        .apply(ours("Surface", &system, "claw-api", spec))
        .await;
    harness.apply_example().await;
    harness
        .apply(ours("Agent", &lake, "heron", json!({"surfaces": []})))
        .await;
    (harness, lake)
}

fn ours(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

/// Creates an agent of the pond with a token of its own.
async fn auditor(harness: &Harness, name: &str, token: &str) {
    harness
        .apply(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": format!("{name}-token"), "namespace": harness.pond,
                "labels": {"toolcrib.dev/credential": "true"},
                "annotations": {"toolcrib.dev/hosts": format!("claw.{}.svc", harness.system)},
            },
            "stringData": {"token": token},
        }))
        .await;
    let spec = json!({"surfaces": [{
        "name": "claw-api", "namespace": harness.system,
        "secretKeyRef": {"name": format!("{name}-token"), "key": "token"},
    }]});
    harness
        .apply(ours("Agent", &harness.pond, name, spec))
        .await;
}

async fn grant(harness: &Harness, agent: &str, verbs: &[&str]) {
    let spec = json!({"agents": [agent], "tools": [{
        "surface": {"name": "claw-api", "namespace": harness.system}, "allow": verbs,
    }]});
    harness
        .apply(ours(
            "ToolGrant",
            &harness.pond,
            &format!("{agent}-audits"),
            spec,
        ))
        .await;
}

/// A mediator that has loaded the agent's files.
struct Mediator {
    tools: BTreeMap<String, Tool>,
    http: reqwest::Client,
}

impl Mediator {
    async fn of(harness: &Harness, agent: &str) -> Self {
        let files = harness
            .files(agent, "the four verbs", |files| {
                crate::tools(files).len() == VERBS.len()
            })
            .await;
        let tools: Vec<Tool> =
            serde_json::from_value(files["tools.json"]["tools"].clone()).unwrap();
        let services = &files["tools.json"]["x-toolcrib"]["services"];
        let ca = &services["claw-api"]["tls"]["ca"];
        let http = harness.https("claw", harness.claw, ca);
        let tools = tools
            .into_iter()
            .map(|tool| (tool.name.clone(), tool))
            .collect();
        Self { tools, http }
    }

    fn url(&self, path: &str) -> String {
        format!(
            "{}{path}",
            self.tools["claw-api.list_agents"].execution.base_url
        )
    }

    /// Calls the verb with the credential of the files.
    async fn call(&self, verb: &str, arguments: Value) -> (u16, Value) {
        let tool = &self.tools[&format!("claw-api.{verb}")];
        let Some(Auth::Bearer {
            token: Some(token), ..
        }) = &tool.execution.auth
        else {
            panic!("{verb} has no token")
        };
        let arguments = RawJson::from_text(arguments.to_string()).unwrap();
        let call = http_call(tool, &arguments, "auditor.pond", None).unwrap();
        assert_eq!(call.body, None);
        let request = self
            .http
            .get(self.url(&call.path_and_query))
            .header("X-Claw-ID", &call.claw_id)
            .bearer_auth(token.expose());
        answer(request).await
    }

    /// Repeats the call until `expected` holds for its answer.
    async fn until(
        &self,
        harness: &Harness,
        what: &str,
        verb: &str,
        arguments: Value,
        is_so: impl Fn(u16, &Value) -> bool,
    ) -> Value {
        harness
            .eventually(what, || async {
                let (status, answer) = self.call(verb, arguments.clone()).await;
                is_so(status, &answer).then_some(answer)
            })
            .await
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap())
}

fn names(listed: &Value) -> Vec<String> {
    let agents = listed["agents"].as_array().unwrap();
    let name = |agent: &Value| {
        let of = |field: &str| agent[field].as_str().unwrap().to_owned();
        format!("{}/{}", of("namespace"), of("name"))
    };
    agents.iter().map(name).collect()
}

fn code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or("none")
}

#[test]
fn the_chart_renders_claw_api_only_when_enabled() {
    let of = |settings: &[&str], kind: &str, name: &str| {
        rendered(settings)
            .into_iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    };
    assert_eq!(of(&[], "Surface", "claw-api"), None);
    let settings = [
        "--namespace=den",
        "--set=clawApi.enabled=true",
        "--set=clawApi.scope=Cluster",
        "--set=clawApi.consumers={pond}",
    ];
    let surface = of(&settings, "Surface", "claw-api").unwrap();
    let service = of(&settings, "Service", "toolcrib-claw-api").unwrap();
    assert_eq!(service["spec"]["selector"]["toolcrib.dev/leader"], "true");
    let controller = of(&settings, "Deployment", "toolcrib-controller").unwrap();
    let container = &controller["spec"]["template"]["spec"]["containers"][0];
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    for argument in [
        "--claw-api-listen=[::]:8444",
        "--claw-api-service=toolcrib-claw-api",
        "--claw-api-surface=claw-api",
        "--claw-api-scope=cluster",
    ] {
        assert!(
            arguments.iter().any(|found| found == argument),
            "{arguments:?}"
        );
    }
    // The rendered Surface is valid, and compiles with the pond's consent.
    let refused = toolcrib_crds::refusals("Surface", &surface);
    assert!(refused.is_empty(), "{refused:?}");
    let mut objects = vec![surface, service];
    objects.push(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "pond", "labels": {"kubernetes.io/metadata.name": "pond"}}}));
    objects.push(ours(
        "Agent",
        "pond",
        "otter",
        json!({"surfaces": [{"name": "claw-api", "namespace": "den"}]}),
    ));
    let text: Vec<String> = objects.iter().map(ToString::to_string).collect();
    let file = ("chart.yaml".to_owned(), text.join("\n---\n"));
    let inputs = toolcrib_compile::load([file], toolcrib_compile::Settings::default()).inputs;
    let key = toolcrib_compile::ObjectRef::new("den", "claw-api");
    let report = toolcrib_compile::check_surface(&inputs, &key).unwrap();
    assert_eq!((report.tools as usize, report.consumers), (VERBS.len(), 1));
    assert_eq!(report.diagnostics, []);
    let view = toolcrib_compile::inspect_surface(&inputs, &key).unwrap();
    assert!(view.tools.iter().all(|tool| tool.tier == Some("ReadOnly")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_the_verbs_audits_its_namespace() {
    let (harness, lake) = installed(ClawScope::Namespace).await;
    let pond = harness.pond.clone();
    auditor(&harness, "auditor", TOKEN).await;
    grant(&harness, "auditor", &["*"]).await;
    let mediator = Mediator::of(&harness, "auditor").await;

    let all = ["analyst", "auditor", "executor"].map(|name| format!("{pond}/{name}"));
    mediator
        .until(
            &harness,
            "its namespace's agents",
            "list_agents",
            json!({}),
            |_, listed| listed["agents"].is_array() && names(listed) == all,
        )
        .await;
    let (_, first) = mediator.call("list_agents", json!({"limit": 2})).await;
    assert_eq!(names(&first), all[..2]);
    let (_, rest) = mediator
        .call("list_agents", json!({"continue": first["continue"]}))
        .await;
    assert_eq!(
        (names(&rest), &rest["continue"]),
        (all[2..].to_vec(), &Value::Null)
    );

    // The status is written after the compiled files.
    let analyst = mediator
        .until(
            &harness,
            "the analyst",
            "get_agent",
            json!({"agent": "analyst"}),
            |_, agent| {
                // An earlier status may be of the time before the grant was seen.
                let is_ready = agent["conditions"].as_array().is_some_and(|conditions| {
                    conditions.iter().any(|found| found["type"] == "Ready")
                });
                is_ready && agent["tools"][0]["name"] == "trading-api.get_market_context"
            },
        )
        .await;
    assert_eq!(analyst["tools"][0]["grant"]["name"], "analyst-reads");
    let text = analyst.to_string();
    assert!(
        !text.contains("desk-reader") && !text.contains("credentialsRevision"),
        "{text}"
    );

    let explain = |tool: &str| json!({"agent": "analyst", "tool": tool});
    let (status, given) = mediator
        .call("explain_tool", explain("trading-api.get_market_context"))
        .await;
    assert_eq!((status, &given["given"]), (200, &json!(true)), "{given}");
    assert_eq!(given["by"], format!("ToolGrant {pond}/analyst-reads"));
    let (_, missing) = mediator
        .call("explain_tool", explain("trading-api.execute_trade"))
        .await;
    assert_eq!(missing["given"], false);
    let because = missing["because"][0].as_str().unwrap();
    assert!(
        because.contains("no ToolGrant") && because.contains("execute_trade"),
        "{because}"
    );

    // The answer about another namespace equals that about a missing one.
    for (namespace, agent) in [(&*lake, "heron"), ("nowhere", "heron")] {
        let arguments = json!({"namespace": namespace, "agent": agent, "tool": "a.b"});
        let tail = format!("{namespace}/{agent}");
        for verb in ["get_agent", "explain_tool"] {
            let mut arguments = arguments.clone();
            if verb == "get_agent" {
                arguments.as_object_mut().unwrap().remove("tool");
            }
            let (status, answer) = mediator.call(verb, arguments).await;
            assert_eq!((status, code(&answer)), (404, "no_such_agent"));
            let message = answer["error"]["message"].as_str().unwrap();
            assert_eq!(
                message.replace(&tail, "X"),
                "agent X not found, or not visible to you: list_agents lists the agents that you may ask about"
            );
        }
        let (_, listed) = mediator
            .call("list_agents", json!({"namespace": namespace}))
            .await;
        assert_eq!(listed, json!({"agents": []}));
    }

    // Reports of mediators show up as they arrive.
    let (status, calls) = mediator.call("recent_calls", json!({})).await;
    assert_eq!((status, calls), (200, json!({"agents": []})));
    let pod = pods::create(&harness, "executor-1", "executor").await;
    let called = Timestamp::from_second(Timestamp::now().as_second());
    let called = called.unwrap().to_string();
    let usage = json!({"requests": 2, "calls": 3, "failed": 1, "last_call": called});
    let trade = json!({
        "callId": "r1-1-0", "at": called, "tool": "trading-api.execute_trade",
        "executed": false, "latencyMs": 0, "code": "condition_failed",
        "grant": {"namespace": pond, "name": "executor-trades"}, "rule": "r1:gone",
    });
    let report = json!({"epoch": "e", "version": "0", "usage": usage, "calls": [trade]});
    pods::answered(&harness, &pod, "executor", report).await;
    let calls = mediator
        .until(
            &harness,
            "the report",
            "recent_calls",
            json!({"limit": 5}),
            |_, calls| {
                calls["agents"]
                    .as_array()
                    .is_some_and(|agents| !agents.is_empty())
            },
        )
        .await;
    assert_eq!(names(&calls), [format!("{pond}/executor")]);
    let line = &calls["agents"][0];
    assert_eq!((&line["calls"], &line["failed"]), (&json!(3), &json!(1)));
    assert_eq!(line["lastCall"], *called);
    // Calls are shown if one agent is asked for.
    assert_eq!(line["latest"], Value::Null);
    let (_, calls) = mediator
        .call("recent_calls", json!({"agent": "executor"}))
        .await;
    let latest = &calls["agents"][0]["latest"][0];
    assert_eq!(
        (&latest["callId"], &latest["outcome"], &latest["pod"]),
        (
            &json!("r1-1-0"),
            &json!("condition_failed"),
            &json!("executor-1")
        )
    );
    let explain = |call: &str| json!({"agent": "executor", "call": call});
    let (status, explained) = mediator.call("explain_call", explain("r1-1-0")).await;
    assert_eq!((status, &explained["call"]), (200, latest), "{explained}");
    assert_eq!(explained["sameRule"], false);
    assert_eq!(explained["now"]["tool"], "trading-api.execute_trade");
    let (status, answer) = mediator.call("explain_call", explain("r2-1-0")).await;
    assert_eq!((status, code(&answer)), (404, "no_such_call"));
    let (_, none) = mediator
        .call("recent_calls", json!({"agent": "analyst"}))
        .await;
    assert_eq!(none, json!({"agents": []}));
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_scope_includes_other_namespaces() {
    let (harness, lake) = installed(ClawScope::Cluster).await;
    auditor(&harness, "auditor", TOKEN).await;
    grant(&harness, "auditor", &["*"]).await;
    let mediator = Mediator::of(&harness, "auditor").await;
    let heron = format!("{lake}/heron");
    mediator
        .until(
            &harness,
            "all agents",
            "list_agents",
            json!({"limit": 100}),
            |_, listed| listed["agents"].is_array() && names(listed).contains(&heron),
        )
        .await;
    let (_, one) = mediator
        .call("list_agents", json!({"namespace": lake}))
        .await;
    assert_eq!(names(&one), [heron]);
    let (status, agent) = mediator
        .call("get_agent", json!({"namespace": lake, "agent": "heron"}))
        .await;
    assert_eq!((status, &agent["name"]), (200, &json!("heron")));
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_permits_the_granted_verbs_and_a_shared_token_none() {
    let (harness, _) = installed(ClawScope::Namespace).await;
    auditor(&harness, "auditor", TOKEN).await;
    grant(&harness, "auditor", &["*"]).await;
    let mediator = Mediator::of(&harness, "auditor").await;
    let is = |expected: u16| move |status: u16, _: &Value| status == expected;
    mediator
        .until(&harness, "let in", "list_agents", json!({}), is(200))
        .await;

    // Another Secret with the same token: the two agents could not be distinguished.
    auditor(&harness, "newt", TOKEN).await;
    grant(&harness, "newt", &["list_agents"]).await;
    let refused = mediator
        .until(
            &harness,
            "refused",
            "get_agent",
            json!({"agent": "newt"}),
            is(401),
        )
        .await;
    assert_eq!(code(&refused), "unauthenticated");
    let agents: Api<Agent> = harness.api(&harness.pond);
    agents
        .delete("newt", &DeleteParams::default())
        .await
        .unwrap();
    mediator
        .until(&harness, "let in again", "list_agents", json!({}), is(200))
        .await;

    // The mediator would refuse this call, so the token is sent directly: the server refuses it,
    // too.
    grant(&harness, "auditor", &["get_agent"]).await;
    let refused = mediator
        .until(&harness, "narrowed", "list_agents", json!({}), is(403))
        .await;
    assert_eq!(code(&refused), "not_granted");
    let (status, _) = mediator
        .call("get_agent", json!({"agent": "auditor"}))
        .await;
    assert_eq!(status, 200);
    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    grants
        .delete("auditor-audits", &DeleteParams::default())
        .await
        .unwrap();
    mediator
        .until(
            &harness,
            "revoked",
            "get_agent",
            json!({"agent": "auditor"}),
            is(401),
        )
        .await;

    // Without its credential the agent does not have the tool.
    grant(&harness, "auditor", &["*"]).await;
    mediator
        .until(&harness, "granted again", "list_agents", json!({}), is(200))
        .await;
    let secrets: Api<Secret> = harness.api(&harness.pond);
    secrets
        .delete("auditor-token", &DeleteParams::default())
        .await
        .unwrap();
    mediator
        .until(
            &harness,
            "without its Secret",
            "list_agents",
            json!({}),
            is(401),
        )
        .await;
    harness
        .files("auditor", "no tools", |files| {
            crate::tools(files).is_empty()
        })
        .await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_get_one_answer_and_hostile_requests_are_refused() {
    let (harness, _) = installed(ClawScope::Namespace).await;
    auditor(&harness, "auditor", TOKEN).await;
    grant(&harness, "auditor", &["*"]).await;
    let mediator = Mediator::of(&harness, "auditor").await;
    mediator
        .until(&harness, "let in", "list_agents", json!({}), |status, _| {
            status == 200
        })
        .await;

    let get = |path: &str| mediator.http.get(mediator.url(path));
    let mut answers = Vec::new();
    for request in [
        get("/v1/agents"),
        get("/v1/nothing"),
        get("/v1/agents").bearer_auth(""),
        get("/v1/agents").bearer_auth("x".repeat(40)),
        get("/v1/agents").basic_auth("auditor", Some(TOKEN)),
        get("/v1/agents")
            .header("X-API-Key", TOKEN)
            .header("X-Claw-ID", "auditor"),
        get("/v1/agents").bearer_auth(TOKEN).bearer_auth(TOKEN),
        mediator
            .http
            .post(mediator.url("/v1/agents"))
            .body("x".repeat(1_000)),
    ] {
        answers.push(answer(request).await);
    }
    // A stranger's body is not read, so sending it may fail before the answer.
    let long = mediator
        .http
        .post(mediator.url("/v1/agents"))
        .body("x".repeat(100_000));
    if let Ok(refused) = long.send().await {
        assert_eq!(refused.status().as_u16(), 401);
    }
    let (status, message) = answers[0].clone();
    assert_eq!((status, code(&message)), (401, "unauthenticated"));
    assert!(
        answers.iter().all(|other| *other == answers[0]),
        "{answers:?}"
    );

    let known = |request: reqwest::RequestBuilder| answer(request.bearer_auth(TOKEN));
    for (request, expected) in [
        (get("/v1/agents").body("{}"), (413, "body_not_read")),
        (
            mediator.http.post(mediator.url("/v1/agents")),
            (405, "not_get"),
        ),
        (
            mediator.http.delete(mediator.url("/v1/agents/auditor")),
            (405, "not_get"),
        ),
        (get("/v1/agents/auditor/secrets"), (404, "no_such_verb")),
        (get("/v1/agents/..%2f..%2fetc"), (404, "no_such_agent")),
        (get("/v1/agents/%00"), (404, "no_such_agent")),
        (get("/v1/agents?limit=1000000"), (400, "invalid_argument")),
        (get("/v1/agents?limit=1&limit=2"), (400, "invalid_argument")),
        (get("/v1/agents?scope=Cluster"), (400, "invalid_argument")),
        (get("/v1/agents/auditor/tool"), (400, "invalid_argument")),
    ] {
        let (status, answer) = known(request).await;
        assert_eq!((status, code(&answer)), expected);
    }
    let (status, answer) = known(get("/v1/agents/auditor/tool?tool=none")).await;
    assert_eq!(
        (status, &answer["because"][0]),
        (200, &json!("a tool is named SURFACE.TOOL"))
    );
    assert!(harness.metric("claw_requests").await > 18.0);
    harness.end().await;
}
