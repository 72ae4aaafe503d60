//! The faults, each with its page text, its change of the example, and its pod.

use serde_json::{Value, json};

use super::mediator::AGENT;

/// One fault, staged in a namespace of its own.
pub struct Situation {
    pub name: &'static str,
    pub title: &'static str,
    /// The cause and the cure.
    pub text: &'static str,
    /// Changes the objects of the example before they are applied.
    pub edit: fn(&mut Objects),
    pub pod: AgentPod,
}

/// The pod that has the agent's label.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AgentPod {
    /// The real mediator runs. The program asks its model once the situation is staged.
    Mediator,
    /// A pod whose mediator never reports.
    Silent,
    /// A pod that the webhook did not edit.
    NotInjected,
    /// A mediator that reports files which it cannot load.
    Older,
}

pub struct Objects(pub Vec<Value>);

impl Objects {
    pub fn get(&mut self, kind: &str, name: &str) -> &mut Value {
        let found = self.0.iter_mut();
        let mut found = found.filter(|one| one["kind"] == kind && one["metadata"]["name"] == name);
        found.next().unwrap()
    }

    fn remove(&mut self, kind: &str) {
        self.0.retain(|one| one["kind"] != kind);
    }
}

pub const SITUATIONS: &[Situation] = &[
    Situation {
        name: "not-served",
        title: "The operator may not read Secrets in the namespace",
        text: "The namespace is not among the chart's `secretNamespaces`. Nothing can be compiled there, so the pod waits in `Init`.",
        edit: |_| {},
        pod: AgentPod::Silent,
    },
    Situation {
        name: "no-provider",
        title: "The namespace has no ModelProvider",
        text: "Tools are compiled and in force, but no request for a model can be answered. Create a ModelProvider.",
        edit: |objects| objects.remove("ModelProvider"),
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "no-model",
        title: "The agent has neither tools nor a ModelProvider",
        text: "The agent is not ready, because each request for a model is refused. Create a ModelProvider.",
        edit: |objects| {
            objects.remove("ModelProvider");
            objects.remove("ToolGrant");
        },
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "provider-key",
        title: "The model provider refuses its key",
        text: "The Secret that the ModelProvider names has a wrong key. Correct it; the pod loads it by itself.",
        edit: |objects| {
            objects.get("Secret", "scripted-model-key")["stringData"]["key"] =
                json!("sk-scripted-of-yesterday");
        },
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "provider-secret",
        title: "The ModelProvider's Secret was deleted",
        text: "The agent loses its model with the provider's key. Create the Secret again.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "secret-gone",
        title: "The Surface's Secret was deleted",
        text: "The running pod loses the tool with the credential. Create the Secret again, with label and annotation.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "no-consent",
        title: "The Surface's Secret has neither the label nor the host",
        text: "The Secret's owner has not allowed any use of it. The owner runs the commands that the message shows.",
        edit: |objects| {
            let metadata = objects.get("Secret", "trading-api-reader")["metadata"].as_object_mut();
            let metadata = metadata.unwrap();
            metadata.remove("labels");
            metadata.remove("annotations");
        },
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "tier",
        title: "Everything that is granted is above the agent's tier",
        text: "The only tool that is granted writes, and the agent's `policy.maxTier` is `ReadOnly`. Raise the tier, or grant a tool that reads.",
        edit: |objects| {
            objects.get("Agent", AGENT)["spec"]["policy"] = json!({"maxTier": "ReadOnly"});
            let grant = objects.get("ToolGrant", "analyst-reads");
            grant["spec"]["tools"][0]["allow"] = json!(["execute_trade"]);
        },
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "undeclared",
        title: "A grant names a Surface that the Agent does not declare",
        text: "The agent gets nothing of the grant until its Agent names the Surface in `spec.surfaces`.",
        edit: |objects| objects.get("Agent", AGENT)["spec"]["surfaces"] = json!([]),
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "wrong-port",
        title: "A Surface names a port that its Service does not have",
        text: "The agent gets nothing of the Surface. Correct `spec.service.port`; the message lists the Service's ports.",
        edit: |objects| objects.get("Surface", "trading-api")["spec"]["service"]["port"] = json!(1),
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "too-expensive",
        title: "A Surface is over a memory budget",
        text: "The Surface holds so many small values that decoding it would take too much memory. No agent gets anything of it; all other objects go on. Make it smaller.",
        edit: |objects| {
            let surface = objects.get("Surface", "trading-api");
            let schema = json!({"type": "object", "enum": vec![json!({}); 300_000]});
            surface["spec"]["descriptor"]["tools"][0]["inputSchema"] = schema;
        },
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "conflict",
        title: "A foreign Secret has the name of the compiled one",
        text: "The operator does not overwrite an object that it did not make. Delete or rename the foreign Secret.",
        edit: |objects| {
            objects.0.insert(0, json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "toolcrib-analyst-mediator"}, "stringData": {"theirs": "x"},
            }));
        },
        pod: AgentPod::Silent,
    },
    Situation {
        name: "no-mediator",
        title: "The pod was created while the webhook was off",
        text: "The pod has the label and no mediator. Its program has no tools, and nothing governs it. Delete the pod; its Deployment or Job makes a new one.",
        edit: |_| {},
        pod: AgentPod::NotInjected,
    },
    Situation {
        name: "kubelet-late",
        title: "The kubelet has not brought the files to a new pod",
        text: "The mediator waits for its files, ends, and is started again until they are there. Look at the pod's events and at the kubelet.",
        edit: |_| {},
        pod: AgentPod::Silent,
    },
    Situation {
        name: "change-late",
        title: "The kubelet has not brought a change",
        text: "A tool was granted, and the pod still has the earlier files. The kubelet takes about a minute; after two, look at it.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "link-lost",
        title: "The pod has lost its link to the operator",
        text: "The mediator goes on serving with its files and allowlist; a revocation reaches it only when the kubelet brings new files. After two and a half minutes without a report the pod is not in force. Look at the mediator's log, and at the NetworkPolicies between the pod and port 8443 of the controller's pods.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "older",
        title: "The pod's mediator is of an older release",
        text: "The files hold a restriction that the mediator does not know, so it serves nothing. Delete the pod: its replacement gets the mediator of this release.",
        edit: |objects| {
            objects.get("Agent", AGENT)["spec"]["policy"] = json!({"providerTools": "Refuse"});
        },
        pod: AgentPod::Older,
    },
    Situation {
        name: "earlier-agent",
        title: "The Agent was deleted and created again",
        text: "The pod's program holds the earlier Agent's token, which opens nothing. Delete the pod.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "service-down",
        title: "The service does not answer",
        text: "The tool is granted and in force; its service has refused the connection of three calls in a row. The agent stays ready. The record and the mediator's log have the address.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "provider-down",
        title: "The model provider does not answer",
        text: "The provider has refused the connection of three requests in a row. The agent stays ready. The record and the mediator's log have the address.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "revoked",
        title: "The last grant was deleted while the pod runs",
        text: "The model still asks for the tool. The call is denied and recorded.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "operator-down",
        title: "The operator is down",
        text: "Pods keep the files that they have. Status stays as it was when the operator ended, and no change is compiled.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
];
