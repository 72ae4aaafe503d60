//! Removes from objects and logs everything that a bug report must not have.
//!
//! Invariant: only fields that are named here stay, and of Toolcrib's kinds `spec` and `status`. Values of
//! variables, arguments of calls and of users' programs, and annotations of others never stay. Labels stay.

use serde_json::{Map, Value, json};
use toolcrib_compile::names;

const METADATA: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "generation",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
];
/// Annotations whose values the operator writes.
const ANNOTATIONS: [&str; 3] = [
    names::INJECTED_ANNOTATION,
    names::REFRESH_ANNOTATION,
    names::WEBHOOK_PATH_ANNOTATION,
];
/// Flags of the operator whose values stay. Other values could hold a credential, such as that of a
/// collector's address.
const FLAGS: [&str; 12] = [
    "--cluster-domain",
    "--dns-egress",
    "--lease",
    "--link-service",
    "--log",
    "--mediator-image",
    "--name-servers",
    "--namespace",
    "--refused-hosts",
    "--secret-namespaces",
    "--webhook-config-name",
    "--webhook-service",
];

/// The commands of the operator's program.
const COMMANDS: [&str; 2] = ["controller", "webhook"];

/// The owner of a container's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Operator,
    User,
}

/// Returns the part of the object that may leave the cluster. `owner`: that of its containers' programs.
pub fn object(kind: &str, object: &Value, owner: Owner) -> Value {
    let mut kept = json!({"kind": kind, "metadata": metadata(&object["metadata"])});
    match kind {
        "Pod" => {
            kept["spec"] = pod_spec(&object["spec"], owner);
            kept["status"] = pod_status(&object["status"]);
        }
        "Deployment" => {
            kept["spec"] = json!({
                "replicas": object["spec"]["replicas"],
                "template": {"spec": pod_spec(&object["spec"]["template"]["spec"], owner)},
            });
            kept["status"] = object["status"].clone();
        }
        "Event" => {
            let fields = [
                "involvedObject",
                "reason",
                "message",
                "type",
                "count",
                "firstTimestamp",
                "lastTimestamp",
                "eventTime",
                "reportingComponent",
                "source",
            ];
            for field in fields {
                kept[field] = object[field].clone();
            }
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            kept["webhooks"] = object["webhooks"].clone();
            let webhooks = kept["webhooks"].as_array_mut();
            for client in webhooks
                .into_iter()
                .flatten()
                .map(|it| &mut it["clientConfig"])
            {
                // The path is a secret: with it anybody could call the webhook.
                if let Some(client) = client.as_object_mut() {
                    client.remove("url");
                }
                if let Some(service) = client["service"].as_object_mut() {
                    service.remove("path");
                }
                let ca = client["caBundle"].as_str().map_or(0, str::len);
                client["caBundle"] = json!(format!("{ca} bytes"));
            }
        }
        "ToolApproval" => {
            kept["spec"] = without(&object["spec"], &["arguments"]);
            kept["status"] = object["status"].clone();
        }
        "EndpointSlice" => {
            kept["endpoints"] = object["endpoints"].clone();
            kept["ports"] = object["ports"].clone();
        }
        "ClusterRole" | "ClusterRoleBinding" | "RoleBinding" => {
            for field in ["rules", "roleRef", "subjects"] {
                kept[field] = object[field].clone();
            }
        }
        "Namespace" => {}
        "Agent"
        | "Surface"
        | "ToolGrant"
        | "ToolDefaults"
        | "ModelProvider"
        | "ClusterToolPolicy"
        | "ToolDecision"
        | "Lease"
        | "NetworkPolicy"
        | "ValidatingAdmissionPolicy"
        | "ValidatingAdmissionPolicyBinding" => {
            kept["spec"] = object["spec"].clone();
            kept["status"] = object["status"].clone();
        }
        // Only the metadata of another kind stays.
        _ => {}
    }
    prune(&mut kept);
    kept
}

fn metadata(metadata: &Value) -> Value {
    let mut kept = only(metadata, &METADATA);
    let annotations = only(&metadata["annotations"], &ANNOTATIONS);
    if annotations.as_object().is_some_and(|it| !it.is_empty()) {
        kept["annotations"] = annotations;
    }
    kept
}

