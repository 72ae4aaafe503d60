//! Row: objects as large as the API server accepts, of every kind, and more of them than a
//! namespace's budget allows, while an agent of another namespace is compiled and loses a tool.
//!
//! Memory is the kernel's high-water mark of each process (`VmHWM`), compared with the chart's
//! limits. `TOOLCRIB_HEAVY=long` creates a hundred objects of each kind, and thousands of
//! Surfaces in the same namespace. `TOOLCRIB_HEAVY=crowds` creates more namespaces, each within
//! its budget, than the controller has memory for.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolDefaults, ToolGrant};

use crate::install::{LAKE, Replica};
use crate::wait::{DEADLINE, eventually};
use crate::world::{DIVE, LOOK, Row, World, shown};

const NAMESPACE: &str = "heavy";
const MIB: usize = 1024 * 1024;
/// The chart's memory limit of the controller.
const CONTROLLER: usize = 512 * MIB;
const WEBHOOK: usize = 256 * MIB;
/// Size of an object, just under the API server's limit.
const LARGE: usize = 1_400_000;

struct Size {
    of_each_kind: usize,
    /// Number of Surfaces, which together exceed the budget of a namespace.
    surfaces: usize,
    surface: usize,
    /// Number of namespaces whose objects are just within the budget of each.
    crowds: usize,
}

/// Number of large Surfaces in each namespace of the crowd: 47 MiB.
const OF_CROWD: usize = 33;
/// The controller's memory budget for all objects: a third of its limit.
const KEPT: usize = CONTROLLER / 3;

const SHORT: Size = Size {
    of_each_kind: 20,
    surfaces: 0,
    surface: 0,
    crowds: 0,
};
const CROWDS: Size = Size { crowds: 8, ..SHORT };
const LONG: Size = Size {
    of_each_kind: 100,
    surfaces: 5_000,
    surface: 40_000,
    crowds: 0,
};

pub async fn objects(world: &mut World) -> Result<Vec<Row>> {
    let size = match std::env::var("TOOLCRIB_HEAVY").as_deref() {
        Ok("long") => LONG,
        Ok("crowds") => CROWDS,
        _ => SHORT,
    };
    // First by the watch of running controllers, then by the list of a starting one.
    let place = world.leader().await?;
    let client = world.plane.client.clone();
    make(world, &client, &size).await?;
    let watched = revoked(world).await?;
    eventually(
        "the last Surface's status says that it is left out",
        DEADLINE,
        async || {
            let name = format!("surface-{}", size.of_each_kind - 1);
            Ok(is_too_expensive(&client, &name).await?.then_some(()))
        },
    )
    .await?;
    shared_fairly(world, &client, &size, place).await?;
    let of_leader = high_water(&world.controllers[place])?;

    world.no_controllers().await?;
    world.give().await?;
    let begun = Instant::now();
    world.add_controller().await?;
    world.compiled(&[DIVE, LOOK]).await?;
    let started = begun.elapsed();
    world.revoke().await?;
    world.compiled(&[LOOK]).await?;
    shared_fairly(world, &client, &size, 0).await?;
    let of_next = high_water(&world.controllers[0])?;
    let mut of_webhooks = 0;
    for webhook in &world.webhooks {
        of_webhooks = of_webhooks.max(high_water(webhook)?);
    }
    for (what, bytes, limit) in [
        ("the leader that watched", of_leader, CONTROLLER),
        ("the leader that listed", of_next, CONTROLLER),
        ("a webhook", of_webhooks, WEBHOOK),
    ] {
        eprintln!(
            "lifecycle: heavy-objects: {what} took {} MiB at most",
            bytes / MIB
        );
        ensure!(bytes < limit, "{what} took {} MiB", bytes / MIB);
    }

    // Deleting the others makes room for the last Surface, which was left out.
    let surfaces: Api<Surface> = Api::namespaced(client.clone(), NAMESPACE);
    let last = format!("surface-{}", size.of_each_kind - 1);
    for number in 0..size.of_each_kind - 1 {
        remove::<Surface>(&client, &format!("surface-{number}")).await?;
    }
    for number in 0..size.of_each_kind {
        remove::<ToolGrant>(&client, &format!("toolgrant-{number}")).await?;
        remove::<Agent>(&client, &format!("agent-{number}")).await?;
        remove::<ModelProvider>(&client, &format!("modelprovider-{number}")).await?;
    }
    remove::<ToolDefaults>(&client, "default").await?;
    for number in 0..size.surfaces {
        remove::<Surface>(&client, &format!("many-{number}")).await?;
    }
    for number in 0..size.crowds {
        let crowd: Api<Surface> = Api::namespaced(client.clone(), &crowd(number));
        crowd
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
    }
    eventually("it is accepted once there is room", DEADLINE, async || {
        let found = surfaces.get(&last).await?;
        let accepted = condition(&serde_json::to_value(found)?) == Some("Accepted".to_owned());
        Ok(accepted.then_some(()))
    })
    .await?;
    remove::<Surface>(&client, &last).await?;
    for number in 0..size.of_each_kind {
        remove::<Service>(&client, &format!("service-{number}")).await?;
        remove_from::<Surface>(&client, LAKE, &format!("docs-{number}")).await?;
        remove_from::<ConfigMap>(&client, LAKE, &format!("docs-{number}")).await?;
    }
    world.add_controller().await?;
    world.all_ready().await?;
    world.works().await?;
    let seen = |bytes: usize| {
        format!(
            "the tool is gone from the agent's files; the leader took {} MiB",
            bytes / MIB
        )
    };
    Ok(vec![
        Row::new(
            format!(
                "{} objects of every kind at the API server's bound, in a namespace",
                size.of_each_kind
            ),
            seen(of_leader),
            watched,
        ),
        Row::new(
            "a controller starts among them",
            format!(
                "the agent is compiled; the leader took {} MiB",
                of_next / MIB
            ),
            started,
        ),
    ])
}

