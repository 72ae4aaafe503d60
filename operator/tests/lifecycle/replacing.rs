//! Rows: planned replacements, while users create pods all the time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::install::{CERTIFICATES, RELEASE, SYSTEM};
use crate::load::{Load, Tally};
use crate::wait::{DEADLINE, eventually};
use crate::world::{Row, World, shown};

/// How long the control plane and every node need to learn that a pod ends.
const ENDPOINTS_LAG: Duration = Duration::from_secs(1);
/// Number of pods that must be created after a change before it counts as survived.
const MORE: usize = 60;

/// The definitions, the webhooks' configurations, the guard and the rest of the chart are
/// replaced, then every process.
pub async fn chart(world: &mut World, previous: &str) -> Result<Row> {
    world.quiet().await?;
    let load = Load::start(&world.plane.client);
    more(&load).await?;
    let mark = world.mark()?;
    let begun = Instant::now();
    world
        .installation
        .upgrade(&world.plane, &crate::world::chart())
        .await?;
    more(&load).await?;
    for _ in 0..world.controllers.len() {
        hand_over(world).await?;
    }
    replace_webhooks(world).await?;
    let took = begun.elapsed();
    more(&load).await?;
    world.quiet().await?;
    let mut writes = world.writes_since(mark)?;
    // Over a chart that contains the webhooks' paths: one write for each, and no more.
    for kind in ["mutating", "validating"] {
        let start = format!("patch {kind}webhookconfigurations.");
        if let Some(place) = writes.iter().position(|write| write.starts_with(&start)) {
            writes.remove(place);
        }
    }
    ensure!(writes.is_empty(), "needless writes: {writes:?}");
    let tally = load.none_rejected().await?;
    world.works().await?;
    let fault =
        format!("upgrade from the previous chart ({previous}) under load, definitions included");
    let seen = format!("{}, 0 needless writes", passed(&tally));
    Ok(Row::new(fault, seen, took))
}

/// Each replica is replaced, as the Deployment does it: one starts, one stops.
pub async fn webhook(world: &mut World) -> Result<Vec<Row>> {
    let load = Load::start(&world.plane.client);
    more(&load).await?;
    let begun = Instant::now();
    replace_webhooks(world).await?;
    let took = begun.elapsed();
    more(&load).await?;
    let tally = load.none_rejected().await?;
    Ok(vec![Row::new(
        "rollout of both webhooks under load",
        passed(&tally),
        took,
    )])
}

async fn replace_webhooks(world: &mut World) -> Result<()> {
    for _ in 0..world.webhooks.len() {
        let name = world.name("webhook");
        let new = world.installation.webhook(&world.plane, &name).await?;
        world.installation.balancer.add(new.address);
        world.webhooks.push(new);
        let mut old = world.webhooks.remove(0);
        let ends = async {
            tokio::time::sleep(ENDPOINTS_LAG).await;
            world.installation.balancer.remove(old.address);
        };
        let (status, ()) = tokio::join!(old.program.terminate(), ends);
        ensure!(
            status?.success(),
            "the webhook failed to stop cleanly: {}",
            old.program.last_output()
        );
    }
    Ok(())
}

/// The leader stops gracefully, another controller leads.
pub async fn controller(world: &mut World) -> Result<Vec<Row>> {
    world.quiet().await?;
    let load = Load::start(&world.plane.client);
    more(&load).await?;
    let mark = world.mark()?;
    let mut rows = Vec::new();
    for _ in 0..world.controllers.len() {
        let took = hand_over(world).await?;
        rows.push(took);
    }
    world.quiet().await?;
    let writes = world.writes_since(mark)?;
    ensure!(writes.is_empty(), "needless writes: {writes:?}");
    more(&load).await?;
    let tally = load.none_rejected().await?;
    world.works().await?;
    let seen = format!("{}, 0 needless writes", passed(&tally));
    let slowest = rows.into_iter().max().unwrap_or_default();
    Ok(vec![Row::new(
        "rollout of both controllers under load: from SIGTERM to the next leader's work",
        seen,
        slowest,
    )])
}

/// Starts a new controller, then stops the leader gracefully; returns the time until another
/// leads.
async fn hand_over(world: &mut World) -> Result<Duration> {
    world.add_controller().await?;
    world.all_ready().await?;
    let place = world.leader().await?;
    let mut old = world.controllers.remove(place);
    let begun = Instant::now();
    let status = old.program.terminate().await?;
    ensure!(
        status.success(),
        "the controller failed to stop cleanly: {}",
        old.program.last_output()
    );
    let leader = world.leader().await?;
    let took = begun.elapsed();
    ensure!(leader < world.controllers.len(), "one of those that run");
    Ok(took)
}

