//! Generated worlds that use every feature of the API.
//!
//! A world contains objects that an admin of two namespaces may write. Each object is drawn from
//! a few variants, or is missing. Names often match, and mistakes are among the variants.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;

/// Documents by the name of their object.
pub type World = BTreeMap<String, String>;

const SCHEMA: &str = "inputSchema: {type: object, properties: {n: {type: integer}}}";

/// `(kind, namespace, name, variants of spec)`; `$S` is the schema. Labels may stand before the spec
/// and ` | `.
pub const OBJECTS: &[(&str, &str, &str, &[&str])] = &[
    (
        "Surface",
        "pond",
        "fish",
        &[
            "service: {name: fish, port: 80}, auth: {secretKeyRef: {name: fish, key: token}}, descriptor: {version: 2, description: Fish, skillText: How to fish, tools: [{name: list, $S, http: {method: GET, path: /l}, annotations: {readOnlyHint: true}}, {name: take, $S, http: {method: POST, path: '/t/{n}', body: json}}, {name: burn, $S, http: {method: DELETE, path: /b}, annotations: {destructive: true}}]}",
            "service: {name: fish, port: 80}, auth: {fallback: Deny, perAgent: [{agent: {name: otter}, secretKeyRef: {name: fish, key: token}}]}, tiers: {take: Workspace, gone: ReadOnly}, descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: /l}}, {name: take, $S, http: {method: POST, path: /t}}, {name: bad, inputSchema: {type: 7}, http: {method: GET, path: /x}}]}",
            "service: {name: fish, port: 81}, descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: /l}}]}",
            "service: {name: fish, port: 80}, descriptor: {version: 1, tools: [{name: list, $S}]}",
            "service: {name: fish, port: 80}, descriptor: {version: 2, endpoints: [{method: GET, path: /by-hand}]}",
        ],
    ),
    (
        "Surface",
        "pond",
        "reed",
        &[
            "url: 'https://reed.test/api', tls: {caFrom: {configMapKeyRef: {name: ca, key: ca.crt}}}, descriptorFrom: {configMapKeyRef: {name: reed, key: describe.json}}",
            "url: 'https://reed.test', auth: {type: Basic, secretKeyRef: {name: fish}}, descriptorFrom: {configMapKeyRef: {name: reed, key: describe.json}}",
            "url: 'http://127.0.0.1', descriptorFrom: {configMapKeyRef: {name: reed, key: describe.json}}",
            "url: 'https://10.96.0.7', descriptorFrom: {configMapKeyRef: {name: reed, key: describe.json}}",
            "url: 'http://model', descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: /l}}]}",
        ],
    ),
    (
        "Surface",
        "lake",
        "news",
        &[
            "service: {name: news, port: 443, scheme: https}, consumers: {namespaces: {from: Selector, selector: {matchLabels: {team: otters}}}, credentials: Share}, auth: {secretKeyRef: {name: news, key: token}}, descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: '/{claw_id}'}}]}",
            "service: {name: news, port: 443}, consumers: {namespaces: {from: All}, credentials: PerAgent}, auth: {perAgent: [{agent: {name: otter, namespace: pond}, secretKeyRef: {name: news, key: token}}]}, descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: /l}}]}",
            "service: {name: news, port: 443}, auth: {secretKeyRef: {name: news, key: token}}, descriptor: {version: 2, tools: [{name: list, $S, http: {method: GET, path: /l}}]}",
        ],
    ),
    (
        "Agent",
        "pond",
        "otter",
        &[
            "toolDefaults: Include, surfaces: [{name: fish}, {name: reed}, {name: news, namespace: lake}], egress: Declared",
            "toolDefaults: Include, identity: Pod, surfaces: [{name: fish, as: market}, {name: news, namespace: lake, secretKeyRef: {name: own, key: token}}], policy: {maxTier: System}, context: None",
            "grants.toolcrib.dev/role: reader, grants.toolcrib.dev/team: reeds | toolDefaults: Include, surfaces: [{name: fish}, {name: news, namespace: lake}]",
            "grants.toolcrib.dev/role: writer, team: reeds | toolDefaults: Include, surfaces: [{name: fish}, {name: reed}]",
            "toolDefaults: Exclude, surfaces: [{name: fish}, {name: reed, as: fish}], models: {default: reef/trout, fallbacks: [coral/pike], unknown: Default}",
        ],
    ),
    (
        "Agent",
        "pond",
        "heron",
        &[
            "surfaces: [{name: fish}, {name: reed}, {name: lost}]",
            "grants.toolcrib.dev/role: reader | surfaces: [{name: fish}, {name: reed}]",
            "grants.toolcrib.dev/team: reeds | surfaces: [{name: fish}]",
            "surfaces: [{name: fish}, {name: reeds}], policy: {maxTier: ReadOnly}, egress: Declared, extraEgress: [{to: [{ipBlock: {cidr: nonsense}}]}]",
        ],
    ),
    (
        "ToolGrant",
        "pond",
        "by-name",
        &[
            "agents: [otter, heron], tools: [{surface: {name: fish}, allow: [list, take, lost]}, {surface: {name: reed}, allow: [list]}]",
            "agents: [otter, nobody], tools: [{surface: {name: news, namespace: lake}, allow: [list]}]",
        ],
    ),
    (
        "ToolGrant",
        "pond",
        "all",
        &[
            "agents: [otter], tools: [{surface: {name: fish}, allow: ['*']}, {surface: {name: news, namespace: lake}, allow: ['*']}]",
            "agents: [heron], tools: [{surface: {name: fish}, allow: ['*'], descriptorDigest: 'sha256:0000000000000000000000000000000000000000000000000000000000000000'}, {surface: {name: lost}, allow: ['*']}]",
        ],
    ),
    (
        "ToolGrant",
        "pond",
        "selecting",
        &[
            "agentSelector: {matchLabels: {grants.toolcrib.dev/role: reader}}, tools: [{surface: {name: fish}, allow: [take, list]}]",
            "agents: [heron], agentSelector: {matchExpressions: [{key: grants.toolcrib.dev/role, operator: In, values: [reader, writer]}, {key: grants.toolcrib.dev/team, operator: Exists}]}, tools: [{surface: {name: news, namespace: lake}, allow: ['*']}]",
            "agentSelector: {matchExpressions: [{key: grants.toolcrib.dev/team, operator: Exists}]}, tools: [{surface: {name: reed}, allow: ['*']}]",
            "agentSelector: {matchExpressions: [{key: grants.toolcrib.dev/role, operator: NotIn, values: [writer]}]}, tools: [{surface: {name: fish}, allow: ['*']}]",
        ],
    ),
    (
        "ToolGrant",
        "pond",
        "limited",
        &[
            "agents: [otter, heron], tools: [{surface: {name: fish}, allow: [list, take], arguments: {pin: {n: 7}}}, {surface: {name: fish}, allow: [list], arguments: {schema: {properties: {n: {maximum: 3}}, required: [n]}}}]",
            "agents: [otter], notBefore: '2026-01-01T00:00:00Z', notAfter: '2026-12-31T00:00:00Z', tools: [{surface: {name: fish}, allow: ['*']}]",
            "agents: [otter], suspend: true, tools: [{surface: {name: fish}, allow: ['*']}]",
            "agents: [otter], tools: [{surface: {name: fish}, allow: ['*'], arguments: {pin: {n: seven, m: 1}}}]",
        ],
    ),
    (
        "ToolDefaults",
        "pond",
        "default",
        &[
            "tools: [{surface: {name: reed}, allow: ['*']}], policy: {maxTier: ReadOnly}",
            "tools: [{surface: {name: fish}, allow: [burn]}], policy: {maxTier: Workspace, maxRounds: 2}, egress: Declared, models: {allowed: [reef/trout]}",
            "tools: [{surface: {name: news, namespace: lake}, allow: [list], arguments: {pin: {n: 1}}}]",
        ],
    ),
    (
        "ClusterToolPolicy",
        "",
        "lowest",
        &[
            "maxTier: Workspace, trustTiersOf: {matchExpressions: [{key: team, operator: Exists}]}",
            "agents: [{namespace: pond, name: otter}], deny: [{surface: {namespace: pond, name: fish}, tools: [b*]}, {host: 'news.lake.svc:443'}, {host: reed.test}]",
        ],
    ),
    (
        "ModelProvider",
        "pond",
        "reef",
        &[
            "endpoints: [{dialect: OpenAI, url: 'http://model.pond.svc/v1'}], auth: None",
            "endpoints: [{dialect: OpenAI, url: 'https://reef.test/v1', responses: true}], apiKeys: [{secretKeyRef: {name: own, key: token}}]",
        ],
    ),
    (
        "ModelProvider",
        "pond",
        "coral",
        &[
            "endpoints: [{dialect: Anthropic, url: 'https://coral.test/v1'}], auth: None, proxy: 'http://proxy.test:3128'",
        ],
    ),
];