/// Grants and revokes a tool; returns the time of the revocation.
async fn revoked(world: &World) -> Result<Duration> {
    world.give().await?;
    world.compiled(&[DIVE, LOOK]).await?;
    let begun = Instant::now();
    world.revoke().await?;
    world.compiled(&[LOOK]).await?;
    let took = begun.elapsed();
    eprintln!("lifecycle: heavy-objects: revoked in {}", shown(took));
    Ok(took)
}

fn crowd(number: usize) -> String {
    format!("crowd-{number}")
}

/// If all namespaces together exceed the budget, the controller keeps no more than that, and an
/// equal share of each crowd.
async fn shared_fairly(world: &World, client: &Client, size: &Size, place: usize) -> Result<()> {
    if size.crowds == 0 {
        return Ok(());
    }
    let leader = &world.controllers[place];
    eventually("every crowd has an equal share", DEADLINE, async || {
        let mut accepted = Vec::new();
        for number in 0..size.crowds {
            let api: Api<Surface> = Api::namespaced(client.clone(), &crowd(number));
            let page = ListParams::default().limit(10);
            let mut count = 0;
            let mut token = String::new();
            loop {
                let found = api.list(&page.clone().continue_token(&token)).await?;
                for surface in found.items {
                    let reason = condition(&serde_json::to_value(surface)?);
                    count += usize::from(reason.as_deref() == Some("Accepted"));
                }
                match found.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(next) => token = next,
                    None => break,
                }
            }
            accepted.push(count);
        }
        eprintln!("lifecycle: heavy-objects: kept of each crowd: {accepted:?}");
        let first = accepted[0];
        let fair = first > 0 && first < OF_CROWD && accepted.iter().all(|it| *it == first);
        Ok(fair.then_some(()))
    })
    .await?;
    let kept = leader.metric("objects_bytes").await.context("a metric")?;
    let left_out = leader
        .metric("objects_left_out")
        .await
        .context("a metric")?;
    eprintln!(
        "lifecycle: heavy-objects: the leader keeps {} MiB of objects and leaves {left_out} out",
        kept / MIB as f64
    );
    ensure!(
        kept <= KEPT as f64 && left_out > 0.0,
        "{kept} bytes, {left_out} left out"
    );
    Ok(())
}

