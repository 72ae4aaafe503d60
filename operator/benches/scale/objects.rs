//! The objects of the bench, as JSON.

use k8s_openapi::ByteString;
use serde_json::json;

use super::World;

const TOOLS_OF_A_SURFACE: usize = 20;
/// Each agent declares two surfaces and is granted half of the tools of each.
pub const TOOLS_OF_AN_AGENT: usize = 20;

pub fn pond(n: usize) -> String {
    format!("scale-{n}")
}

pub fn credential(namespace: &str, name: &str, host: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {"toolcrib.dev/credential": "true"},
            "annotations": {"toolcrib.dev/hosts": host},
        },
        "data": {"token": ByteString(format!("token of {name}").into_bytes())},
    })
}

pub fn service(namespace: &str, n: usize) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("surface-{n}"), "namespace": namespace},
        // Headless: cluster IPs would run out first.
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
    })
}

pub fn provider(namespace: &str) -> serde_json::Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ModelProvider",
        "metadata": {"name": "model", "namespace": namespace},
        "spec": {
            "endpoints": [{"dialect": "Anthropic", "url": "https://model.example/v1"}],
            "auth": "XApiKey",
            "apiKeys": [{"secretKeyRef": {"name": "model", "key": "token"}}],
        },
    })
}

pub fn surface(namespace: &str, n: usize) -> serde_json::Value {
    let tools: Vec<serde_json::Value> = (0..TOOLS_OF_A_SURFACE)
        .map(|tool| {
            json!({
                "name": format!("tool-{tool}"),
                "description": format!("Looks up what number {tool} of surface {n} knows of a symbol and a day"),
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "symbol": {"type": "string", "description": "What to look up", "maxLength": 32},
                        "day": {"type": "string", "format": "date"},
                        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                    },
                    "required": ["symbol"],
                },
                "http": {"method": "GET", "path": format!("/v1/{tool}/{{symbol}}")},
                "annotations": {"readOnly": true},
            })
        })
        .collect();
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
        "metadata": {"name": format!("surface-{n}"), "namespace": namespace},
        "spec": {
            "service": {"name": format!("surface-{n}"), "port": 80},
            "auth": {"type": "Bearer", "secretKeyRef": {"name": format!("surface-{n}"), "key": "token"}},
            "descriptor": {"version": 2, "tools": tools},
        },
    })
}

/// Two surfaces of the agent's own namespace.
fn surfaces_of(world: &World, agent: usize) -> [usize; 2] {
    let here = world.surfaces / world.namespaces;
    let nth = |n: usize| agent % world.namespaces + world.namespaces * (n % here);
    let first = agent / world.namespaces;
    [nth(first), nth(first + 1)]
}

pub fn agent(world: &World, n: usize) -> serde_json::Value {
    let surfaces = surfaces_of(world, n).map(|s| json!({"name": format!("surface-{s}")}));
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": format!("agent-{n}"), "namespace": pond(n % world.namespaces)},
        "spec": {"surfaces": surfaces},
    })
}

pub fn grant(world: &World, n: usize, tools: usize) -> serde_json::Value {
    let allow: Vec<String> = (0..tools).map(|tool| format!("tool-{tool}")).collect();
    let rules = surfaces_of(world, n)
        .map(|s| json!({"surface": {"name": format!("surface-{s}")}, "allow": allow}));
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
        "metadata": {"name": format!("agent-{n}"), "namespace": pond(n % world.namespaces)},
        "spec": {"agents": [format!("agent-{n}")], "tools": rules},
    })
}