/// Documents of Kubernetes' kinds: name of the object, variants of the document without its name.
const OTHERS: &[(&str, &str, &str, &[&str])] = &[
    (
        "Service",
        "pond",
        "fish",
        &[
            "spec: {selector: {app: fish}, ports: [{port: 80, targetPort: 8080}]}",
            "spec: {selector: {app: fish}, ports: [{port: 81}]}",
            "spec: {type: ExternalName, externalName: elsewhere.test}",
        ],
    ),
    (
        "Service",
        "lake",
        "news",
        &[
            "spec: {ports: [{port: 443}]}",
            "spec: {clusterIP: 10.96.0.7, ports: [{port: 443}]}",
        ],
    ),
    (
        "Service",
        "pond",
        "model",
        &["spec: {selector: {app: model}, ports: [{port: 80}]}"],
    ),
    (
        "Secret",
        "pond",
        "fish",
        &[
            "labels: {toolcrib.dev/credential: 'true'}, annotations: {toolcrib.dev/hosts: 'fish.pond.svc, reed.test'}}\nstringData: {token: t, username: u, password: p}",
            "labels: {toolcrib.dev/credential: 'true'}, annotations: {toolcrib.dev/hosts: elsewhere.test}}\nstringData: {token: t, username: u, password: p}",
        ],
    ),
    (
        "Secret",
        "lake",
        "news",
        &[
            "labels: {toolcrib.dev/credential: 'true'}, annotations: {toolcrib.dev/hosts: news.lake.svc}}\nstringData: {token: t}",
        ],
    ),
    (
        "Secret",
        "pond",
        "own",
        &[
            "labels: {toolcrib.dev/credential: 'true'}, annotations: {toolcrib.dev/hosts: 'news.lake.svc,reef.test'}}\nstringData: {token: t}",
            "annotations: {toolcrib.dev/hosts: 'news.lake.svc,reef.test'}}\nstringData: {token: t}",
        ],
    ),
    ("ConfigMap", "pond", "ca", &["data: {ca.crt: $CA}"]),
    (
        "ConfigMap",
        "pond",
        "reed",
        &[
            "data: {describe.json: '{\"version\": 2, \"skill\": \"s/reed.md\", \"tools\": [{\"name\": \"list\", \"inputSchema\": {\"type\": \"object\"}, \"http\": {\"method\": \"GET\", \"path\": \"/l\"}}]}', reed.md: How to cut}",
            "data: {describe.json: '{\"version\": 2, \"tools\": []}'}",
        ],
    ),
    (
        "Namespace",
        "",
        "pond",
        &["labels: {team: otters}}", "labels: {team: beavers}}"],
    ),
];

