//! Row: over all rows the accounts have used all of their rights, and no others.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_e2e::audit::rare::STEPS;
use toolcrib_e2e::audit::{self, was_used};

use crate::approvals::asked;
use crate::install::{CONTROLLER, POND, RELEASE, SYSTEM, WEBHOOK};
use crate::wait::{DEADLINE, eventually};
use crate::world::{Row, World};

/// The last row: it causes the rare events, then reads the log.
pub async fn least(world: &mut World) -> Result<Vec<Row>> {
    let begun = Instant::now();
    world.works().await?;
    for step in STEPS {
        let mark = world.mark()?;
        world.plane.apply_text(&step.manifest(POND))?;
        let what = format!("{} {} is used", step.verb, step.resource);
        eventually(&what, DEADLINE, async || {
            let uses = world.uses()?;
            Ok(was_used(&uses[mark..], step.verb, step.resource).then_some(()))
        })
        .await?;
    }
    hinted(world).await?;
    asked(world).await?;
    // The Lease is created again if it is deleted.
    let mark = world.mark()?;
    let leases: Api<Lease> = Api::namespaced(world.plane.client.clone(), SYSTEM);
    leases.delete(CONTROLLER, &DeleteParams::default()).await?;
    eventually("create leases is used", DEADLINE, async || {
        let uses = world.uses()?;
        Ok(was_used(&uses[mark..], "create", "leases").then_some(()))
    })
    .await?;
    // A call to the link makes the operator review its token.
    let leader = &world.controllers[world.leader().await?];
    let http = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .no_proxy()
        .build()?;
    let answer = http
        .post(format!("https://{}/v1/link", leader.address))
        .bearer_auth("nobody's")
        .body(r#"{"epoch":"1","version":"0","understands":[]}"#)
        .send()
        .await?;
    ensure!(
        answer.status() == 401,
        "a stranger on the link: {}",
        answer.status()
    );

    let rights = audit::rights(&objects(world).await?)?;
    ensure!(rights.len() > 40, "the chart's rights: {}", rights.len());
    let findings = eventually("every right is used", DEADLINE, async || {
        let findings = audit::check(&world.uses()?[world.upgraded..], &rights);
        Ok(findings.unused.is_empty().then_some(findings))
    })
    .await;
    let findings = match findings {
        Ok(findings) => findings,
        Err(error) => {
            let findings = audit::check(&world.uses()?[world.upgraded..], &rights);
            return Err(error).with_context(|| findings.to_string());
        }
    };
    ensure!(findings.none(), "{findings}");
    let webhook = audit::user(SYSTEM, WEBHOOK);
    let secrets = world
        .uses()?
        .into_iter()
        .filter(|used| used.user == webhook && used.resource.starts_with("secrets"));
    ensure!(secrets.count() == 0, "the webhook asked for a Secret");
    let seen = format!(
        "{} rights, all used; no request refused; the webhook's account asked for no Secret",
        rights.len()
    );
    Ok(vec![Row::new(
        "the audit log of all rows",
        seen,
        begun.elapsed(),
    )])
}

/// A grant for an agent with a pod makes the controller annotate the pod.
async fn hinted(world: &World) -> Result<()> {
    let mark = world.mark()?;
    let pods: Api<Pod> = Api::namespaced(world.plane.client.clone(), POND);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "otter-hinted", "labels": {"toolcrib.dev/agent": "otter"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "runner", "image": "example.test/runner:1"}]},
    }))?;
    let pod = pods.create(&PostParams::default(), &pod).await?;
    let created = pod.metadata.creation_timestamp.context("a time")?.0;
    // Times of objects have whole seconds, and only older pods get a hint.
    eventually("the next second", DEADLINE, async || {
        let now = k8s_openapi::jiff::Timestamp::now();
        Ok((now.as_second() > created.as_second()).then_some(()))
    })
    .await?;
    world.give().await?;
    eventually("a pod of an agent is annotated", DEADLINE, async || {
        let uses = world.uses()?;
        let annotated = uses[mark..].iter().any(|used| {
            used.namespace == POND
                && used.resource == "pods"
                && used.verb == "patch"
                && used.writes()
        });
        Ok(annotated.then_some(()))
    })
    .await?;
    let now = DeleteParams::default().grace_period(0);
    pods.delete("otter-hinted", &now).await?;
    world.revoke().await
}

/// Roles and bindings of the installation.
async fn objects(world: &World) -> Result<Vec<Value>> {
    let client = &world.plane.client;
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/instance={RELEASE}"));
    let mut objects = Vec::new();
    macro_rules! add {
        ($($kind:ident),*) => {$(
            for object in Api::<$kind>::all(client.clone()).list(&ours).await? {
                let mut object = serde_json::to_value(object)?;
                object["kind"] = stringify!($kind).into();
                objects.push(object);
            }
        )*};
    }
    add!(ClusterRole, ClusterRoleBinding, Role, RoleBinding);
    Ok(objects)
}
