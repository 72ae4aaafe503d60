//! The controller works on a view that is no longer true: it was paused, lost events, or reads old
//! versions; or somebody else writes at the same time.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;
use toolcrib_crds::{Agent, ClusterToolPolicy, ModelProvider, Surface, ToolGrant};
use toolcrib_operator::leadership::lease::Timing;

use super::{LOOK, MOST_WRITES, World, fault_happened};
use crate::support::faults::Fault;
use crate::support::outcome::{Outcome, tools};

/// The leader is paused with a granting write in flight. Meanwhile the grant is revoked and
/// another controller leads. Then the first resumes with its old view.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_leader_restores_no_revoked_tool() {
    let world = World::new().await;
    let mut process = world.start("heron", world.faults()).await;
    let given = world.settled(&process, "with the grant").await;
    world.remove_grant().await;
    world
        .when("revoked", |found| {
            tools(found, "analyst").is_some_and(|tools| tools.is_empty())
        })
        .await;
    let revoked = world.settled(&process, "without the grant").await;
    // The paused leader does not notice the pause: the worst case of its clock.
    let long = Timing {
        duration: Duration::from_secs(3_600),
        renew_deadline: Duration::from_secs(3_000),
        retry: Duration::from_millis(1_500),
    };

    let mut write = 0;
    loop {
        write += 1;
        assert!(write < MOST_WRITES, "it writes without end");
        process.controller.kill().await;
        let paused = world
            .start_with("heron", world.faults().at(write + 1, Fault::Pause), long)
            .await;
        while paused.faults.writes() < 1 {
            tokio::time::sleep(LOOK).await;
        }
        world.add_grant().await;
        let happened = fault_happened(&world, &paused, &given).await;
        world.remove_grant().await;
        process = world.start("newt", world.faults()).await;
        world
            .reach(&revoked, &format!("while it is paused at write {write}"))
            .await;
        let sent = paused.faults.log().len();
        paused.faults.resume();
        // It continues until it checks its lease; then it is a follower.
        world
            .harness
            .eventually("it stands by", || async {
                let leads = paused.controller.metric("leader").await > 0.0;
                (!leads && (!happened || paused.faults.log().len() > sent)).then_some(())
            })
            .await;
        paused.controller.kill().await;
        world
            .reach(&revoked, &format!("resumed at write {write}"))
            .await;
        if !happened {
            break;
        }
    }
    assert!(write > 3, "a grant has several writes");
    world.nothing_to_write(&revoked, "after all").await;
    world.end(process).await;
}

/// Another writer changes a status while the reconcile that finds the old one correct is in progress.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_changes_during_a_reconcile_is_corrected() {
    let mut world = World::new().await;
    // One worker waits for the held request; the others go on.
    world.harness.workers = 4;
    let first = world.start("heron", world.faults()).await;
    let given = world.settled(&first, "with the grant").await;
    first.controller.kill().await;

    let faults = world.faults().hold("toolcrib-analyst-context");
    let process = world.start("newt", faults).await;
    world
        .harness
        .eventually("the agent's reconcile waits", || async {
            process.faults.struck().then_some(())
        })
        .await;
    let agents: Api<Agent> = world.harness.api(&world.harness.pond);
    let params = PatchParams::default();
    let wrong = json!({"status": {"toolCount": 7}});
    agents
        .patch_status("analyst", &params, &Patch::Merge(wrong))
        .await
        .expect("status");
    // Events of one watch come in order, so the wrong status has arrived once this one has.
    for suspend in [true, false] {
        let patch = json!({"spec": {"suspend": suspend}});
        let changed = agents
            .patch("executor", &params, &Patch::Merge(patch))
            .await
            .expect("executor");
        world
            .harness
            .eventually("the change is reported", || async {
                let executor = agents.get("executor").await.expect("executor");
                let observed = executor.status?.observed_generation;
                (observed == changed.metadata.generation).then_some(())
            })
            .await;
    }
    process.faults.release();
    world.reach(&given, "the status is corrected").await;
    world.end(process).await;
}