/// The name of an object, and its document.
type Document = (String, String);

pub fn world() -> impl Strategy<Value = World> {
    let ours = OBJECTS.iter().map(|(kind, namespace, name, variants)| {
        let document = move |spec: &&str| ours(kind, namespace, name, spec);
        drawn(variants.iter().map(document).collect())
    });
    let others = OTHERS.iter().map(|(kind, namespace, name, variants)| {
        let document = move |rest: &&str| other(kind, namespace, name, rest);
        drawn(variants.iter().map(document).collect())
    });
    let all: Vec<_> = ours.chain(others).collect();
    all.prop_map(|documents| documents.into_iter().flatten().collect())
}

fn drawn(variants: Vec<Document>) -> impl Strategy<Value = Option<Document>> {
    prop::option::weighted(0.9, select(variants))
}

pub fn ours(kind: &str, namespace: &str, name: &str, spec: &str) -> Document {
    let (labels, spec) = match spec.split_once(" | ") {
        Some((labels, spec)) => (format!(", labels: {{{labels}}}"), spec),
        None => (String::new(), spec),
    };
    let spec = spec.replace("$S", SCHEMA);
    let text = format!(
        "apiVersion: toolcrib.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}{labels}}}\nspec: {{{spec}}}\n"
    );
    (format!("{kind} {namespace}/{name}"), text)
}

fn other(kind: &str, namespace: &str, name: &str, rest: &str) -> Document {
    let rest = rest.replace(
        "$CA",
        &format!(
            "{:?}",
            include_str!("../../../../../crds/bounds/tests/pond.pem")
        ),
    );
    // The rest of the metadata, or the part after them.
    let rest = match rest.starts_with("labels") || rest.starts_with("annotations") {
        true => format!(", {rest}"),
        false => format!("}}\n{rest}"),
    };
    let namespace_field = match namespace {
        "" => String::new(),
        namespace => format!(", namespace: {namespace}"),
    };
    let text =
        format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}{namespace_field}{rest}\n");
    (format!("{kind} {namespace}/{name}"), text)
}
