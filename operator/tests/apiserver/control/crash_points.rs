//! The three patterns in which controllers fail (Sieve, OSDI 2022), at every write: killed
//! between any two writes, lost events, a stale view.
//!
//! Each has one oracle: the final objects equal those of an undisturbed run. The fault layer
//! numbers the writes, and one worker keeps their order the same each time. A round in which the
//! fault does not happen ends the count, so no index is left out.
//!
//! `TOOLCRIB_CRASH_POINT_ROUNDS=200` continues after the last index with more rounds from the first,
//! which differ in the scheduling of threads.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;
use toolcrib_crds::{Agent, ClusterToolPolicy, ModelProvider, Surface, ToolGrant};
use toolcrib_operator::leadership::lease::Timing;

use crate::support::faults::{Fault, Faults};
use crate::support::harness::{Controller, DEADLINE, Harness, free_port};
use crate::support::outcome::{Outcome, difference, outcome, tools};

/// Bound on the writes of a scenario; none has nearly as many.
const MOST_WRITES: usize = 80;
const LOOK: Duration = Duration::from_millis(40);

struct World {
    harness: Harness,
}

/// A controller, and the fault layer between it and the API server.
struct Process {
    faults: Faults,
    controller: Controller,
}

impl World {
    async fn new() -> Self {
        let mut harness = Harness::new().await;
        harness.workers = 1;
        harness.apply_example().await;
        Self { harness }
    }

    async fn start(&self, pod: &str, faults: Faults) -> Process {
        self.start_with(pod, faults, Timing::default()).await
    }

    async fn start_with(&self, pod: &str, faults: Faults, timing: Timing) -> Process {
        self.harness.vacate().await;
        let controller = self
            .harness
            .launch(faults.client(), pod, timing, free_port());
        Process { faults, controller }
    }

    fn faults(&self) -> Faults {
        Faults::new(self.harness.client.clone())
    }

    /// Polls until the objects are as expected.
    async fn reach(&self, expected: &Outcome, what: &str) {
        let begun = Instant::now();
        loop {
            let found = outcome(&self.harness).await;
            if found.as_ref() == Some(expected) {
                return;
            }
            assert!(
                begun.elapsed() < DEADLINE,
                "{what}: not the objects of an undisturbed run:\n{}",
                difference(expected, found.as_ref())
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Polls until the objects are consistent and `ready` holds for them.
    async fn when(&self, what: &str, ready: impl Fn(&Outcome) -> bool) -> Outcome {
        let begun = Instant::now();
        loop {
            let found = outcome(&self.harness).await;
            if let Some(found) = found.filter(|found| ready(found)) {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "not in time: {what}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The final outcome of an undisturbed controller: its queues are empty, and it wrote nothing
    /// between two polls.
    async fn settled(&self, process: &Process, what: &str) -> Outcome {
        let begun = Instant::now();
        let mut before = None;
        loop {
            let writes = process.faults.writes();
            let controller = &process.controller;
            // A controller after a fault reports nothing any more.
            let is_idle = process.faults.struck()
                || controller.metric("leader").await == 1.0
                    && controller.metric("unsettled_objects").await == 0.0;
            let now = outcome(&self.harness).await.filter(|_| is_idle);
            let stands = now == before && writes == process.faults.writes();
            if let Some(found) = now.clone().filter(|_| stands) {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "it never settles: {what}");
            before = now;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts a fresh controller and checks that it writes nothing.
    async fn nothing_to_write(&self, expected: &Outcome, what: &str) {
        let fresh = self.start("fresh", self.faults()).await;
        let begun = Instant::now();
        let objects = expected.keys().filter(|name| !name.contains("toolcrib-"));
        let objects = objects.count() as f64;
        while !(fresh.faults.log().len() > 20
            && fresh.controller.metric("reconciles").await >= objects)
        {
            assert!(begun.elapsed() < DEADLINE, "{what}: it does not work");
            tokio::time::sleep(LOOK).await;
        }
        let found = outcome(&self.harness).await;
        assert!(
            found.as_ref() == Some(expected),
            "{what}: a fresh controller changed:\n{}",
            difference(expected, found.as_ref())
        );
        let wrote: Vec<String> = fresh
            .faults
            .log()
            .into_iter()
            // It labels its own pod; an Event that exists is not created again.
            .filter(|seen| {
                let own = ["/pods/", "/events"];
                seen.write.is_some() && !own.iter().any(|own| seen.path.contains(own))
            })
            .map(|seen| format!("{} {}", seen.method, seen.path))
            .collect();
        assert!(wrote.is_empty(), "{what}: it wrote {wrote:?}");
        fresh.controller.kill().await;
    }

    async fn remove_grant(&self) {
        let grants: Api<ToolGrant> = self.harness.api(&self.harness.pond);
        grants
            .delete("analyst-reads", &DeleteParams::default())
            .await
            .expect("grant deleted");
    }

    async fn add_grant(&self) {
        self.harness
            .apply(json!({
                "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
                "metadata": {"name": "analyst-reads", "namespace": self.harness.pond},
                "spec": {"agents": ["analyst"], "tools": [
                    {"surface": {"name": "trading-api"}, "allow": ["get_market_context"]},
                ]},
            }))
            .await;
    }

    /// Removes everything that a controller wrote.
    async fn remove_results(&self) {
        let pond = &self.harness.pond;
        let labels = ListParams::default().labels("app.kubernetes.io/managed-by=toolcrib");
        let params = DeleteParams::default();
        let secrets: Api<Secret> = self.harness.api(pond);
        secrets
            .delete_collection(&params, &labels)
            .await
            .expect("deleted");
        let config_maps: Api<ConfigMap> = self.harness.api(pond);
        config_maps
            .delete_collection(&params, &labels)
            .await
            .expect("deleted");
        self.forget_status::<Agent>().await;
        self.forget_status::<Surface>().await;
        self.forget_status::<ToolGrant>().await;
        self.forget_status::<ModelProvider>().await;
        let empty = json!({"metadata": {"annotations": null}, "data": null});
        self.harness
            .api::<Secret>(&self.harness.system)
            .patch(
                "certificates",
                &PatchParams::default(),
                &Patch::Merge(empty),
            )
            .await
            .expect("certificates");
    }

    async fn forget_status<K>(&self)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let api: Api<K> = self.harness.api(&self.harness.pond);
        for object in api.list(&ListParams::default()).await.expect("list") {
            api.patch_status(
                &object.name_any(),
                &PatchParams::default(),
                &Patch::Merge(json!({"status": null})),
            )
            .await
            .expect("status");
        }
    }

    async fn end(self, last: Process) {
        last.controller.kill().await;
        self.harness.end().await;
    }
}

/// Waits until the fault has happened, or all is as expected without it.
async fn fault_happened(world: &World, process: &Process, expected: &Outcome) -> bool {
    let begun = Instant::now();
    loop {
        if process.faults.struck() {
            return true;
        }
        if outcome(&world.harness).await.as_ref() == Some(expected) {
            let last = world.settled(process, "without a fault").await;
            if last == *expected {
                return process.faults.struck();
            }
        }
        assert!(begun.elapsed() < DEADLINE, "neither a fault nor an end");
        tokio::time::sleep(LOOK / 4).await;
    }
}

/// The write indexes of a scenario, repeated for a longer run.
fn rounds() -> usize {
    std::env::var("TOOLCRIB_CRASH_POINT_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(1)
}

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
    assert_eq!(all.len(), 12, "{all:?}");

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
