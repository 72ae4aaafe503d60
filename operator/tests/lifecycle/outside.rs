//! Rows: a dependency of Toolcrib goes down, or loses its history.

use anyhow::{Result, ensure};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::Instant;

use crate::wait::{DEADLINE, eventually};
use crate::world::{DIVE, History, LOOK, Row, World};

/// The only controller gets grants late. Until it has listed all of them, it revokes nothing.
pub async fn slow_caches(world: &mut World) -> Result<Vec<Row>> {
    world.give().await?;
    world.compiled(&[DIVE, LOOK]).await?;
    // The status is written after the files.
    world.quiet().await?;
    world.no_controllers().await?;
    let mark = world.mark()?;
    let history = History::watch(world).await?;
    let proxy = world.proxy().await?;
    proxy.hold(|_, uri| {
        uri.path().ends_with("/toolgrants")
            && uri.query().is_some_and(|query| !query.contains("watch="))
    });
    let begun = Instant::now();
    world.add_controller_by(&proxy).await?;
    eventually(
        "the controller has listed the grants",
        DEADLINE,
        async || Ok((proxy.held_responses() > 0).then_some(())),
    )
    .await?;
    // It has everything else that it needs, and the lease.
    eventually("the controller holds the lease", DEADLINE, async || {
        let leases = world
            .uses()?
            .into_iter()
            .skip(mark)
            .filter(|used| used.resource == "leases" && used.writes());
        Ok((leases.count() >= 3).then_some(()))
    })
    .await?;
    let waited = begun.elapsed();
    let writes = world.writes_since(mark)?;
    ensure!(
        writes.is_empty(),
        "written before all was listed: {writes:?}"
    );
    ensure!(
        !world.controllers[0].ready().await,
        "ready before all was listed"
    );
    let begun = Instant::now();
    proxy.release();
    world.leader().await?;
    let took = begun.elapsed();
    world.quiet().await?;
    let writes = world.writes_since(mark)?;
    ensure!(writes.is_empty(), "needless writes: {writes:?}");
    ensure!(history.always_gave(DIVE), "something was revoked");
    world.revoke().await?;
    world.compiled(&[LOOK]).await?;
    // A controller with a direct connection takes its place.
    world.no_controllers().await?;
    world.add_controller().await?;
    world.add_controller().await?;
    world.all_ready().await?;
    world.leader().await?;
    Ok(vec![Row::new(
        format!(
            "a controller whose list of grants arrives after {:.1} s",
            waited.as_secs_f64()
        ),
        "agents unchanged: nothing is revoked, nothing written; then it leads",
        took,
    )])
}

/// The API server is killed and started again. No process of ours ends.
pub async fn api_server(world: &mut World) -> Result<Vec<Row>> {
    world.give().await?;
    world.compiled(&[DIVE, LOOK]).await?;
    world.quiet().await?;
    let mark = world.mark()?;
    let away = Instant::now();
    world.plane.kill_api()?;
    world.plane.start_api().await?;
    let away = away.elapsed();
    let begun = Instant::now();
    world.all_ready().await?;
    let writes = world.writes_since(mark)?;
    ensure!(writes.is_empty(), "needless writes: {writes:?}");
    world.revoke().await?;
    world.compiled(&[LOOK]).await?;
    let took = begun.elapsed();
    world.works().await?;
    Ok(vec![Row::new(
        format!("API server killed, back after {:.1} s", away.as_secs_f64()),
        "compiled agents unchanged; a grant deleted at its return takes effect",
        took,
    )])
}

/// The controllers miss a revocation, and when they watch from their last version, it is
/// compacted: 410 Gone, for every watch.
pub async fn compaction(world: &mut World) -> Result<Vec<Row>> {
    world.give().await?;
    world.compiled(&[DIVE, LOOK]).await?;
    world.quiet().await?;
    for controller in &world.controllers {
        controller.program.signal(Signal::STOP)?;
    }
    world.revoke().await?;
    // Every kind has a version that is newer than the watches'.
    let churn = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "churn", "namespace": "default"}});
    for round in 0..20 {
        let mut churn = churn.clone();
        churn["data"] = json!({"round": round.to_string()});
        world.plane.apply(&[churn])?;
    }
    world.plane.kill_api()?;
    world.plane.start_api().await?;
    world.plane.compact().await?;
    let begun = Instant::now();
    for controller in &world.controllers {
        controller.program.signal(Signal::CONT)?;
    }
    world.compiled(&[LOOK]).await?;
    let took = begun.elapsed();
    eventually(
        "a watch was told that its version is gone",
        DEADLINE,
        async || {
            let mut logs = world.controllers.iter().map(|replica| &replica.program);
            let told = logs.any(|program| program.has_said("too old resource version"));
            Ok(told.then_some(()))
        },
    )
    .await?;
    world.works().await?;
    Ok(vec![Row::new(
        "etcd compacted while the controllers were away (410 Gone), a grant deleted meanwhile",
        "the tool is gone from the agent's files",
        took,
    )])
}
