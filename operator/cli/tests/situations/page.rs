//! A section of the page: one situation, and the text that each place shows.
//!
//! Values that change from run to run (times, uids, digests, ports) are left out or replaced.

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::harness::Harness;
use super::mediator::MediatedPod;

/// Plurals of the kinds that a namespace of the example has.
const KINDS: [&str; 4] = ["agents", "surfaces", "toolgrants", "modelproviders"];

/// Columns that depend on time; the mediator reports its counts at intervals.
const CHANGING_COLUMNS: [&str; 3] = ["Age", "Calls", "Denied"];

/// The mediator's metrics that tell situations apart.
const FAMILIES: [&str; 7] = [
    "toolcrib_mediator_requests_total",
    "toolcrib_mediator_tool_calls_total",
    "toolcrib_mediator_model_calls_total",
    "toolcrib_mediator_manifest_in_force",
    "toolcrib_mediator_manifest_error",
    "toolcrib_mediator_link{",
    "toolcrib_mediator_unauthorized_total",
];

/// A staged situation, and the texts that are not read from the cluster.
pub struct Observation<'a> {
    pub title: &'a str,
    pub text: &'a str,
    pub namespace: &'a str,
    pub mediated: Option<&'a MediatedPod>,
    /// The program's answer.
    pub answer: Option<&'a str>,
    /// The log of a mediator that does not serve.
    pub log: Option<&'a str>,
}

pub async fn section(harness: &Harness, seen: &Observation<'_>, explained: &str) -> String {
    let mut text = format!("## {}\n\n{}\n\n", seen.title, seen.text);
    let mut tables = Vec::new();
    let mut conditions = Vec::new();
    for plural in KINDS {
        let (table, said) = objects(harness, seen.namespace, plural).await;
        if plural == "agents" || !said.is_empty() {
            tables.push(table);
        }
        conditions.extend(said);
    }
    block(&mut text, "`kubectl get`", &tables.join("\n"));
    block(
        &mut text,
        "Conditions, other than `True` without a message",
        &conditions.concat(),
    );
    block(&mut text, "Events", &events(harness, seen.namespace).await);
    block(&mut text, "`kubectl toolcrib explain`", explained);
    if let Some(said) = seen.log {
        block(&mut text, "The mediator's log", said);
    }
    if let Some(answer) = seen.answer {
        block(&mut text, "The program's answer", answer);
    }
    if let Some(mediated) = seen.mediated {
        let line = mediated
            .record()
            .map(|line| turn(&line))
            .unwrap_or_default();
        block(&mut text, "The record", &line);
        block(
            &mut text,
            "Metrics of the mediator",
            &metrics(&mediated.metrics().await),
        );
    }
    text
}

fn block(text: &mut String, title: &str, said: &str) {
    let said = said.trim_end();
    if said.is_empty() {
        *text += &format!("{title}: nothing.\n\n");
    } else {
        *text += &format!("{title}:\n\n```text\n{said}\n```\n\n");
    }
}

/// The table that `kubectl get` prints, and the conditions other than `True` without a message.
async fn objects(harness: &Harness, namespace: &str, plural: &str) -> (String, Vec<String>) {
    let url = format!("/apis/toolcrib.dev/v1alpha1/namespaces/{namespace}/{plural}");
    let ask = |accept: &str| {
        let request = http::Request::get(&url).header("accept", accept);
        harness
            .client
            .request::<Value>(request.body(Vec::new()).unwrap())
    };
    let table = ask("application/json;as=Table;v=v1;g=meta.k8s.io")
        .await
        .unwrap();
    let columns: Vec<usize> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .filter(|(_, column)| {
            let name = column["name"].as_str().unwrap();
            column["priority"] == 0 && !CHANGING_COLUMNS.contains(&name)
        })
        .map(|(number, _)| number)
        .collect();
    let header = columns.iter().map(|number| {
        let name = &table["columnDefinitions"][number]["name"];
        name.as_str().unwrap().to_uppercase()
    });
    let mut rows = vec![header.collect::<Vec<_>>()];
    for row in table["rows"].as_array().unwrap() {
        rows.push(
            columns
                .iter()
                .map(|number| cell(&row["cells"][number]))
                .collect(),
        );
    }
    let items = ask("application/json").await.unwrap();
    let items = items["items"].as_array().unwrap();
    let said = items.iter().flat_map(|item| {
        let kind = item["kind"].as_str().unwrap().to_owned();
        let conditions = item["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let named = format!("{kind} {}", item["metadata"]["name"].as_str().unwrap());
        conditions.into_iter().filter_map(move |condition| {
            let text = |field: &str| condition[field].as_str().unwrap().to_owned();
            let says = text("status") != "True" || !text("message").is_empty();
            says.then(|| {
                let head = format!(
                    "{named}: {} {} {}",
                    text("type"),
                    text("status"),
                    text("reason")
                );
                format!("{head}: {}\n", text("message"))
            })
        })
    });
    (aligned(&rows), said.collect())
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    }
}

fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column).unwrap_or_default();
            format!("{cell:width$}")
        });
        text += cells.collect::<Vec<_>>().join("   ").trim_end();
        text.push('\n');
    }
    text
}

/// What `kubectl describe` shows of each object, without times and counts.
async fn events(harness: &Harness, namespace: &str) -> String {
    let api: Api<Event> = harness.api(namespace);
    let listed = api.list(&ListParams::default()).await.unwrap();
    let mut lines: Vec<String> = listed
        .iter()
        .filter_map(|event| {
            let about = event.regarding.as_ref()?;
            let ours = event.reporting_controller.as_deref()? == "toolcrib.dev/controller";
            let part = |text: &Option<String>| text.clone().unwrap_or_default();
            // It depends on when the garbage collector deletes the Secret of an earlier Agent.
            let by_chance = part(&event.reason) == "TokenRenewed";
            (ours && !by_chance).then(|| {
                let (kind, name) = (part(&about.kind), part(&about.name));
                let (type_, reason) = (part(&event.type_), part(&event.reason));
                format!("{kind} {name}: {type_} {reason}: {}\n", part(&event.note))
            })
        })
        .collect();
    lines.sort();
    lines.dedup();
    lines.concat()
}

/// The fields of a request's line that do not differ from run to run.
fn turn(line: &Value) -> String {
    let mut kept = json!({});
    for field in [
        "http_status",
        "error",
        "error_code",
        "connection",
        "interventions",
        "undeclared_calls",
    ] {
        if !line[field].is_null() {
            kept[field] = line[field].clone();
        }
    }
    let rounds = line["tool_trace"].as_array().cloned().unwrap_or_default();
    let calls: Vec<Value> = rounds
        .iter()
        .flat_map(|round| round["tool_calls"].as_array().cloned().unwrap_or_default())
        .map(|mut call| {
            let call = call.as_object_mut().unwrap();
            call.retain(|field, _| {
                [
                    "name",
                    "executed",
                    "result",
                    "connection",
                    "reason",
                    "exists",
                ]
                .contains(&&**field)
            });
            Value::from(call.clone())
        })
        .collect();
    kept["tool_calls"] = calls.into();
    serde_json::to_string_pretty(&kept).unwrap()
}

/// The chosen metrics, without the series of a family that are 0. The series of a family are sorted.
fn metrics(all: &str) -> String {
    let chosen = all.lines().filter(|line| {
        let named = FAMILIES.iter().any(|family| line.starts_with(family));
        let other = line.contains('{') && line.ends_with(" 0");
        named && !other
    });
    let mut lines: Vec<&str> = chosen.collect();
    let family = |line: &str| line.split('{').next().map(str::to_owned);
    for series in lines.chunk_by_mut(|one, next| family(one) == family(next)) {
        series.sort_unstable();
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Replaces what differs from run to run.
pub fn normalized(text: &str, replaced: &[(String, &str)]) -> String {
    let mut text = text.to_owned();
    for (found, name) in replaced {
        text = text.replace(found, name);
    }
    // The size includes the names that this run has.
    const SIZE: &str = " bytes of text";
    let mut sized = String::new();
    for part in text.split_inclusive(SIZE) {
        if let Some(before) = part.strip_suffix(SIZE) {
            sized += before.trim_end_matches(|digit: char| digit.is_ascii_digit());
            sized += "N";
            sized += SIZE;
        } else {
            sized += part;
        }
    }
    // Digests: long runs of hexadecimal digits.
    let mut out = String::new();
    let mut run = String::new();
    for character in sized.chars().chain(['\n']) {
        if character.is_ascii_hexdigit() {
            run.push(character);
            continue;
        }
        out += if run.len() >= 32 { "DIGEST" } else { &run };
        run.clear();
        out.push(character);
    }
    out.pop();
    out
}
