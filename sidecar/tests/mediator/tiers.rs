//! ADR-0004 at the executor: what a call can do is what its context holds, whatever tool it is of.

use std::time::Duration;

use serde_json::json;
use toolcrib_manifest::Tier;
use toolcrib_mediation::{Certainty, ClawId, LoneCall, Presented, ResultCode, ToolFailure};
use toolcrib_sidecar::tools::client::{Client, GrantedTool, wire};
use toolcrib_sidecar::tools::{Tool, ToolContext, ToolResult, Wire};

use crate::support::{Answer, World, within};

/// The tool, granted and live, in a context for tools of this tier.
async fn execute(world: &World, tool: &str, tier: Tier) -> Result<ToolResult, ToolFailure> {
    let app = &world.server.app;
    let now = app.current.now();
    let claw_id = ClawId {
        name: "otter".into(),
        namespace: "pond".into(),
    };
    let arguments = r#"{"symbol":"OTR"}"#;
    let presented = Presented::alone(&now.authority);
    let mut call = LoneCall::new(&presented, &claw_id, tool, arguments);
    let call = call.start(Duration::ZERO).unwrap();
    let live = now.authority.permits(&call).unwrap();
    let client = Client {
        outbound: &app.outbound,
        tokens: &app.tokens,
        servers: &app.servers,
        current: &app.current,
    };
    let context = ToolContext {
        arguments: call.arguments(),
        claw_id: call.claw_id(),
        timeout: Duration::from_secs(15),
        max_result: 400,
        wire: wire(client, tier),
    };
    assert_eq!(
        matches!(context.wire, Wire::ReadOnly(_)),
        tier == Tier::ReadOnly
    );
    let tool = Box::new(GrantedTool::new(live, now.version().unwrap().clone()));
    within("the call", tool.execute(context)).await
}

#[tokio::test]
async fn a_context_of_a_tool_that_reads_sends_nothing_for_one_that_may_write() {
    let world = World::start().await;
    let refused = execute(&world, "desk.order", Tier::ReadOnly).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, ResultCode::PermissionDenied);
    assert_eq!(refused.certainty, Certainty::NeverRan);
    assert_eq!(world.desk.connections(), 0);

    let runs = [
        ("desk.quote", Tier::ReadOnly),
        ("desk.order", Tier::System),
        ("desk.quote", Tier::System),
    ];
    for (tool, tier) in runs {
        world.desk.will(Answer::json(json!({"at": 7})));
        let ran = execute(&world, tool, tier).await;
        assert!(ran.is_ok(), "{tool} {tier:?}: {ran:?}");
    }
    assert_eq!(world.desk.requests().len(), runs.len());
}
