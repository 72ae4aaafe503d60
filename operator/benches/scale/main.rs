//! Measures the controller with many objects, against a real API server.
//!
//! `./e2e/run bench-operator [--agents N]` brings a control plane up and runs this. Figures go
//! into docs/performance.md. Beside every time is that of a bare client which sends the same
//! requests in the same run, so the API server's own speed cancels out. No time is asserted. Two
//! facts are: nothing is written in steady state, and a change writes only the objects of
//! affected agents.
//!
//! The controller is a process of its own (this program again, chosen by an environment
//! variable), so its memory is measured separately.

mod controller;
mod objects;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource, ResourceExt};
use kube_runtime::{WatchStreamExt, watcher};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolGrant, definitions};

use self::controller::Controller;
use self::objects::{TOOLS_OF_AN_AGENT, credential, pond, provider, service, surface};

const KUBECONFIG: &str = "TOOLCRIB_TEST_KUBECONFIG";
const SYSTEM: &str = "scale-system";
/// Longest wait until the cluster has deleted all namespaces; a large bench has many objects in
/// them.
const GONE: Duration = Duration::from_secs(600);
/// Polling interval.
const POLL: Duration = Duration::from_millis(200);
const AT_A_TIME: usize = 32;

#[derive(Parser)]
struct Arguments {
    /// Number of agents, each with 20 tools of two surfaces and a grant of its own.
    #[arg(long, default_value_t = 1_000)]
    agents: usize,
    /// Number of surfaces with 20 tools each; default: a twentieth of the agents.
    #[arg(long)]
    surfaces: Option<usize>,
    /// Number of grant changes whose time until the Secret is written is measured.
    #[arg(long, default_value_t = 50)]
    changes: usize,
    /// One small round: shows that the bench runs; its figures mean nothing.
    #[arg(long)]
    short: bool,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another TLS provider is installed"))?;
    let client = client().await?;
    if let Ok(address) = std::env::var(controller::CHILD) {
        return controller::run(client, address.parse()?).await;
    }
    let arguments = Arguments::parse();
    let agents = if arguments.short {
        40
    } else {
        arguments.agents
    };
    let surfaces = arguments.surfaces.unwrap_or(agents / 20).max(4);
    let changes = if arguments.short {
        5
    } else {
        arguments.changes
    };
    let world = World {
        client,
        agents,
        surfaces,
        namespaces: (surfaces / 10).max(1),
    };
    let result = world.run(changes).await;
    world.clear().await?;
    result
}