/// The leader is killed at each write of a grant, which is then revoked. The next leader reads
/// everything as of before, and gets the later events afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_with_a_stale_view_converges() {
    let world = World::new().await;
    let mut process = world.start("heron", world.faults()).await;
    world.settled(&process, "with the grant").await;
    world.remove_grant().await;
    world
        .when("revoked", |found| {
            tools(found, "analyst").is_some_and(|tools| tools.is_empty())
        })
        .await;
    let revoked = world.settled(&process, "without the grant").await;
    let grants: Api<ToolGrant> = world.harness.api(&world.harness.pond);

    let mut write = 0;
    loop {
        write += 1;
        assert!(write < MOST_WRITES, "it writes without end");
        process.controller.kill().await;
        process = world
            .start("heron", world.faults().at(write + 1, Fault::Kill))
            .await;
        while process.faults.writes() < 1 {
            tokio::time::sleep(LOOK).await;
        }
        world.add_grant().await;
        let version = grants
            .get("analyst-reads")
            .await
            .expect("grant")
            .resource_version()
            .expect("a version");
        let struck = {
            let begun = Instant::now();
            loop {
                if process.faults.struck() {
                    break true;
                }
                // No more writes than before: the count is over.
                if begun.elapsed() > Duration::from_secs(3) {
                    break false;
                }
                tokio::time::sleep(LOOK / 4).await;
            }
        };
        process.controller.kill().await;
        world.remove_grant().await;
        let old = world.faults().aged(&version, &world.harness.system);
        process = world.start("newt", old).await;
        world
            .harness
            .eventually("it works on what is old", || async {
                (process.controller.metric("reconciles").await >= 5.0).then_some(())
            })
            .await;
        process.faults.renew();
        world
            .reach(&revoked, &format!("old from write {write}"))
            .await;
        if !struck {
            break;
        }
    }
    assert!(write > 3, "a grant has several writes");
    process.controller.kill().await;
    world.nothing_to_write(&revoked, "after all").await;
    world.harness.end().await;
}

/// For each resource: its events are lost while a user changes it, then its watch ends with 410
/// Gone and a list follows.
#[tokio::test(flavor = "multi_thread")]
async fn lost_events_are_recovered_by_a_list() {
    let world = World::new().await;
    let process = world.start("heron", world.faults()).await;
    let given = world.settled(&process, "with the grant").await;
    let pond = world.harness.pond.clone();
    let all = process.faults.watched();
    assert_eq!(all.len(), 14, "{all:?}");

    async fn remove<K>(api: Api<K>, name: &str)
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        api.delete(name, &DeleteParams::default())
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let none =
        |found: &Outcome, agent: &str| tools(found, agent).is_some_and(|tools| tools.is_empty());
    let h = &world.harness;
    let blind = |resource: &'static str| process.faults.lose_events([resource]);
    let heal = |resource: &str| {
        process.faults.gone(&BTreeSet::from([resource.to_owned()]));
    };
    let back = async |resource: &'static str| {
        blind(resource);
        h.apply_example().await;
        heal(resource);
        world.reach(&given, &format!("{resource} are back")).await;
    };

    blind("toolgrants");
    remove(h.api::<ToolGrant>(&pond), "analyst-reads").await;
    heal("toolgrants");
    world.when("no grant", |o| none(o, "analyst")).await;
    back("toolgrants").await;

    blind("surfaces");
    remove(h.api::<Surface>(&pond), "trading-api").await;
    heal("surfaces");
    world
        .when("no surface", |o| none(o, "analyst") && none(o, "executor"))
        .await;
    back("surfaces").await;

    blind("services");
    remove(h.api::<Service>(&pond), "trading-api").await;
    heal("services");
    world.when("no service", |o| none(o, "analyst")).await;
    back("services").await;

    blind("secrets");
    remove(h.api::<Secret>(&pond), "trading-api-reader").await;
    remove(h.api::<Secret>(&pond), "toolcrib-executor-mediator").await;
    heal("secrets");
    world
        .when("no credential", |o| {
            none(o, "analyst") && tools(o, "executor").is_some_and(|tools| tools.len() == 2)
        })
        .await;
    back("secrets").await;

    blind("configmaps");
    remove(h.api::<ConfigMap>(&pond), "toolcrib-analyst-manifest").await;
    heal("configmaps");
    world.reach(&given, "the ConfigMap is back").await;

    let providers: Vec<ModelProvider> = h
        .api(&pond)
        .list(&ListParams::default())
        .await
        .expect("list")
        .items;
    blind("modelproviders");
    remove(h.api::<ModelProvider>(&pond), &providers[0].name_any()).await;
    heal("modelproviders");
    world
        .when("no provider", |o| {
            o["Agent analyst"]["conditions"]
                .to_string()
                .contains("NoModelProvider")
        })
        .await;
    back("modelproviders").await;

    // Another Agent of the same name: everything of the first is created anew.
    blind("agents");
    remove(h.api::<Agent>(&pond), "analyst").await;
    h.apply_example().await;
    heal("agents");
    world.reach(&given, "another agent of that name").await;

    blind("tooldefaults");
    h.apply(json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolDefaults",
        "metadata": {"name": "default", "namespace": pond},
        "spec": {"tools": [{"surface": {"name": "trading-api"}, "allow": ["*"]}]},
    }))
    .await;
    heal("tooldefaults");
    world
        .when("defaults give", |o| {
            tools(o, "analyst").is_some_and(|tools| tools.len() == 2)
        })
        .await;
    blind("tooldefaults");
    remove(h.api::<toolcrib_crds::ToolDefaults>(&pond), "default").await;
    heal("tooldefaults");
    world.reach(&given, "the defaults are gone").await;

    let policy = format!("{pond}-denies");
    blind("clustertoolpolicies");
    h.apply(json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ClusterToolPolicy",
        "metadata": {"name": policy},
        "spec": {
            "agents": [{"namespace": pond, "name": "analyst"}],
            "deny": [{"surface": {"namespace": pond, "name": "trading-api"}}],
        },
    }))
    .await;
    heal("clustertoolpolicies");
    world.when("a policy denies", |o| none(o, "analyst")).await;
    blind("clustertoolpolicies");
    remove(Api::<ClusterToolPolicy>::all(h.client.clone()), &policy).await;
    heal("clustertoolpolicies");
    world.reach(&given, "the policy is gone").await;

    let running = |count: u64| {
        move |o: &Outcome| o["Agent analyst"]["pods"]["running"].as_u64() == Some(count)
    };
    blind("pods");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "analyst-1", "labels": {"toolcrib.dev/agent": "analyst"}},
        "spec": {"schedulerName": "nobody", "serviceAccountName": "default",
                 "automountServiceAccountToken": false,
                 "containers": [{"name": "runner", "image": "none"}]},
    }))
    .expect("a pod");
    h.eventually("the pod", || async {
        h.api::<Pod>(&pond)
            .create(&PostParams::default(), &pod)
            .await
            .ok()
    })
    .await;
    heal("pods");
    world.when("one pod", running(1)).await;
    blind("pods");
    h.api::<Pod>(&pond)
        .delete("analyst-1", &DeleteParams::default().grace_period(0))
        .await
        .expect("deleted");
    heal("pods");
    world.when("no pod", running(0)).await;

    process.controller.kill().await;
    let fresh = world.start("newt", world.faults()).await;
    world.reach(&given, "after all").await;
    world.end(fresh).await;
}