fn only(object: &Value, fields: &[&str]) -> Value {
    let members = object.as_object().into_iter().flatten();
    let kept = members.filter(|(name, _)| fields.contains(&name.as_str()));
    Value::Object(
        kept.map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

fn without(object: &Value, fields: &[&str]) -> Value {
    let members = object.as_object().into_iter().flatten();
    let kept = members.filter(|(name, _)| !fields.contains(&name.as_str()));
    Value::Object(
        kept.map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

fn pod_spec(spec: &Value, owner: Owner) -> Value {
    let containers = |field: &str| -> Value {
        let containers = spec[field].as_array().into_iter().flatten();
        containers.map(|it| container(it, owner)).collect()
    };
    let mut kept = only(
        spec,
        &[
            "nodeName",
            "serviceAccountName",
            "hostNetwork",
            "priorityClassName",
        ],
    );
    kept["initContainers"] = containers("initContainers");
    kept["containers"] = containers("containers");
    kept
}

/// Keeps the arguments of the operator's programs.
fn container(container: &Value, owner: Owner) -> Value {
    let mut kept = only(
        container,
        &[
            "name",
            "image",
            "imagePullPolicy",
            "restartPolicy",
            "ports",
            "resources",
        ],
    );
    let names_of = container["env"].as_array().into_iter().flatten();
    let variables: Vec<Value> = names_of.map(|it| it["name"].clone()).collect();
    kept["env"] = json!(variables);
    if owner == Owner::Operator {
        let arguments = container["args"].as_array().into_iter().flatten();
        let arguments = arguments.filter_map(Value::as_str);
        let arguments: Vec<String> = arguments.map(argument).collect();
        kept["args"] = json!(arguments);
    }
    kept
}

/// The chart writes a value only as `--flag=value`, so another word is one of [`COMMANDS`], or is dropped.
fn argument(argument: &str) -> String {
    match argument.split_once('=') {
        Some((flag, _)) if FLAGS.contains(&flag) => argument.to_owned(),
        Some((flag, _)) => format!("{flag}=…"),
        None if argument.starts_with("--") || COMMANDS.contains(&argument) => argument.to_owned(),
        None => "…".to_owned(),
    }
}

/// Keeps no message of a container that has ended: it can be the end of its log.
fn pod_status(status: &Value) -> Value {
    let states = |field: &str| -> Value {
        let states = status[field].as_array().into_iter().flatten();
        states
            .map(|state| {
                let mut kept = only(
                    state,
                    &["name", "ready", "restartCount", "started", "imageID"],
                );
                for field in ["state", "lastState"] {
                    let phases = state[field].as_object().into_iter().flatten();
                    let fields = ["reason", "exitCode", "startedAt", "finishedAt"];
                    let phases = phases.map(|(phase, value)| (phase.clone(), only(value, &fields)));
                    kept[field] = Value::Object(phases.collect());
                }
                kept
            })
            .collect()
    };
    let mut kept = only(
        status,
        &["phase", "reason", "podIP", "startTime", "conditions"],
    );
    kept["initContainerStatuses"] = states("initContainerStatuses");
    kept["containerStatuses"] = states("containerStatuses");
    kept
}

/// Removes members without a value, and the credentials and queries of addresses.
fn prune(value: &mut Value) {
    match value {
        Value::Object(members) => {
            *members = std::mem::take(members)
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, mut value)| {
                    prune(&mut value);
                    (name, value)
                })
                .collect::<Map<_, _>>();
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::String(text) => {
            if let Some(shorter) = address(text) {
                *text = shorter;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The address without user and query; `None`: the text is no address, or has neither.
fn address(text: &str) -> Option<String> {
    let url = url::Url::parse(text).ok();
    let mut url = url.filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    if !has_user && url.query().is_none() {
        return None;
    }
    url.set_query(None);
    // Refused for an address that has no host, which http cannot be.
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    Some(url.into())
}

/// The lines of a program's own log. Lines of the record, which have arguments of calls, and all other text
/// are left out.
pub fn log(text: &str) -> String {
    let is_log = |line: &&str| {
        let Ok(Value::Object(line)) = serde_json::from_str(line) else {
            return false;
        };
        let is_text = |field: &str| line.get(field).is_some_and(Value::is_string);
        is_text("timestamp") && is_text("level") && is_text("target") && !line.contains_key("kind")
    };
    let kept = text.lines().filter(is_log);
    kept.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_loses_user_and_query() {
        for (text, expected) in [
            (
                "https://otter:s3cret@fish.test/a?key=s3cret",
                Some("https://fish.test/a"),
            ),
            (
                "https://fish.test/a?key=s3cret",
                Some("https://fish.test/a"),
            ),
            ("HTTP://otter@fish.test/a", Some("http://fish.test/a")),
            ("https://fish.test/a", None),
            ("see https://fish.test?a", None),
        ] {
            assert_eq!(address(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn only_known_arguments_of_the_operator_stay() {
        for (written, kept) in [
            ("controller", "controller"),
            ("--refresh-hints", "--refresh-hints"),
            ("--namespace=den", "--namespace=den"),
            ("--token=s3cret", "--token=…"),
            ("s3cret", "…"),
        ] {
            assert_eq!(argument(written), kept);
        }
    }

    #[test]
    fn only_lines_of_the_log_stay() {
        let own = r#"{"timestamp":"2026-11-27T12:00:00Z","level":"INFO","message":"became leader","target":"lease"}"#;
        let record =
            r#"{"kind":"intent","timestamp":"t","level":"INFO","target":"x","arguments":"s3cret"}"#;
        let text = format!("{record}\n{own}\ns3cret\n{{\"level\":\"INFO\"}}\n[1]\n");
        assert_eq!(log(&text), format!("{own}\n"));
    }
}