async fn make(world: &World, client: &Client, size: &Size) -> Result<()> {
    let crowds = (0..size.crowds).map(crowd);
    for namespace in std::iter::once(NAMESPACE.to_owned()).chain(crowds) {
        world.plane.apply(&[json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
        })])?;
    }
    let names: Vec<String> = (0..256).map(|number| format!("{number:0>100}")).collect();
    let rules: Vec<Value> = (0..52)
        .map(|number| json!({"surface": {"name": format!("s{number}")}, "allow": names}))
        .collect();
    let long = "x".repeat(LARGE);
    // As much as annotations may have: other fields of these kinds have smaller bounds.
    let annotation = "x".repeat(250_000);
    let annotations = json!({"toolcrib.dev/rotate": annotation});
    let surface = |filler: &str| {
        let tools = json!([{"name": "t", "inputSchema": {"type": "object"}, "http": {"method": "GET", "path": "/"}}]);
        json!({"url": "https://heavy.example", "descriptor": {"version": 2, "tools": tools, "filler": filler}})
    };
    let kinds = [
        ("Surface", json!({}), surface(&long)),
        (
            "ToolGrant",
            json!({}),
            json!({"agents": ["agent-0"], "tools": rules}),
        ),
        (
            "Agent",
            annotations.clone(),
            json!({"surfaces": [{"name": "surface-0"}]}),
        ),
        (
            "ModelProvider",
            annotations.clone(),
            json!({"auth": "None", "endpoints": [{"dialect": "Anthropic", "url": "https://heavy.example"}]}),
        ),
    ];
    let ours = |kind: &str, namespace: &str, name: &str, annotations: &Value, spec: &Value| {
        let plural = format!("{}s", kind.to_lowercase()).replace("defaultss", "defaults");
        let object = json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": spec,
        });
        (
            format!("/apis/toolcrib.dev/v1alpha1/namespaces/{namespace}/{plural}"),
            object,
        )
    };
    let core = |kind: &str, namespace: &str, name: &str, mut object: Value| {
        object["apiVersion"] = json!("v1");
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        let plural = format!("{}s", kind.to_lowercase());
        (format!("/api/v1/namespaces/{namespace}/{plural}"), object)
    };
    let none = json!({});
    let defaults = json!({"tools": rules});
    let many = surface(&"y".repeat(size.surface));
    let text = surface(&"z".repeat(1_000_000))["descriptor"].to_string();
    let of_each = (0..size.of_each_kind).flat_map(|number| {
        let mut all: Vec<_> = kinds
            .iter()
            .map(|(kind, annotations, spec)| {
                let name = format!("{}-{number}", kind.to_lowercase());
                ours(kind, NAMESPACE, &name, annotations, spec)
            })
            .collect();
        let service = json!({
            "metadata": {"annotations": annotations}, "spec": {"ports": [{"port": 80}]},
        });
        all.push(core(
            "Service",
            NAMESPACE,
            &format!("service-{number}"),
            service,
        ));
        // In a namespace where the operator reads ConfigMaps, other than the agent's: a full
        // namespace has no room for its own new grants.
        let docs = format!("docs-{number}");
        all.push(core(
            "ConfigMap",
            LAKE,
            &docs,
            json!({"data": {"text": text}}),
        ));
        let source = json!({"configMapKeyRef": {"name": docs, "key": "text"}});
        let spec = json!({"url": "https://heavy.example", "descriptorFrom": source});
        all.push(ours("Surface", LAKE, &docs, &none, &spec));
        all
    });
    let one = ours("ToolDefaults", NAMESPACE, "default", &none, &defaults);
    let many = (0..size.surfaces).map(|number| {
        ours(
            "Surface",
            NAMESPACE,
            &format!("many-{number}"),
            &none,
            &many,
        )
    });
    let large = &kinds[0].2;
    let crowds = (0..size.crowds).flat_map(|number| {
        let namespace = crowd(number);
        (0..OF_CROWD).map(move |member| (namespace.clone(), member))
    });
    let crowds = crowds.map(|(namespace, member)| {
        let name = format!("member-{member}");
        ours("Surface", &namespace, &name, &none, large)
    });
    let all = std::iter::once(one).chain(of_each).chain(many);
    futures::stream::iter(all.chain(crowds))
        .map(|(path, object)| async move {
            let what = object["metadata"]["name"].clone();
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(object.to_string().into_bytes())?;
            let made: Value = client
                .request(request)
                .await
                .with_context(|| what.to_string())?;
            ensure!(made["metadata"]["uid"].is_string(), "{what} was not made");
            Ok(())
        })
        .buffer_unordered(4)
        .try_collect()
        .await
}

async fn remove<K>(client: &Client, name: &str) -> Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    remove_from::<K>(client, NAMESPACE, name).await
}

async fn remove_from<K>(client: &Client, namespace: &str, name: &str) -> Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

async fn is_too_expensive(client: &Client, surface: &str) -> Result<bool> {
    let api: Api<Surface> = Api::namespaced(client.clone(), NAMESPACE);
    let found = serde_json::to_value(api.get(surface).await?)?;
    Ok(condition(&found) == Some("TooExpensive".to_owned()))
}

/// The reason of the condition `Accepted`.
fn condition(object: &Value) -> Option<String> {
    let conditions = object["status"]["conditions"].as_array()?;
    let accepted = conditions
        .iter()
        .find(|condition| condition["type"] == "Accepted")?;
    Some(accepted["reason"].as_str()?.to_owned())
}

/// The highest memory use of a process, in bytes.
fn high_water(replica: &Replica) -> Result<usize> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", replica.program.id()))?;
    let mut words = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("VmHWM")?
        .split_whitespace();
    Ok(words.next().context("a number")?.parse::<usize>()? * 1024)
}
