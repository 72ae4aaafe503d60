//! Rows: what Toolcrib stands on goes away, or forgets.

use anyhow::{Result, ensure};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::Instant;

use crate::wait::{DEADLINE, eventually};
use crate::world::{DIVE, LOOK, Row, World};

/// Killed and started again. Nothing of ours ends for it.
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
        "compiled agents as they were; a grant deleted at its return takes effect",
        took,
    )])
}

/// The controllers miss a revocation, and when they ask for what they missed, it is forgotten:
/// 410 Gone, for every watch.
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