async fn client() -> Result<Client> {
    let path = std::env::var(KUBECONFIG)
        .with_context(|| format!("{KUBECONFIG} names no kubeconfig: ./e2e/run bench-operator"))?;
    let kubeconfig = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

struct World {
    client: Client,
    agents: usize,
    surfaces: usize,
    namespaces: usize,
}

impl World {
    async fn run(&self, changes: usize) -> Result<()> {
        println!(
            "{} agents x {TOOLS_OF_AN_AGENT} tools, {} surfaces, {} namespaces",
            self.agents, self.surfaces, self.namespaces
        );
        self.define().await?;
        let begun = Instant::now();
        let made = self.make().await?;
        let each = begun.elapsed() / u32::try_from(made)?;
        println!(
            "bare client: {made} small objects created, {each:?} each with {AT_A_TIME} at a time"
        );

        let listed = self.list_all().await?;
        let controller = Controller::start()?;
        let begun = Instant::now();
        let synced = self.quiet(&controller, begun).await?;
        let writes = controller.metric("writes").await.context("metrics")?;
        let cpu = controller.cpu()?;
        let (now, most) = controller.memory()?;
        let bare = self.write_secrets().await?;
        println!("bare client: everything listed in {listed:?}");
        println!(
            "full sync: {synced:?}, {writes} writes, {:?} each",
            synced.div_f64(writes)
        );
        println!(
            "  reference: a bare client writes Secrets of that size in {bare:?} each (8 at a time)"
        );
        println!(
            "  ratio of the time of a write: {:.2}",
            synced.as_secs_f64() / writes / bare.as_secs_f64()
        );
        println!(
            "  controller's CPU: {cpu:.1} s, {:.2} ms per agent",
            cpu * 1e3 / self.agents as f64
        );
        println!("  memory: {now:.0} MiB, at most {most:.0} MiB");

        self.steady(&controller).await?;
        self.change_grants(&controller, changes).await?;
        self.steady(&controller).await?;
        drop(controller);

        // Another leader finds everything in its final state.
        self.vacate().await?;
        let successor = Controller::start()?;
        let begun = Instant::now();
        let synced = self.quiet(&successor, begun).await?;
        let writes = successor.metric("writes").await.context("metrics")?;
        let (now, most) = successor.memory()?;
        println!(
            "a restart: {synced:?}, {writes} writes, CPU {:.1} s, memory {now:.0} MiB, at most {most:.0} MiB",
            successor.cpu()?
        );
        ensure!(writes == 0.0, "the controller wrote after a restart");
        Ok(())
    }

    async fn define(&self) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for definition in definitions() {
            let params = PatchParams::apply("toolcrib-scale").force();
            api.patch(&definition.name_any(), &params, &Patch::Apply(&definition))
                .await?;
        }
        for n in 0..self.namespaces {
            self.namespace(&pond(n)).await?;
        }
        self.namespace(SYSTEM).await?;
        let meta = |name: &str| ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        };
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), SYSTEM);
        let lease = Lease {
            metadata: meta("controller"),
            ..Lease::default()
        };
        leases.create(&PostParams::default(), &lease).await?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), SYSTEM);
        let secret = Secret {
            metadata: meta("certificates"),
            ..Secret::default()
        };
        secrets.create(&PostParams::default(), &secret).await?;
        // Waits until every definition is served.
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let grants: Api<ToolGrant> = Api::all(self.client.clone());
            let providers: Api<ModelProvider> = Api::all(self.client.clone());
            let params = ListParams::default();
            if grants.list(&params).await.is_ok() && providers.list(&params).await.is_ok() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the definitions are not served");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn namespace(&self, name: &str) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(name.into()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        api.create(&PostParams::default(), &object)
            .await
            .context("a namespace of an earlier run is left: take the cluster down first")?;
        Ok(())
    }

    /// Creates surfaces, agents and grants; returns the number of objects.
    async fn make(&self) -> Result<usize> {
        let mut made = 0;
        made += self
            .create::<ModelProvider>((0..self.namespaces).map(|n| provider(&pond(n))))
            .await?;
        made += self
            .create::<Secret>(
                (0..self.namespaces).map(|n| credential(&pond(n), "model", "model.example")),
            )
            .await?;
        let home = |surface: usize| pond(surface % self.namespaces);
        made += self
            .create::<Service>((0..self.surfaces).map(|n| service(&home(n), n)))
            .await?;
        made += self
            .create::<Secret>((0..self.surfaces).map(|n| {
                let host = format!("surface-{n}.{}.svc", home(n));
                credential(&home(n), &format!("surface-{n}"), &host)
            }))
            .await?;
        made += self
            .create::<Surface>((0..self.surfaces).map(|n| surface(&home(n), n)))
            .await?;
        made += self
            .create::<Agent>((0..self.agents).map(|n| objects::agent(self, n)))
            .await?;
        made += self
            .create::<ToolGrant>(
                (0..self.agents).map(|n| objects::grant(self, n, TOOLS_OF_AN_AGENT / 2)),
            )
            .await?;
        Ok(made)
    }

    async fn create<K>(&self, objects: impl Iterator<Item = serde_json::Value>) -> Result<usize>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        futures::stream::iter(objects.map(Ok::<_, anyhow::Error>))
            .map_ok(|object| async move {
                let object: K = serde_json::from_value(object)?;
                let namespace = object.meta().namespace.clone().unwrap_or_default();
                let api: Api<K> = Api::namespaced(self.client.clone(), &namespace);
                api.create(&PostParams::default(), &object).await?;
                Ok(1)
            })
            .try_buffer_unordered(AT_A_TIME)
            .try_fold(0, |sum, one| async move { Ok(sum + one) })
            .await
    }

    /// Lists everything, as any client of these objects does first.
    async fn list_all(&self) -> Result<Duration> {
        let begun = Instant::now();
        self.list::<Surface>().await?;
        self.list::<Agent>().await?;
        self.list::<ToolGrant>().await?;
        self.list::<ModelProvider>().await?;
        self.list::<Service>().await?;
        Ok(begun.elapsed())
    }

    async fn list<K>(&self) -> Result<usize>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(500);
        let mut count = 0;
        loop {
            let page = api.list(&params).await?;
            count += page.items.len();
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(count),
            }
        }
    }

    /// Waits until no work is queued and nothing is written any more; returns the time.
    async fn quiet(&self, controller: &Controller, begun: Instant) -> Result<Duration> {
        let deadline = Instant::now() + Duration::from_secs(3_600);
        let (mut seen, mut since) = (-1.0, begun.elapsed());
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            ensure!(
                Instant::now() < deadline,
                "the controller does not become idle"
            );
            let (Some(reconciles), Some(depth)) = (
                controller.metric("reconciles").await,
                controller.metric("queue_depth").await,
            ) else {
                continue;
            };
            let done = reconciles >= self.agents as f64 && depth == 0.0;
            if reconciles != seen || !done {
                (seen, since) = (reconciles, begun.elapsed());
            } else if begun.elapsed() > since + Duration::from_secs(2) {
                return Ok(since);
            }
        }
    }

    /// Measures steady state: nothing changes, so nothing may be written.
    async fn steady(&self, controller: &Controller) -> Result<()> {
        let before = controller.metric("writes").await.context("metrics")?;
        let cpu = controller.cpu()?;
        let seconds = 10;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let writes = controller.metric("writes").await.context("metrics")? - before;
        println!(
            "steady state: {writes} writes and {:.2} s of CPU in {seconds} s",
            controller.cpu()? - cpu
        );
        ensure!(writes == 0.0, "the controller wrote in steady state");
        Ok(())
    }

    /// Measures the time from a grant's change to the Secret's, as a watch client sees it.
    async fn change_grants(&self, controller: &Controller, changes: usize) -> Result<()> {
        let mut took = Vec::new();
        let before = controller.metric("writes").await.context("metrics")?;
        for change in 0..changes {
            let n = change * 7 % self.agents;
            let namespace = pond(n % self.namespaces);
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
            let name = format!("toolcrib-agent-{n}-mediator");
            let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
            let mut events = watcher(secrets, config).applied_objects().boxed();
            let first = events.try_next().await?.context("the Secret")?;
            let grants: Api<ToolGrant> = Api::namespaced(self.client.clone(), &namespace);
            let narrower = json!({"spec": objects::grant(self, n, 9)["spec"]});
            let begun = Instant::now();
            grants
                .patch(
                    &format!("agent-{n}"),
                    &PatchParams::default(),
                    &Patch::Merge(narrower),
                )
                .await?;
            let changed = async {
                while let Some(secret) = events.try_next().await? {
                    if secret.resource_version() != first.resource_version() {
                        return Ok(());
                    }
                }
                anyhow::bail!("the watch ended")
            };
            tokio::time::timeout(Duration::from_secs(60), changed)
                .await
                .context("the Secret never changed")??;
            took.push(begun.elapsed());
        }
        self.quiet(controller, Instant::now()).await?;
        let writes = controller.metric("writes").await.context("metrics")? - before;
        took.sort();
        let at = |share: f64| took[((took.len() - 1) as f64 * share).round() as usize];
        println!(
            "one grant changes -> its Secret is written: p50 {:?}, p99 {:?} of {changes}; {:.1} writes each",
            at(0.5),
            at(0.99),
            writes / changes as f64
        );
        // A Secret, two ConfigMaps, two statuses; a second agent would double the number.
        ensure!(
            writes <= 6.0 * changes as f64,
            "objects of other agents were written: {writes}"
        );
        Ok(())
    }

    /// Measures one write of Secrets as large as the compiled ones.
    async fn write_secrets(&self) -> Result<Duration> {
        const COUNT: usize = 200;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &pond(0));
        let compiled = api.get("toolcrib-agent-0-mediator").await?;
        let bytes: usize = compiled.data.iter().flatten().map(|(_, b)| b.0.len()).sum();
        println!("  a compiled Secret has {:.1} KiB", bytes as f64 / 1024.0);
        let begun = Instant::now();
        futures::stream::iter((0..COUNT).map(Ok::<_, anyhow::Error>))
            .map_ok(|n| {
                let api = api.clone();
                async move {
                    let secret = Secret {
                        metadata: ObjectMeta {
                            name: Some(format!("reference-{n}")),
                            ..ObjectMeta::default()
                        },
                        data: Some(BTreeMap::from([(
                            "x".into(),
                            ByteString(vec![b'x'; bytes]),
                        )])),
                        ..Secret::default()
                    };
                    api.create(&PostParams::default(), &secret).await?;
                    Ok(())
                }
            })
            .try_buffer_unordered(8)
            .try_collect::<()>()
            .await?;
        Ok(begun.elapsed() / u32::try_from(COUNT)?)
    }

    async fn vacate(&self) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), SYSTEM);
        let nobody = Patch::Merge(json!({"spec": null}));
        leases
            .patch("controller", &PatchParams::default(), &nobody)
            .await?;
        Ok(())
    }

    async fn clear(&self) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let names = || (0..self.namespaces).map(pond).chain([SYSTEM.to_owned()]);
        for name in names() {
            match api.delete(&name, &DeleteParams::background()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The deletion causes writes, which a bench that begins meanwhile would count.
        let deadline = Instant::now() + GONE;
        for name in names() {
            while api.get_opt(&name).await?.is_some() {
                ensure!(Instant::now() < deadline, "namespace {name} is not gone");
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }
}
