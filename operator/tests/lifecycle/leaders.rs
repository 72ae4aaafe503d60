//! Rows: the leader is lost, or has lost its lease without knowing.

use std::time::Duration;

use anyhow::{Result, ensure};
use axum::http::Method;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::install::POND;
use crate::wait::{DEADLINE, eventually};
use crate::world::{DIVE, FILES, History, LOOK, Row, World};

/// The leader is killed, and a grant is revoked right after.
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

/// The leader is paused with its state, while a grant is revoked and another controller leads;
/// then it resumes.
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
    eventually("the paused leader is a follower", DEADLINE, async || {
        let ended = paused.program.ended()?.is_some();
        Ok((ended || paused.metric_is("leader", 0.0).await).then_some(()))
    })
    .await?;
    let stood_by = resumed.elapsed();
    world.quiet().await?;
    let writes = world.writes_since(mark)?;
    ensure!(writes.is_empty(), "the resumed leader wrote: {writes:?}");
    ensure!(
        !history.gave(DIVE, revoked),
        "the revoked tool was restored"
    );
    world.works().await?;
    drop(paused);
    Ok(vec![
        Row::new(
            "leader paused, a grant deleted in the same moment",
            "the tool is gone from the agent's files once another leads",
            took,
        ),
        Row::new(
            "the paused leader resumes",
            "nothing: it writes nothing and stands by",
            stood_by.max(Duration::from_millis(1)),
        ),
    ])
}

/// Like [`paused`], at the worst moment: the leader has compiled the agent with a grant, which is
/// not written yet, and its next instruction is the first write. Meanwhile the grant is revoked,
/// so the next leader finds nothing to change and writes no version that could fence off the
/// first.
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

    // The last request before the write.
    proxy.hold(|method, uri| *method == Method::GET && uri.path().ends_with(FILES));
    world.give().await?;
    eventually("the leader is about to write", DEADLINE, async || {
        Ok((proxy.held_responses() > 0).then_some(()))
    })
    .await?;
    let mut paused = world.controllers.remove(0);
    paused.program.signal(Signal::STOP)?;
    // The response waits in the paused leader's socket.
    proxy.release();
    world.revoke().await?;
    world.leader().await?;
    world.quiet().await?;

    let resumed = Instant::now();
    paused.program.signal(Signal::CONT)?;
    eventually("the paused leader is a follower", DEADLINE, async || {
        let ended = paused.program.ended()?.is_some();
        Ok((ended || paused.metric_is("leader", 0.0).await).then_some(()))
    })
    .await?;
    let took = resumed.elapsed();
    world.quiet().await?;
    ensure!(!history.gave(DIVE, 0), "the revoked tool was granted");
    let files = format!("patch secrets {POND}/{FILES}");
    let wrote = world.writes_since(mark)?;
    ensure!(
        !wrote.contains(&files),
        "the resumed leader wrote: {wrote:?}"
    );
    drop(paused);
    world.add_controller().await?;
    world.all_ready().await?;
    world.works().await?;
    Ok(vec![Row::new(
        "leader paused before its first write of a grant that is deleted meanwhile; it resumes",
        "nothing: the grant never takes effect",
        took,
    )])
}
