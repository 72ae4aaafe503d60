//! Rows: objects that are deleted and created again under the same name.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_crds::Agent;

use crate::install::{LAKE, POND, SYSTEM};
use crate::wait::{DEADLINE, eventually};
use crate::world::{FILES, LOOK, Row, World, agent, given, objects};

const IDENTITY: &str = "toolcrib-otter-identity";

/// An Agent is deleted and created again at once, with another uid: first with running
/// controllers, then with none, so the next one sees only the result.
pub async fn recreated(world: &mut World) -> Result<Vec<Row>> {
    let seen = recreate(world).await?;
    world.no_controllers().await?;
    let agents: Api<Agent> = Api::namespaced(world.plane.client.clone(), POND);
    let before = token(world).await?;
    agents.delete("otter", &DeleteParams::default()).await?;
    world.plane.apply(&[agent(POND)])?;
    let begun = Instant::now();
    world.add_controller().await?;
    world.add_controller().await?;
    renewed(world, &before).await?;
    let unseen = begun.elapsed();
    world.all_ready().await?;
    world.works().await?;
    let what = "the new one has files and a token of its own; the old one's token is refused";
    Ok(vec![
        Row::new("an Agent deleted and recreated (another uid)", what, seen),
        Row::new(
            "the same with no controller; from the next one's start",
            what,
            unseen,
        ),
    ])
}

async fn recreate(world: &World) -> Result<Duration> {
    let agents: Api<Agent> = Api::namespaced(world.plane.client.clone(), POND);
    let before = token(world).await?;
    let begun = Instant::now();
    agents.delete("otter", &DeleteParams::default()).await?;
    world.plane.apply(&[agent(POND)])?;
    renewed(world, &before).await?;
    Ok(begun.elapsed())
}

/// Waits until the files belong to this very Agent and reject the earlier token.
async fn renewed(world: &World, before: &[u8]) -> Result<()> {
    let agents: Api<Agent> = Api::namespaced(world.plane.client.clone(), POND);
    let uid = agents.get("otter").await?.uid();
    let ours = |secret: &Secret| {
        let mut owners = secret.owner_references().iter();
        owners.any(|owner| Some(&owner.uid) == uid.as_ref())
    };
    eventually("files of the new Agent", DEADLINE, async || {
        let (Some(files), Some(identity)) = (
            world.secrets().get_opt(FILES).await?,
            world.secrets().get_opt(IDENTITY).await?,
        ) else {
            return Ok(None);
        };
        let new = ours(&files) && ours(&identity);
        Ok((new && given(&files).contains(LOOK)).then_some(()))
    })
    .await?;
    let after = token(world).await?;
    ensure!(
        after != before,
        "the token of the old Agent is good for the new one"
    );
    let files = world.secrets().get(FILES).await?;
    let files = files.data.unwrap_or_default();
    let agent: Value = serde_json::from_slice(&files["agent.json"].0)?;
    ensure!(
        agent["tokens"].as_array().map(Vec::len) == Some(1),
        "one token is valid: {}",
        agent["tokens"]
    );
    Ok(())
}

async fn token(world: &World) -> Result<Vec<u8>> {
    let identity = world.secrets().get(IDENTITY).await?;
    let data = identity.data.unwrap_or_default();
    Ok(data.get("token").context("a token")?.0.clone())
}

/// A namespace with an agent is deleted, rights included, and created again. Agents of the other
/// namespace are not affected.
pub async fn namespace(world: &mut World) -> Result<Vec<Row>> {
    let namespaces: Api<Namespace> = Api::all(world.plane.client.clone());
    world.plane.apply(&objects(LAKE))?;
    world.compiled_in(LAKE, &[LOOK]).await?;
    world.quiet().await?;

    let begun = Instant::now();
    namespaces.delete(LAKE, &DeleteParams::default()).await?;
    eventually("the namespace is gone", DEADLINE, async || {
        Ok(namespaces.get_opt(LAKE).await?.is_none().then_some(()))
    })
    .await?;
    let gone = begun.elapsed();
    world.works().await?;

    let begun = Instant::now();
    world
        .plane
        .apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LAKE}})])?;
    let chart = crate::world::chart();
    world.installation.upgrade(&world.plane, &chart).await?;
    world.plane.apply(&objects(LAKE))?;
    world.compiled_in(LAKE, &[LOOK]).await?;
    let back = begun.elapsed();
    world.works().await?;
    ensure!(
        world.controllers.len() == 2,
        "a controller of {SYSTEM} ended"
    );
    Ok(vec![
        Row::new(
            "a namespace with agents deleted",
            "it is deleted, no finalizer holds it; other agents unchanged",
            gone,
        ),
        Row::new(
            "the namespace, the operator's rights in it and its agents recreated",
            "the agents are compiled, without a restart of the controller",
            back,
        ),
    ])
}
