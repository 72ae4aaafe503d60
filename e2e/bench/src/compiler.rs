//! The measurements of the compiler.
//!
//! The reference is serde_json reading and writing the same compiled files: the cost of the bytes
//! alone.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolcrib_compile::{Compilation, Inputs, ObjectRef, Settings, compile, load};

use crate::Plan;
use crate::process::own_memory;
use crate::report::Row;

/// Number of objects of each kind.
#[derive(Clone, Copy, Debug)]
struct World {
    surfaces: usize,
    tools_per_surface: usize,
    agents: usize,
    /// Number of granted tools of each surface of an agent: the first ones of the surface.
    granted_per_surface: usize,
    surfaces_per_agent: usize,
}

/// The measurements of a whole fleet. A separate process takes them, so that the memory is that of
/// the fleet alone.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Fleet {
    seconds: f64,
    /// Memory of the inputs, in KiB.
    inputs: u64,
    /// Peak memory of the process, in KiB.
    most: u64,
    tools: usize,
}

pub fn all(plan: &Plan) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if plan.wants("compile one agent") {
        rows.extend(one_agent(plan)?);
    }
    if plan.wants("compile a fleet") {
        rows.extend(fleet_rows(plan)?);
    }
    Ok(rows)
}

fn one_agent(plan: &Plan) -> Result<Vec<Row>> {
    let name = "compile one agent: 100 of 1,000 tools";
    let inputs = inputs(World {
        surfaces: 50,
        tools_per_surface: 20,
        agents: 1,
        granted_per_surface: 2,
        surfaces_per_agent: 50,
    })?;
    let agent = agent(0);
    let compiled = compile(&inputs, &agent).context("the agent is there")?;
    ensure!(compiled.tools.len() == 100, "{:?}", compiled.diagnostics);
    let files = written(&compiled)?;
    let repeat = (plan.requests / 20).max(2);
    let (mut ours, mut reference) = (Vec::new(), Vec::new());
    for _ in 0..repeat {
        reference.push(timed(|| read_and_write(&files))?);
        ours.push(timed(|| {
            compile(&inputs, &agent)
                .context("the agent is there")
                .map(drop)
        })?);
    }
    let middle = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e3
    };
    Ok(vec![
        Row::beside(
            name,
            "time, p50",
            "ms",
            middle(&mut reference),
            middle(&mut ours),
        )
        .at_most(1.0),
    ])
}

fn fleet_rows(plan: &Plan) -> Result<Vec<Row>> {
    let name = "compile a fleet: 10,000 agents × 20 tools";
    let agents = if plan.is_short() { 20 } else { 10_000 };
    let own = std::env::current_exe().context("find this program")?;
    let output = Command::new(own)
        .args(["--fleet", &agents.to_string()])
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "the fleet did not compile: {errors}"
    );
    let fleet: Fleet = serde_json::from_slice(&output.stdout)?;
    let mib = |kib: u64| kib as f64 / 1024.0;
    Ok(vec![
        Row::alone(name, "time", "s", fleet.seconds).at_most(20.0),
        Row::alone(name, "memory of the objects", "MiB", mib(fleet.inputs)),
        Row::alone(name, "memory, peak", "MiB", mib(fleet.most)).at_most(200.0),
    ])
}

/// Compiles this many agents one after the other, as the controller does after a start. A small
/// fleet has only the surfaces that its agents use.
pub fn fleet(agents: usize) -> Result<Fleet> {
    let (before, _) = own_memory()?;
    let inputs = inputs(World {
        surfaces: 500.min(agents * 4),
        tools_per_surface: 20,
        agents,
        granted_per_surface: 5,
        surfaces_per_agent: 4,
    })?;
    let (held, _) = own_memory()?;
    let began = Instant::now();
    let mut tools = 0;
    for at in 0..agents {
        let compiled = compile(&inputs, &agent(at)).context("the agent is there")?;
        tools += compiled.tools.len();
        written(&compiled)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    ensure!(tools == agents * 20, "{tools} tools");
    let (_, most) = own_memory()?;
    Ok(Fleet {
        seconds,
        inputs: held.saturating_sub(before),
        most,
        tools,
    })
}

fn agent(at: usize) -> ObjectRef {
    ObjectRef::new("pond", format!("otter-{at}"))
}

fn written(compiled: &Compilation) -> Result<Vec<String>> {
    let files = &compiled.files;
    Ok(vec![
        serde_json::to_string(&files.agent)?,
        serde_json::to_string(&files.tools)?,
        serde_json::to_string(&files.providers)?,
        serde_json::to_string(&files.feeds)?,
    ])
}

fn read_and_write(files: &[String]) -> Result<()> {
    for text in files {
        let value: Value = serde_json::from_str(text)?;
        std::hint::black_box(serde_json::to_string(&value)?);
    }
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}

fn inputs(world: World) -> Result<Inputs> {
    let documents = (0..world.surfaces)
        .flat_map(|at| [service(at), surface(at, world.tools_per_surface)])
        .chain((0..world.agents).flat_map(|at| agent_and_grant(at, world)))
        .enumerate()
        .map(|(at, object)| (format!("{at}.yaml"), object.to_string()));
    let loaded = load(documents, Settings::default());
    let mut wrong = String::new();
    for error in loaded.errors.iter().take(3) {
        writeln!(wrong, "{error:?}")?;
    }
    for finding in loaded.diagnostics.iter().take(3) {
        writeln!(wrong, "{finding:?}")?;
    }
    ensure!(wrong.is_empty(), "{wrong}");
    Ok(loaded.inputs)
}

fn service(at: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("pond-{at}"), "namespace": "pond"},
        "spec": {"ports": [{"port": 80}]},
    })
}

fn surface(at: usize, tools: usize) -> Value {
    let tools: Vec<Value> = (0..tools)
        .map(|tool| {
            json!({
                "name": format!("depth_{tool}"),
                "description": "How deep the pond is at a spot, and when it was measured.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "spot": {"type": "string", "description": format!("Spot of pond {at}")},
                        "unit": {"type": "string", "enum": ["m", "ft"]},
                        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                        "claw_id": {"type": "string"},
                    },
                    "required": ["spot", "claw_id"],
                },
                "http": {"method": "GET", "path": format!("/api/v1/{{claw_id}}/depth_{tool}")},
                "annotations": {"readOnly": true},
            })
        })
        .collect();
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
        "metadata": {"name": format!("pond-{at}"), "namespace": "pond"},
        "spec": {
            "service": {"name": format!("pond-{at}"), "port": 80},
            "descriptor": {"version": 2, "tools": tools},
        },
    })
}

fn agent_and_grant(at: usize, world: World) -> [Value; 2] {
    let surfaces: Vec<Value> = (0..world.surfaces_per_agent)
        .map(|next| (at * world.surfaces_per_agent + next) % world.surfaces)
        .map(|surface| json!({"name": format!("pond-{surface}")}))
        .collect();
    let tools: Vec<Value> = surfaces
        .iter()
        .map(|surface| {
            let allowed: Vec<String> = (0..world.granted_per_surface)
                .map(|tool| format!("depth_{tool}"))
                .collect();
            json!({"surface": surface, "allow": allowed})
        })
        .collect();
    let name = agent(at).name;
    [
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": name, "namespace": "pond"},
            "spec": {"surfaces": surfaces},
        }),
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
            "metadata": {"name": name, "namespace": "pond"},
            "spec": {"agents": [name], "tools": tools},
        }),
    ]
}
