//! Revocation by the volume alone: pods on a real node, whose kubelet refreshes the compiled
//! files at its next sync, and the mediator's own reader of those files. There is no link here.
//!
//! A pod has the compiled Secret's volume and a container that does nothing. Its files are read
//! in the node's folder, by the code that reads them in a pod.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use tokio::time::Instant;
use toolcrib_e2e::cluster::{Cluster, Name};
use toolcrib_sidecar::config::CurrentConfig;
use toolcrib_sidecar::config::watch::Watch;

use crate::controller::Controller;
use crate::objects::{GrantPath, NamespacePair, Objects};
use crate::pods::{LOOK, stands, until};
use crate::{DEADLINE, Distribution};

const AGENT: &str = "otter";
const VOLUME: &str = "config";
/// The kubelet syncs each pod about once a minute (`syncFrequency`). Revocations are spread over
/// that minute; otherwise each would begin right after a sync.
const MINUTE: Duration = Duration::from_secs(60);
/// The golden ratio: the fractions of its multiples are evenly distributed, however many there
/// are.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// Measures one revocation of each kind in each of many pods, side by side.
pub async fn measure(objects: &Objects, cluster: &str, pods: usize) -> Result<()> {
    let name: Name = cluster.parse()?;
    let cluster = Cluster::find(&name)?.with_context(|| format!("cluster {name} is not up"))?;
    let _controller = Controller::start(crate::controller::Ports::free()?)?;
    let mut places = Vec::new();
    for number in 0..pods {
        places.push(objects.place(number).await?);
    }
    let begun = Instant::now();
    let mediators = places
        .iter()
        .map(|place| Mediator::start(objects, &cluster, place));
    let mediators = try_join_all(mediators).await?;
    println!(
        "{pods} pods run and have their files after {:.1?}",
        begun.elapsed()
    );

    let taken = places.iter().zip(&mediators).enumerate();
    let taken = taken.map(|(number, (place, mediator))| async move {
        let mut took = Vec::new();
        for (at, way) in GrantPath::all().into_iter().enumerate() {
            let share = (number * GrantPath::all().len() + at) as f64 * GOLDEN;
            tokio::time::sleep(MINUTE.mul_f64(share.fract())).await;
            let begun = Instant::now();
            objects.take(place, way).await?;
            until(&mediator.current, |now| way.is_gone(now))
                .await
                .with_context(|| format!("{}: {}", place.pond, way.name()))?;
            took.push(begun.elapsed());
        }
        Ok::<_, anyhow::Error>(took)
    });
    let took = try_join_all(taken).await?;
    println!("from the revoking request until the pod denies, by the volume alone:");
    println!("| kind | n | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|");
    for (at, way) in GrantPath::all().into_iter().enumerate() {
        let all = took.iter().map(|of_place| of_place[at]).collect();
        println!("| {} {}", way.name(), Distribution::of(all));
    }
    let all = took.into_iter().flatten().collect();
    println!("| all {}", Distribution::of(all));
    Ok(())
}

struct Mediator {
    current: Arc<CurrentConfig>,
    _watch: Watch,
}

impl Mediator {
    async fn start(objects: &Objects, cluster: &Cluster, place: &NamespacePair) -> Result<Self> {
        let uid = objects.mounting(&place.pond, AGENT, VOLUME).await?;
        let folder: PathBuf = cluster
            .secret_volume(&uid, VOLUME)
            .context("this bench needs a cluster of toolcrib-e2e, whose node is on this machine")?;
        let deadline = Instant::now() + DEADLINE;
        while !folder.join("agent.json").exists() {
            anyhow::ensure!(
                Instant::now() < deadline,
                "no files in {}",
                folder.display()
            );
            tokio::time::sleep(LOOK).await;
        }
        let current = Arc::new(CurrentConfig::default());
        let _watch = Watch::start(folder, current.clone(), |_| {})?;
        until(&current, stands).await?;
        Ok(Self { current, _watch })
    }
}
