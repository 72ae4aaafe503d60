//! The state that every row starts from, and leaves at its end: two webhooks behind their
//! Service, two controllers of which one leads, one agent with a grant that stays.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams};
use kube_runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use toolcrib_crds::ToolGrant;
use toolcrib_e2e::audit::{self, Use};

use crate::install::{CONTROLLER, Installation, POND, Replica, SYSTEM};
use crate::plane::Plane;
use crate::proxy::Proxy;
use crate::replacing;
use crate::wait::{DEADLINE, eventually};

/// Longer than any delay of a retry that is due soon.
const QUIET: Duration = Duration::from_millis(1_500);
/// Name of the agent's compiled Secret.
pub const FILES: &str = "toolcrib-otter-mediator";
/// The tool of the grant that stays.
pub const LOOK: &str = "reed.look";
/// The tool of the grant that is added and revoked.
pub const DIVE: &str = "reed.dive";

/// A line of the table.
pub struct Row {
    pub fault: String,
    pub seen: String,
    pub took: String,
}

impl Row {
    pub fn new(fault: impl Into<String>, seen: impl Into<String>, took: Duration) -> Self {
        Self {
            fault: fault.into(),
            seen: seen.into(),
            took: shown(took),
        }
    }
}

pub fn shown(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

pub struct World {
    // First: they stop before the services that they need.
    pub controllers: Vec<Replica>,
    pub webhooks: Vec<Replica>,
    pub installation: Installation,
    pub plane: Plane,
    number: usize,
    /// Requests before this index do not count for the present chart's rights.
    pub upgraded: usize,
}

impl World {
    /// Starts an installation of the previous chart, upgraded to this one.
    pub async fn start() -> Result<(Self, Vec<Row>)> {
        let plane = Plane::start().await?;
        let previous = previous_chart(plane.folder())?;
        let installation = Installation::new(&plane, &chart(), &previous.folder).await?;
        let mut world = Self {
            controllers: Vec::new(),
            webhooks: Vec::new(),
            installation,
            plane,
            number: 0,
            upgraded: 0,
        };
        world.plane.apply(&objects(POND))?;
        let begun = Instant::now();
        world.add_controller().await?;
        world.compiled(&[LOOK]).await?;
        let took = begun.elapsed();
        for _ in 0..2 {
            let name = world.name("webhook");
            let replica = world.installation.webhook(&world.plane, &name).await?;
            world.installation.balancer.add(replica.address);
            world.webhooks.push(replica);
        }
        world.add_controller().await?;
        world.all_ready().await?;
        let seen = "certificates made, the agent compiled";
        let first = Row::new("first start of a controller", seen, took);
        let upgrade = replacing::chart(&mut world, &previous.of).await?;
        world.upgraded = world.mark()?;
        Ok((world, vec![first, upgrade]))
    }

    /// A name that no replica had before, like a pod's.
    pub fn name(&mut self, component: &str) -> String {
        self.number += 1;
        format!("{component}-{}", self.number)
    }

    pub async fn add_controller(&mut self) -> Result<()> {
        let name = self.name("controller");
        let replica = self.installation.controller(&self.plane, &name).await?;
        self.controllers.push(replica);
        Ok(())
    }

    /// Starts a controller that reaches the API server through a proxy.
    pub async fn add_controller_by(&mut self, proxy: &Proxy) -> Result<()> {
        let name = self.name("controller");
        let kubeconfig = self.plane.kubeconfig(&name, proxy.address, None)?;
        let replica = self
            .installation
            .controller_by(&self.plane, &name, &kubeconfig)
            .await?;
        self.controllers.push(replica);
        Ok(())
    }

    pub async fn proxy(&self) -> Result<Proxy> {
        let token = self.installation.token(CONTROLLER);
        Proxy::start(self.plane.client_of(token)?).await
    }

    /// Stops all controllers gracefully.
    pub async fn no_controllers(&mut self) -> Result<()> {
        for mut controller in std::mem::take(&mut self.controllers) {
            controller.program.terminate().await?;
        }
        Ok(())
    }

    /// Waits until every replica is ready.
    pub async fn all_ready(&mut self) -> Result<()> {
        let replicas = self.controllers.iter_mut().chain(&mut self.webhooks);
        for replica in replicas {
            let what = format!("{} is ready", replica.program.name);
            eventually(&what, DEADLINE, async || {
                let ended = replica.program.ended()?;
                ensure!(
                    ended.is_none(),
                    "{ended:?}: {}",
                    replica.program.last_output()
                );
                Ok(replica.ready().await.then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until a controller leads; returns its index.
    pub async fn leader(&self) -> Result<usize> {
        eventually("somebody leads", DEADLINE, async || {
            for (place, controller) in self.controllers.iter().enumerate() {
                if controller.leads().await {
                    return Ok(Some(place));
                }
            }
            Ok(None)
        })
        .await
    }

    pub async fn give(&self) -> Result<()> {
        self.plane.apply(&[grant(POND, "otter-dives", "dive")])
    }

    pub async fn revoke(&self) -> Result<()> {
        let grants: Api<ToolGrant> = Api::namespaced(self.plane.client.clone(), POND);
        grants
            .delete("otter-dives", &DeleteParams::default())
            .await?;
        Ok(())
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.plane.client.clone(), POND)
    }

    /// Waits until the agent's files have exactly these tools.
    pub async fn compiled(&self, tools: &[&str]) -> Result<()> {
        self.compiled_in(POND, tools).await
    }

    pub async fn compiled_in(&self, namespace: &str, tools: &[&str]) -> Result<()> {
        let expected: BTreeSet<String> = tools.iter().map(|tool| (*tool).to_owned()).collect();
        let secrets: Api<Secret> = Api::namespaced(self.plane.client.clone(), namespace);
        eventually(&format!("the tools {tools:?}"), DEADLINE, async || {
            let found = secrets.get_opt(FILES).await?;
            Ok((found.as_ref().map(given) == Some(expected.clone())).then_some(()))
        })
        .await
    }

    /// Adds and revokes a grant, and waits for the effect of each.
    pub async fn works(&self) -> Result<()> {
        self.give().await?;
        self.compiled(&[DIVE, LOOK]).await?;
        self.revoke().await?;
        self.compiled(&[LOOK]).await
    }

    /// The requests of this installation's accounts so far.
    pub fn uses(&self) -> Result<Vec<Use>> {
        let text = std::fs::read_to_string(self.plane.audit_log()).context("audit log")?;
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let account = audit::user(SYSTEM, "");
        let mut uses = audit::uses(whole).context("audit log")?;
        uses.retain(|used| used.user.starts_with(&account));
        Ok(uses)
    }

    /// The controller's writes after `mark` uses, without leader election and token reviews.
    pub fn writes_since(&self, mark: usize) -> Result<Vec<String>> {
        let controller = audit::user(SYSTEM, CONTROLLER);
        let writes = self.uses()?.into_iter().skip(mark).filter(|used| {
            let leading = [
                ("leases", "create"),
                ("leases", "update"),
                ("pods", "patch"),
                ("tokenreviews", "create"),
            ];
            used.user == controller
                && used.writes()
                && !leading.contains(&(&*used.resource, &*used.verb))
        });
        Ok(writes.map(|used| used.to_string()).collect())
    }

    pub fn mark(&self) -> Result<usize> {
        Ok(self.uses()?.len())
    }

    /// Waits until the controllers write nothing any more.
    pub async fn quiet(&self) -> Result<()> {
        let mut mark = self.mark()?;
        let mut since = Instant::now();
        eventually("no writes", DEADLINE, async || {
            if !self.writes_since(mark)?.is_empty() {
                mark = self.mark()?;
                since = Instant::now();
            }
            Ok((since.elapsed() >= QUIET).then_some(()))
        })
        .await
    }

    pub fn last_output(&self) -> String {
        let mut all = self.plane.last_output();
        for replica in self.controllers.iter().chain(&self.webhooks) {
            let program = &replica.program;
            write!(all, "\n--- {}\n{}", program.name, program.last_output())
                .expect("a String grows");
        }
        all
    }
}

/// Every version of the agent's files, as a watch client sees them.
pub struct History {
    seen: Arc<Mutex<Vec<BTreeSet<String>>>>,
    watching: JoinHandle<()>,
}

impl Drop for History {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl History {
    pub async fn watch(world: &World) -> Result<Self> {
        let seen: Arc<Mutex<Vec<_>>> = Arc::default();
        let fill = Arc::clone(&seen);
        let config = watcher::Config::default().fields(&format!("metadata.name={FILES}"));
        let mut events = watcher(world.secrets(), config)
            .default_backoff()
            .applied_objects()
            .boxed();
        let watching = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(secret) => fill.lock().push(given(&secret)),
                    Err(error) => tracing::debug!(%error, "the watch is begun again"),
                }
            }
        });
        let this = Self { seen, watching };
        eventually("the watch has begun", DEADLINE, async || {
            Ok((this.len() > 0).then_some(()))
        })
        .await?;
        Ok(this)
    }

    pub fn len(&self) -> usize {
        self.seen.lock().len()
    }

    pub fn always_gave(&self, tool: &str) -> bool {
        let seen = self.seen.lock();
        seen.iter().all(|tools| tools.contains(tool))
    }

    /// True if a version after this index had the tool.
    pub fn gave(&self, tool: &str, after: usize) -> bool {
        let seen = self.seen.lock();
        seen[after..].iter().any(|tools| tools.contains(tool))
    }
}

/// Names of the tools in a compiled Secret.
pub fn given(secret: &Secret) -> BTreeSet<String> {
    let tools = secret.data.as_ref().and_then(|data| data.get("tools.json"));
    let tools: Value = tools
        .and_then(|bytes| serde_json::from_slice(&bytes.0).ok())
        .unwrap_or_default();
    let tools = tools["tools"].as_array().cloned().unwrap_or_default();
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
        .collect()
}

pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/toolcrib")
}

/// The chart before its last change.
struct Previous {
    folder: PathBuf,
    /// Its origin, for the table.
    of: String,
}

/// Names a chart, if there is no history to take it from.
const PREVIOUS_CHART: &str = "TOOLCRIB_PREVIOUS_CHART";

fn previous_chart(scratch: &Path) -> Result<Previous> {
    if let Some(folder) = std::env::var_os(PREVIOUS_CHART) {
        return Ok(Previous {
            of: folder.to_string_lossy().into_owned(),
            folder: folder.into(),
        });
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git")
            .arg("-C")
            .arg(&root)
            .args(arguments)
            .output()
            .ok()?;
        let said = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| said.trim().to_owned())
    };
    let commits = git(&[
        "log",
        "--max-count=2",
        "--format=%h",
        "--",
        "charts/toolcrib",
    ]);
    let Some(commit) = commits.as_deref().and_then(|all| all.lines().nth(1)) else {
        // Sources without their history, or a shallow clone.
        return Ok(Previous {
            folder: chart(),
            of: "itself, there is no history here".to_owned(),
        });
    };
    let tar = scratch.join("previous.tar").display().to_string();
    git(&["archive", "--output", &tar, commit, "charts/toolcrib"]).context("git archive")?;
    let status = Command::new("tar")
        .args(["-xf", &tar, "-C"])
        .arg(scratch)
        .status()?;
    ensure!(status.success(), "tar: {status}");
    Ok(Previous {
        folder: scratch.join("charts/toolcrib"),
        of: format!("that of commit {commit}"),
    })
}

/// A surface, an agent, a grant.
pub fn objects(namespace: &str) -> [Value; 3] {
    let tool = |name: &str| {
        json!({
            "name": name, "description": "Looks at the reed", "annotations": {"readOnly": true},
            "inputSchema": {"type": "object", "properties": {"depth": {"type": "integer"}}},
            "http": {"method": "GET", "path": format!("/{name}")},
        })
    };
    let surface = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
        "metadata": {"name": "reed", "namespace": namespace},
        "spec": {
            "url": "https://reed.example",
            "descriptor": {"version": 2, "tools": [tool("look"), tool("dive")]},
        },
    });
    [
        surface,
        agent(namespace),
        grant(namespace, "otter-looks", "look"),
    ]
}

pub fn agent(namespace: &str) -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": "otter", "namespace": namespace},
        "spec": {"surfaces": [{"name": "reed"}]},
    })
}

pub fn grant(namespace: &str, name: &str, tool: &str) -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"agents": ["otter"], "tools": [{"surface": {"name": "reed"}, "allow": [tool]}]},
    })
}
