//! Users' mistakes: conditions and events name object and field, and others are not affected.

use anyhow::{Result, ensure};
use toolcrib_e2e::platform::PollResult;

use crate::support::{Desk, START, condition};

#[test]
fn a_mistake_is_reported_and_affects_no_other_agent() -> Result<()> {
    let desk = Desk::open("mistakes")?;
    desk.wait_in_force("analyst")?;
    desk.platform.apply(MISTAKES)?;

    for (kind, name, words) in [
        ("surface", "crooked", ["crooked", "inputSchema"]),
        ("toolgrant", "too-much", ["trading-api", "sell_everything"]),
        ("agent", "clumsy", ["no-such-secret", "unlabelled"]),
    ] {
        desk.platform.eventually(
            &format!("{kind} {name} to say what is wrong"),
            START,
            || {
                let object = desk
                    .platform
                    .get(&[kind, name, "--namespace", "mistakes"])?;
                let said = object["status"].to_string();
                Ok(PollResult::when(
                    words.iter().all(|word| said.contains(word)),
                    said,
                ))
            },
        )?;
        desk.platform
            .eventually(&format!("an event about {kind} {name}"), START, || {
                let field = format!("involvedObject.name={name}");
                let events = desk.platform.get(&[
                    "events",
                    "--namespace",
                    "mistakes",
                    "--field-selector",
                    &field,
                ])?;
                let said: String = events["items"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|event| event["type"] == "Warning")
                    .map(|event| event["message"].to_string())
                    .collect();
                Ok(PollResult::when(
                    words.iter().any(|word| said.contains(word)),
                    said,
                ))
            })?;
    }

    // The valid part of the agent's grants is in force.
    let clumsy = desk.agent("clumsy")?;
    let tools: Vec<&str> = clumsy["status"]["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(tools, ["trading-api.get_market_context"], "{clumsy}");
    let compiled = condition(&clumsy, "Compiled");
    assert_eq!(compiled["status"], "True", "{clumsy}");
    ensure!(
        compiled["message"]
            .as_str()
            .is_some_and(|said| !said.is_empty()),
        "it names what is withheld: {clumsy}"
    );

    let analyst = desk.wait_in_force("analyst")?;
    assert_eq!(condition(&analyst, "Ready")["status"], "True");
    ensure!(
        desk.ask("analyst", "What is my market context?")?
            .contains("analyst"),
        "another agent is affected"
    );
    // No status or event contains a secret.
    let all = desk.platform.kubectl(&[
        "get",
        "events,surfaces,agents,toolgrants,modelproviders",
        "--namespace",
        "mistakes",
        "--output=yaml",
    ])?;
    for secret in crate::support::SECRETS {
        ensure!(!all.contains(secret), "a secret in status or events");
    }
    desk.passed()
}

const MISTAKES: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: unlabelled, namespace: mistakes}
stringData: {token: not-for-everybody}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: crooked, namespace: mistakes}
spec:
  service: {name: trading-api, port: 4000}
  descriptor:
    version: 2
    tools:
    - name: bend
      description: Has a schema that is none
      inputSchema: {type: object, properties: {angle: {type: nonsense}}}
      http: {method: GET, path: /bend}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: secretless, namespace: mistakes}
spec:
  service: {name: trading-api, port: 4000}
  auth: {type: Bearer, secretKeyRef: {name: no-such-secret, key: token}}
  descriptor:
    version: 2
    tools:
    - name: look
      description: Needs a Secret that is not there
      inputSchema: {type: object}
      http: {method: GET, path: /look}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: careless, namespace: mistakes}
spec:
  service: {name: trading-api, port: 4000}
  auth: {type: Bearer, secretKeyRef: {name: unlabelled, key: token}}
  descriptor:
    version: 2
    tools:
    - name: look
      description: Names a Secret that is nobody's to send
      inputSchema: {type: object}
      http: {method: GET, path: /look}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: clumsy, namespace: mistakes}
spec:
  surfaces:
  - {name: trading-api}
  - {name: crooked}
  - {name: secretless}
  - {name: careless}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {name: too-much, namespace: mistakes}
spec:
  agents: [clumsy]
  tools:
  - {surface: {name: trading-api}, allow: [get_market_context, sell_everything]}
  - {surface: {name: crooked}, allow: ["*"]}
  - {surface: {name: secretless}, allow: ["*"]}
  - {surface: {name: careless}, allow: ["*"]}
"#;
