//! The controller is killed, or a response is lost, at each write.

use super::{LOOK, MOST_WRITES, World, fault_happened, rounds};
use crate::support::faults::Fault;
use crate::support::outcome::tools;

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_survives_a_kill_or_lost_response_at_any_write() {
    let world = World::new().await;
    let first = world.start("heron", world.faults()).await;
    let expected = world.settled(&first, "the undisturbed run").await;
    assert_eq!(
        tools(&expected, "analyst").map(|tools| tools.len()),
        Some(1)
    );
    let writes = first.faults.writes();
    assert!((10..MOST_WRITES).contains(&writes), "{writes} writes");
    first.controller.kill().await;

    for _ in 0..rounds() {
        for write in 1..=writes {
            for fault in [Fault::Kill, Fault::Lose] {
                let what = format!("{fault:?} at write {write}");
                world.remove_results().await;
                let process = world.start("heron", world.faults().at(write, fault)).await;
                let happened = fault_happened(&world, &process, &expected).await;
                if fault == Fault::Kill && happened {
                    process.controller.kill().await;
                    let successor = world.start("newt", world.faults()).await;
                    world.reach(&expected, &what).await;
                    successor.controller.kill().await;
                } else {
                    world.reach(&expected, &what).await;
                    process.controller.kill().await;
                }
            }
        }
    }
    world.nothing_to_write(&expected, "after all").await;
    world.harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_survives_a_kill_at_any_write() {
    let world = World::new().await;
    let mut process = world.start("heron", world.faults()).await;
    let given = world.settled(&process, "with the grant").await;
    world.remove_grant().await;
    let revoked = world
        .when("revoked", |found| {
            tools(found, "analyst").is_some_and(|tools| tools.is_empty())
        })
        .await;
    let revoked_again = world.settled(&process, "without the grant").await;
    assert!(revoked.contains_key("Secret toolcrib-analyst-mediator"));

    let mut write = 0;
    loop {
        write += 1;
        assert!(write < MOST_WRITES, "it writes without end");
        world.add_grant().await;
        world.reach(&given, "the grant is back").await;
        process.controller.kill().await;
        // Nothing is to be done before the change, so its first write is the first of all, except
        // for the pod's label.
        process = world
            .start("heron", world.faults().at(write + 1, Fault::Kill))
            .await;
        while process.faults.writes() < 1 {
            tokio::time::sleep(LOOK).await;
        }
        world.remove_grant().await;
        if !fault_happened(&world, &process, &revoked_again).await {
            break;
        }
        process.controller.kill().await;
        process = world.start("newt", world.faults()).await;
        world
            .reach(&revoked_again, &format!("killed at write {write}"))
            .await;
    }
    assert!(write > 3, "a revocation has several writes");
    world.end(process).await;
}