/// Another writer edits our objects faster than we can; when it stops, so do our writes.
#[tokio::test(flavor = "multi_thread")]
async fn writes_stop_when_a_conflicting_writer_stops() {
    let world = World::new().await;
    let process = world.start("heron", world.faults()).await;
    let given = world.settled(&process, "undisturbed").await;
    let secrets: Api<Secret> = world.harness.api(&world.harness.pond);
    let agents: Api<Agent> = world.harness.api(&world.harness.pond);
    let params = PatchParams::default();
    for round in 0..150 {
        let theirs = match round % 3 {
            0 => json!({"metadata": {"annotations": {"theirs": format!("{round}")}}}),
            1 => json!({"stringData": {"tools.json": "{}", "theirs": format!("{round}")}}),
            _ => json!({"data": {"agent.json": null}}),
        };
        secrets
            .patch("toolcrib-analyst-mediator", &params, &Patch::Merge(theirs))
            .await
            .expect("their write");
        let status = json!({"status": {"toolCount": 7}, "metadata": {"annotations": {"r": format!("{round}")}}});
        agents
            .patch_status("analyst", &params, &Patch::Merge(status))
            .await
            .expect("their status");
    }
    // Fields that the other writer added beside ours stay.
    let clean = json!({"metadata": {"annotations": {"theirs": null}}});
    secrets
        .patch("toolcrib-analyst-mediator", &params, &Patch::Merge(clean))
        .await
        .expect("their last write");
    let content = |outcome: &Outcome| {
        outcome
            .iter()
            .filter(|(name, _)| name.starts_with("Secret") || name.starts_with("ConfigMap"))
            .map(|(name, object)| (name.clone(), object.clone()))
            .collect::<Outcome>()
    };
    world
        .when("ours is as it was", |found| {
            content(found) == content(&given)
        })
        .await;
    let after = world.settled(&process, "after the storm").await;
    let writes = process.faults.writes();
    assert_eq!(after, world.settled(&process, "and stays").await);
    assert_eq!(writes, process.faults.writes());
    world.end(process).await;
}
