//! The health of each kind as GitOps tools compute it, by kstatus' own library: at creation, with a mistake, after its
//! cure, suspended, and at deletion.
//!
//! With the feature `kstatus`, since it builds kstatus from its Go modules: `./e2e/run compatibility` runs it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams,
};
use serde_json::{Value, json};
use toolcrib_crds::{GROUP, VERSION, definitions};
use toolcrib_e2e::cluster::{Home, Progress, compatibility_programs};

use crate::support::approvals::{approval, decision};
use crate::support::harness::Harness;

/// An object in each of its states; `None` for a state that its kind cannot have.
struct Row {
    right: Value,
    /// With a mistake, and the reason of its condition `Ready`.
    mistake: Option<(Value, &'static str)>,
    /// Without effect, though it is as its author wants it.
    idle: Vec<Value>,
}

/// A row for each kind that has the condition `Ready`.
fn rows(pond: &str) -> Vec<Row> {
    let object = |kind: &str, name: &str, spec: Value| {
        let mut metadata = json!({"name": name});
        if kind != "ClusterToolPolicy" {
            metadata["namespace"] = json!(pond);
        }
        json!({"apiVersion": "toolcrib.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let surface = |schema: Value| {
        let tool = json!({"name": "look", "inputSchema": schema, "annotations": {"readOnly": true},
            "http": {"method": "GET", "path": "/look"}});
        let descriptor = json!({"version": 2, "tools": [tool]});
        let spec = json!({"url": "https://reed.example", "descriptor": descriptor});
        object("Surface", "reed", spec)
    };
    let agent = |surface: &str, suspend: bool| {
        let spec = json!({"surfaces": [{"name": surface}], "suspend": suspend});
        object("Agent", "otter", spec)
    };
    let tools = |tool: &str| json!([{"surface": {"name": "reed"}, "allow": [tool]}]);
    let grant = |tool: &str, field: &str, value: Value| {
        let mut spec = json!({"agents": ["otter"], "tools": tools(tool)});
        spec[field] = value;
        object("ToolGrant", "otter-looks", spec)
    };
    let defaults = |tool: &str| object("ToolDefaults", "default", json!({"tools": tools(tool)}));
    let endpoints = json!([{"dialect": "OpenAI", "url": "https://models.example/v1"}]);
    let gone = json!([{"secretKeyRef": {"name": "gone", "key": "key"}}]);
    let provider = |field: &str, value: Value| {
        let mut spec = json!({"endpoints": endpoints});
        spec[field] = value;
        object("ModelProvider", "models", spec)
    };
    let policy = |suspend: bool| {
        let agents = json!([{"namespace": pond, "name": "otter"}]);
        let spec = json!({"agents": agents, "maxTier": "System", "suspend": suspend});
        object("ClusterToolPolicy", pond, spec)
    };
    let no = json!(false);
    vec![
        Row {
            right: surface(json!({"type": "object"})),
            mistake: Some((
                surface(json!({"type": "object", "properties": 5})),
                "InvalidSchema",
            )),
            idle: Vec::new(),
        },
        Row {
            right: agent("reed", false),
            mistake: Some((agent("gone", false), "AllWithheld")),
            idle: vec![agent("reed", true)],
        },
        Row {
            right: grant("look", "suspend", no),
            mistake: Some((grant("dive", "suspend", json!(false)), "ToolNotFound")),
            idle: vec![
                grant("look", "suspend", json!(true)),
                grant("look", "notAfter", json!("2026-01-01T00:00:00Z")),
                grant("look", "notBefore", json!("2099-01-01T00:00:00Z")),
            ],
        },
        Row {
            right: defaults("look"),
            mistake: Some((defaults("dive"), "ToolNotFound")),
            idle: Vec::new(),
        },
        Row {
            right: provider("auth", json!("None")),
            mistake: Some((provider("apiKeys", gone), "SecretNotFound")),
            idle: Vec::new(),
        },
        // The API server refuses every mistake in a policy.
        Row {
            right: policy(false),
            mistake: None,
            idle: vec![policy(true)],
        },
    ]
}

/// What kstatus says of an object.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
struct Health {
    status: String,
    message: String,
}

/// True if the controller has seen the object's present generation.
fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

struct Pond {
    harness: Harness,
    kstatus: PathBuf,
}

impl Pond {
    /// The objects as the API server returns them, each with its health.
    async fn health(&self, objects: &[&Value]) -> Vec<(Value, Health)> {
        let mut stored = Vec::new();
        for object in objects {
            stored.push(self.stored(object).await.expect("the object"));
        }
        let mut child = Command::new(&self.kstatus)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kstatus starts");
        let mut input = child.stdin.take().expect("a pipe");
        for object in &stored {
            writeln!(input, "{object}").expect("written");
        }
        drop(input);
        let output = child.wait_with_output().expect("kstatus ends");
        assert!(output.status.success(), "{}", output.status);
        let lines = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
        let found: Vec<Health> = lines.map(|line| line.expect("a line")).collect();
        assert_eq!(found.len(), stored.len());
        stored.into_iter().zip(found).collect()
    }

    async fn stored(&self, object: &Value) -> Option<Value> {
        let found: Option<DynamicObject> = api(&self.harness, object)
            .get_opt(name(object))
            .await
            .expect("an answer");
        found.map(|found| serde_json::to_value(found).expect("JSON"))
    }

    async fn apply_all(&self, objects: &[&Value]) {
        for object in objects {
            let params = PatchParams::apply("toolcrib-test").force();
            let api = api(&self.harness, object);
            let applied = api
                .patch(name(object), &params, &Patch::Apply(object))
                .await;
            applied.unwrap_or_else(|error| panic!("{object}: {error}"));
        }
    }

    /// Waits until kstatus says this of each object, of its present generation.
    async fn becomes(&self, objects: &[&Value], status: &str) -> Vec<(Value, Health)> {
        self.harness
            .eventually(&format!("each is {status}"), || async {
                let all = self.health(objects).await;
                let done = all
                    .iter()
                    .all(|(object, found)| is_observed(object) && found.status == status);
                done.then_some(all)
            })
            .await
    }

    /// Applies objects while no controller runs, and checks that they are in progress; then starts the controller.
    async fn not_observed(&mut self, objects: &[&Value]) {
        self.harness.stop().await;
        self.apply_all(objects).await;
        for (object, found) in self.health(objects).await {
            assert_eq!(found.status, "InProgress", "{object} {found:?}");
            assert!(!is_observed(&object), "{object} {found:?}");
        }
        self.harness.start("heron");
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

/// The API of an object of Toolcrib's, with the plural of its definition.
fn api(harness: &Harness, object: &Value) -> Api<DynamicObject> {
    let kind = object["kind"].as_str().expect("a kind");
    let definitions = definitions();
    let mut names = definitions.iter().map(|it| &it.spec.names);
    let names = names
        .find(|names| names.kind == kind)
        .expect("a definition");
    let kind = GroupVersionKind::gvk(GROUP, VERSION, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &names.plural);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(harness.client.clone(), namespace, &resource),
        None => Api::all_with(harness.client.clone(), &resource),
    }
}

fn condition<'o>(object: &'o Value, kind: &str) -> &'o Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == kind)
        .unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn kstatus_follows_each_kind_from_creation_to_deletion() {
    let programs = compatibility_programs(&Home::find().unwrap(), &Progress::stderr()).unwrap();
    let mut pond = Pond {
        harness: Harness::new().await,
        kstatus: programs.kstatus,
    };
    let rows = rows(&pond.harness.pond);
    let right: Vec<&Value> = rows.iter().map(|row| &row.right).collect();

    // Created, and not seen by a controller yet.
    pond.not_observed(&right).await;
    pond.becomes(&right, "Current").await;

    // A mistake is in progress, with the message of Ready: the cure may be another object's, and nothing has failed for
    // good.
    let mistakes: Vec<_> = rows.iter().filter_map(|row| row.mistake.as_ref()).collect();
    let wrong: Vec<&Value> = mistakes.iter().map(|(object, _)| object).collect();
    pond.not_observed(&wrong).await;
    for ((object, found), (_, reason)) in pond
        .becomes(&wrong, "InProgress")
        .await
        .iter()
        .zip(mistakes)
    {
        let ready = condition(object, "Ready");
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("False"), &json!(reason))
        );
        assert_eq!(ready["message"], found.message);
    }
    pond.apply_all(&right).await;
    pond.becomes(&right, "Current").await;

    // Nothing is wrong with an object that is suspended, or outside of its time.
    for row in &rows {
        for idle in &row.idle {
            pond.apply_all(&[idle]).await;
            let all = pond.becomes(&right, "Current").await;
            for (object, _) in &all {
                assert_eq!(condition(object, "Ready")["status"], "True", "{object}");
                if object["kind"] == "ToolGrant" && idle["kind"] == "ToolGrant" {
                    assert_eq!(condition(object, "Active")["status"], "False", "{object}");
                }
            }
            pond.apply_all(&[&row.right]).await;
        }
        pond.becomes(&right, "Current").await;
    }

    deletion(&pond, &right).await;
    pond.harness.end().await;
}

/// No kind has a finalizer of Toolcrib's, so a deleted object is gone at once; with another's it terminates.
async fn deletion(pond: &Pond, objects: &[&Value]) {
    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    for object in objects {
        let stored = pond.stored(object).await.expect("the object");
        assert_eq!(stored["metadata"]["finalizers"], Value::Null, "{stored}");
        let name = name(object);
        let api = api(&pond.harness, object);
        let params = PatchParams::default();
        let held = Patch::Merge(hold(json!(["pond.test/hold"])));
        api.patch(name, &params, &held).await.expect("held");
        api.delete(name, &DeleteParams::default())
            .await
            .expect("deleted");
        let (_, found) = pond.health(&[object]).await.remove(0);
        assert_eq!(found.status, "Terminating", "{object}");
        let free = Patch::Merge(hold(Value::Null));
        api.patch(name, &params, &free).await.expect("free");
        assert_eq!(pond.stored(object).await, None, "{object}");
    }
}

/// Neither is applied by GitOps tools. They have no condition `Ready`: they wait for people, and are not at fault.
#[tokio::test(flavor = "multi_thread")]
async fn kstatus_takes_approvals_and_decisions_as_they_are() {
    let programs = compatibility_programs(&Home::find().unwrap(), &Progress::stderr()).unwrap();
    let pond = Pond {
        harness: Harness::new().await,
        kstatus: programs.kstatus,
    };
    let asked = approval(&pond.harness.pond, "otter-dives");
    let decided = decision(&asked, "heron-says", "no uid", json!({"username": "heron"}));
    let both = [&asked, &decided];
    pond.apply_all(&both).await;
    for (object, found) in pond.health(&both).await {
        assert_eq!(found.status, "Current", "{object}");
    }
    pond.harness.end().await;
}
