//! ADR-0004 at the executor: a call's context limits the tools that it can run.

use std::time::Duration;

use serde_json::json;
use toolcrib_manifest::Tier;
use toolcrib_mediation::{
    BudgetCounts, Certainty, ClawId, DirectCall, PresentedTools, RateCounts, ResultCode,
    ToolFailure,
};
use toolcrib_sidecar::outbound::tools::client::ToolClient;
use toolcrib_sidecar::outbound::tools::granted::GrantedTool;
use toolcrib_sidecar::outbound::tools::{Tool, ToolContext, ToolResult};

use crate::support::{Answer, Files, World, calls, says, within};

/// Runs the granted, live tool in a context of this tier.
async fn execute(world: &World, tool: &str, tier: Tier) -> Result<ToolResult, ToolFailure> {
    let app = &world.server.app;
    let now = app.current.now();
    let claw_id = ClawId {
        name: "otter".into(),
        namespace: "pond".into(),
    };
    let arguments = r#"{"symbol":"OTR"}"#;
    let presented = PresentedTools::alone(&now.authority, jiff::Timestamp::UNIX_EPOCH);
    let mut call = DirectCall::new(&presented, &claw_id, tool, arguments);
    let call = call.start(Duration::ZERO).unwrap();
    let live = now
        .authority
        .permits(
            &call,
            &RateCounts::default(),
            &BudgetCounts::default(),
            jiff::Timestamp::UNIX_EPOCH,
        )
        .unwrap();
    let context = ToolContext {
        idempotency_key: None,
        arguments: call.arguments(),
        claw_id: call.claw_id(),
        timeout: Duration::from_secs(15),
        max_result: 400,
        client: ToolClient::new(app.sender(), tier),
    };
    let tool = Box::new(GrantedTool::new(live, now.version().unwrap().clone()).unwrap());
    within("the call", tool.execute(context)).await
}

#[tokio::test]
async fn a_read_only_context_sends_no_call_of_a_writing_tool() {
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

/// Files of an earlier release, or written by hand, may declare any tool ReadOnly.
#[tokio::test]
async fn a_writing_tool_is_not_read_only_even_if_its_file_says_so() {
    for (method, max_tier, is_offered) in [
        ("DELETE", "System", true),
        ("PUT", "ReadOnly", false),
        ("PATCH", "ReadOnly", false),
        ("POST", "ReadOnly", true),
        ("HEAD", "ReadOnly", true),
    ] {
        let edit = |files: &mut Files| {
            files.tools["tools"][0]["execution"]["method"] = json!(method);
            files.tools["tools"][0]["annotations"] = json!({"readOnly": true});
            files.agent["max_tier"] = json!(max_tier);
        };
        let world = World::start_with(edit, |_| {}, &[]).await;
        let now = world.server.app.current.now();
        let catalog = &now.version().unwrap().catalog;
        let Some(tool) = catalog.get("desk.quote") else {
            assert!(!is_offered, "{method}");
            let withheld = catalog.withheld();
            assert_eq!(withheld[0].reason, "permission_denied", "{method}");
            continue;
        };
        assert!(is_offered, "{method}");
        let reads = method != "DELETE";
        assert_eq!(tool.is_read_only(), reads, "{method}");
        assert_eq!(tool.tier == Tier::ReadOnly, reads, "{method}");
        if !reads {
            let refused = execute(&world, "desk.quote", Tier::ReadOnly).await;
            assert_eq!(refused.unwrap_err().code, ResultCode::PermissionDenied);
            assert_eq!(world.desk.connections(), 0);
        }
        world.desk.will(Answer::json(json!({"at": 7})));
        let ran = execute(&world, "desk.quote", tool.tier).await;
        assert!(ran.is_ok(), "{method}: {ran:?}");
        assert_eq!(world.desk.requests()[0].method, *method);
    }
}

#[tokio::test]
async fn the_display_line_is_recorded() {
    let world = World::start().await;
    let call = calls(&[("c1", "desk__quote", r#"{"symbol":"OTR"}"#)]);
    world.model.will(Answer::json(call));
    world.desk.will(Answer::json(json!({"at": 7})));
    world.model.will(Answer::json(says("seven")));
    world.chat().await;
    let call = &world.last_line()["tool_trace"][0]["tool_calls"][0];
    assert_eq!(call["display"], "desk.quote: status 200, 8 bytes");
}
