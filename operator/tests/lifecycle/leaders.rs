//! Rows: the leader is lost, or is not but does not know it.

use std::time::Duration;

use anyhow::{Result, ensure};
use axum::http::Method;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::install::POND;
use crate::wait::{DEADLINE, eventually};
use crate::world::{DIVE, FILES, History, LOOK, Row, World};

/// Killed, with a revocation right behind it.
pub async fn killed(world: &mut World) -> Result<Vec<Row>> {
    world.give().await?;
    world.compiled(&[DIVE, LOOK]).await?;
    world.add_controller().await?;
    world.all_ready().await?;
    let place = world.leader().await?;
    let leader = world.controllers.remove(place);
    let begun = Instant::now();
    leader.program.kill()?;
    world.revoke().await?;
    world.compiled(&[LOOK]).await?;
    let took = begun.elapsed();
    world.works().await?;
    Ok(vec![Row::new(
        "leader killed, a grant deleted in the same moment",
        "the tool is gone from the agent's files once another leads",
        took,
    )])
}

/// Stopped with all it knows, while a grant is revoked and another takes over; then it goes
/// on.
pub async fn paused(world: &mut World) -> Result<Vec<Row>> {
    world.give().await?;
    world.compiled(&[DIVE, LOOK]).await?;
    world.add_controller().await?;
    world.all_ready().await?;
    let place = world.leader().await?;
    let mut paused = world.controllers.remove(place);
    let history = History::watch(world).await?;
    let begun = Instant::now();
    paused.program.signal(Signal::STOP)?;
    world.revoke().await?;
    world.compiled(&[LOOK]).await?;
    let took = begun.elapsed();
    world.quiet().await?;
    let mark = world.mark()?;
    let revoked = history.len();
    let resumed = Instant::now();
    paused.program.signal(Signal::CONT)?;
    eventually("it leads no longer", DEADLINE, async || {
        let ended = paused.program.ended()?.is_some();
        Ok((ended || paused.metric_is("leader", 0.0).await).then_some(()))
    })
    .await?;
    let stood_by = resumed.elapsed();
    world.quiet().await?;
    let writes = world.writes_since(mark)?;
    ensure!(writes.is_empty(), "it wrote when it went on: {writes:?}");
    ensure!(!history.gave(DIVE, revoked), "what was revoked came back");
    world.works().await?;
    drop(paused);
    Ok(vec![
        Row::new(
            "leader paused, a grant deleted in the same moment",
            "the tool is gone from the agent's files once another leads",
            took,
        ),
        Row::new(
            "the paused leader goes on",
            "nothing: it writes nothing and leads no longer",
            stood_by.max(Duration::from_millis(1)),
        ),
    ])
}

/// As [`paused`], at the worst moment there is: it has compiled the agent with a grant, nobody
/// has written that yet, and its next instruction is the first write. Meanwhile the grant is
/// revoked, so the next leader finds nothing to change, and no version that could fence it off.
pub async fn unaware(world: &mut World) -> Result<Vec<Row>> {
    world.no_controllers().await?;
    let proxy = world.proxy().await?;
    world.add_controller_by(&proxy).await?;
    world.leader().await?;
    world.compiled(&[LOOK]).await?;
    world.add_controller().await?;
    world.all_ready().await?;
    world.quiet().await?;
    let history = History::watch(world).await?;
    let mark = world.mark()?;

    // The last thing that it asks before it writes.
    proxy.hold(|method, uri| *method == Method::GET && uri.path().ends_with(FILES));
    world.give().await?;
    eventually("it is about to write", DEADLINE, async || {
        Ok((proxy.held() > 0).then_some(()))
    })
    .await?;
    let mut paused = world.controllers.remove(0);
    paused.program.signal(Signal::STOP)?;
    // The answer waits for it in its own socket.
    proxy.release();
    world.revoke().await?;
    world.leader().await?;
    world.quiet().await?;

    let resumed = Instant::now();
    paused.program.signal(Signal::CONT)?;
    eventually("it leads no longer", DEADLINE, async || {
        let ended = paused.program.ended()?.is_some();
        Ok((ended || paused.metric_is("leader", 0.0).await).then_some(()))
    })
    .await?;
    let took = resumed.elapsed();
    world.quiet().await?;
    ensure!(!history.gave(DIVE, 0), "what was revoked was given");
    let files = format!("patch secrets {POND}/{FILES}");
    let wrote = world.writes_since(mark)?;
    ensure!(
        !wrote.contains(&files),
        "it wrote when it went on: {wrote:?}"
    );
    drop(paused);
    world.add_controller().await?;
    world.all_ready().await?;
    world.works().await?;
    Ok(vec![Row::new(
        "leader paused before its first write of a grant that is deleted meanwhile; it goes on",
        "nothing: the grant is never given",
        took,
    )])
}