/// Every event in a certificate's life, under load: a serving certificate is renewed and with it
/// the webhooks' paths, an authority is added beside the old one, then signs, then the old one is
/// dropped.
///
/// The plan's dates are days apart, so the dates are edited; all else is unchanged.
pub async fn certificates(world: &mut World) -> Result<Vec<Row>> {
    let load = Load::start(&world.plane.client);
    more(&load).await?;
    let begun = Instant::now();
    let day = SignedDuration::from_hours(24);
    let now = Timestamp::now();
    let ago = |days: i32| json!(now.checked_sub(day * days).unwrap_or(now).to_string());
    let steps: [(&str, Edit<'_>); 4] = [
        ("a serving certificate that expires soon", &|dates| {
            dates["webhook"]["not_after"] = ago(-1);
        }),
        ("an authority that expires soon", &|dates| {
            dates["authorities"][0]["not_after"] = ago(-300);
        }),
        ("an authority whose overlap is over", &|dates| {
            dates["authorities"][1]["published"] = ago(1);
        }),
        ("an authority that signs nothing any more", &|dates| {
            dates["authorities"][0]["published"] = ago(9);
            dates["authorities"][1]["published"] = ago(3);
        }),
    ];
    let mut rows = Vec::new();
    for (what, edit) in steps {
        let before = served(world).await?;
        let step = Instant::now();
        age(world, edit).await.with_context(|| what.to_owned())?;
        // The next leader checks at once; the current one within half a minute.
        hand_over(world).await?;
        settled(world, &before)
            .await
            .with_context(|| what.to_owned())?;
        rows.push(format!("{what} {}", shown(step.elapsed())));
        more(&load).await?;
    }
    let took = begun.elapsed();
    let tally = load.none_rejected().await?;
    let dates = stored_dates(world).await?;
    ensure!(
        dates["authorities"].as_array().map(Vec::len) == Some(1),
        "more than one authority is left: {dates}"
    );
    world.works().await?;
    let fault = format!(
        "rotation of serving certificate, webhook path and authority under load ({})",
        rows.join(", ")
    );
    Ok(vec![Row::new(fault, passed(&tally), took)])
}

/// A change of the dates.
type Edit<'a> = &'a dyn Fn(&mut Value);

const DATES: &str = "toolcrib.dev/certificates";

/// Edits the dates that the operator stores beside its certificates.
async fn age(world: &World, edit: Edit<'_>) -> Result<()> {
    let mut dates = stored_dates(world).await?;
    edit(&mut dates);
    let patch = json!({"metadata": {"annotations": {DATES: dates.to_string()}}});
    secret(world)
        .patch(CERTIFICATES, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

async fn stored_dates(world: &World) -> Result<Value> {
    let secret = secret(world).get(CERTIFICATES).await?;
    let text = secret
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(DATES));
    Ok(serde_json::from_str(
        text.context("the Secret has no annotation with dates")?,
    )?)
}

fn secret(world: &World) -> Api<Secret> {
    Api::namespaced(world.plane.client.clone(), SYSTEM)
}

/// The certificates that webhooks serve, and the stored paths and authorities that the API server
/// uses.
#[derive(PartialEq)]
struct ServedCertificate {
    certificate: Vec<u8>,
    bundle: Vec<u8>,
    path: String,
}

async fn served(world: &World) -> Result<ServedCertificate> {
    let data = secret(world)
        .get(CERTIFICATES)
        .await?
        .data
        .unwrap_or_default();
    let key = |name: &str| {
        data.get(name)
            .map(|bytes| bytes.0.clone())
            .unwrap_or_default()
    };
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(world.plane.client.clone());
    let webhook = serde_json::to_value(webhooks.get(RELEASE).await?)?;
    let path = &webhook["webhooks"][0]["clientConfig"]["service"]["path"];
    Ok(ServedCertificate {
        certificate: key("tls.crt"),
        bundle: key("ca.crt"),
        path: path.as_str().unwrap_or_default().to_owned(),
    })
}

/// Waits until one of them has changed, the API server has it, and every webhook serves it. A
/// mounted certificate is not served yet.
async fn settled(world: &World, before: &ServedCertificate) -> Result<()> {
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(world.plane.client.clone());
    eventually("the change is everywhere", DEADLINE, async || {
        let now = served(world).await?;
        let configured = webhooks.get(RELEASE).await?.webhooks.unwrap_or_default();
        let is_published = configured.iter().all(|webhook| {
            let bundle = webhook.client_config.ca_bundle.as_ref();
            bundle.is_some_and(|bundle| bundle.0 == now.bundle)
        });
        // Another path comes with another certificate, and with nothing else.
        let renewed = now.certificate != before.certificate;
        if now == *before || !is_published || renewed != (now.path != before.path) {
            return Ok(None);
        }
        for webhook in &world.webhooks {
            let shown = webhook.certificate(&now.bundle).await?;
            if shown != Some(CertificateDer::from_pem_slice(&now.certificate)?) {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
}

/// Waits for more pods. The API server may or may not reuse its connections: both must work.
pub async fn more(load: &Load) -> Result<()> {
    let from = load.created();
    eventually("pods are created", DEADLINE, async || {
        Ok((load.created() >= from + MORE).then_some(()))
    })
    .await
}

pub fn passed(tally: &Tally) -> String {
    format!(
        "{} pods created, 0 rejected, the slowest in {} ms",
        tally.created,
        tally.slowest.as_millis()
    )
}
