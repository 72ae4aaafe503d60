//! `inject/<case>/pod.yaml` → `expected.yaml` (the pod as injected) or `refused.txt` (the message
//! for its author). `UPDATE_EXPECT=1` writes them; read the difference.

#![expect(
    clippy::disallowed_methods,
    reason = "a test reads its cases from files"
)]
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use k8s_openapi::api::core::v1::{Capabilities, ResourceRequirements, SecurityContext};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::prelude::*;
use serde_json::Value;
use toolcrib_compile::inject::{
    Allowances, DEFAULT_HISTORY_BYTES, InjectConfig, Injection, PullPolicy, RecordExport, Refusal,
    WhenBehind, inject,
};
use toolcrib_compile::names;
use toolcrib_crds::{Agent, AgentSpec, Identity};
use toolcrib_golden::{Suite, cases, expect, here};

#[path = "mutators/mod.rs"]
mod mutators;

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inject");
    let tests: [(&str, fn()); 8] = [
        (
            "a_dotted_pod_name_is_refused_as_an_identity",
            a_dotted_pod_name_is_refused_as_an_identity,
        ),
        (
            "a_mesh_that_is_injected_later_is_put_before_the_mediator",
            a_mesh_that_is_injected_later_is_put_before_the_mediator,
        ),
        ("pull_secrets_are_added_once", pull_secrets_are_added_once),
        (
            "the_export_of_records_becomes_arguments",
            the_export_of_records_becomes_arguments,
        ),
        (
            "known_edits_of_other_webhooks_are_accepted",
            known_edits_of_other_webhooks_are_accepted,
        ),
        (
            "termination_messages_have_a_fixed_path",
            termination_messages_have_a_fixed_path,
        ),
        (
            "the_order_of_webhooks_does_not_change_the_pod",
            the_order_of_webhooks_does_not_change_the_pod,
        ),
        (
            "any_pod_is_injected_once_and_keeps_its_containers",
            any_pod_is_injected_once_and_keeps_its_containers,
        ),
    ];
    let cases = Suite::default().cases(cases(&folder, None), check);
    let suite = tests
        .into_iter()
        .fold(cases, |suite, (name, test)| suite.test(name, test));
    suite.run()
}

fn agent() -> Agent {
    let mut agent = Agent::new("otter", AgentSpec::default());
    agent.metadata.namespace = Some("pond".to_string());
    agent
}

fn config() -> InjectConfig {
    let amount = |text: &str| BTreeMap::from([("memory".to_string(), Quantity(text.to_string()))]);
    InjectConfig {
        image: "example.test/toolcrib/sidecar:7".to_string(),
        image_pull_policy: Some(PullPolicy::IfNotPresent),
        image_pull_secrets: Vec::new(),
        resources: ResourceRequirements {
            requests: Some(amount("16Mi")),
            limits: Some(amount("128Mi")),
            ..ResourceRequirements::default()
        },
        history_bytes: DEFAULT_HISTORY_BYTES,
        keepalive: None,
        record_bodies: false,
        otlp_endpoint: None,
        export: None,
        metrics_port: None,
        allowances: Allowances::default(),
    }
}

fn applied(pod: &Pod, patch: &json_patch::Patch) -> Value {
    let mut value = serde_json::to_value(pod).expect("a pod is plain data");
    json_patch::patch(&mut value, patch).expect("the patch applies");
    value
}

fn typed(value: Value) -> Pod {
    serde_json::from_value(value).expect("the injected pod is a pod")
}

/// Properties of every injection.
#[track_caller]
fn check_injected(before: &Pod, after: &Pod) {
    assert_eq!(
        inject(after, &agent(), &config()),
        Injection::AlreadyInjected,
        "a second pass changes nothing"
    );
    let before_spec = before.spec.as_ref().expect("spec");
    let after_spec = after.spec.as_ref().expect("spec");
    let reverted = |containers: &[Container], originals: &[Container]| {
        containers
            .iter()
            .filter(|container| container.name != names::MEDIATOR_CONTAINER)
            .zip(originals)
            .map(|(container, original)| without_edits(container, original))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        reverted(&after_spec.containers, &before_spec.containers),
        before_spec.containers,
        "app containers are unchanged, except for the listed edits"
    );
    let init = before_spec.init_containers.clone().unwrap_or_default();
    let after_init = after_spec.init_containers.as_deref().unwrap_or_default();
    assert_eq!(reverted(after_init, &init), init, "init containers too");
    let mediators = after_init
        .iter()
        .filter(|container| container.name == names::MEDIATOR_CONTAINER);
    assert_eq!(mediators.count(), 1);
    for container in after_spec.containers.iter().chain(after_init) {
        let seen = container.volume_mounts.iter().flatten();
        for mount in seen.filter(|mount| names::VOLUMES.contains(&mount.name.as_str())) {
            let allowed =
                container.name == names::MEDIATOR_CONTAINER || mount.name == names::CONTEXT_VOLUME;
            assert!(allowed, "{} mounts {}", container.name, mount.name);
        }
    }
}

/// Undoes the edits of injection in a container: our variables, NO_PROXY, the context mount,
/// NET_RAW dropped.
fn without_edits(container: &Container, original: &Container) -> Container {
    let ours = [
        names::ENV_OPENAI_BASE_URL,
        names::ENV_OPENAI_API_KEY,
        names::ENV_ANTHROPIC_BASE_URL,
        names::ENV_ANTHROPIC_API_KEY,
        names::ENV_TOKEN,
        names::ENV_CONTEXT,
        names::ENV_NO_PROXY,
        "no_proxy",
    ];
    let mut container = container.clone();
    if let Some(env) = container.env.as_mut() {
        env.retain(|variable| !ours.contains(&variable.name.as_str()));
    }
    let kept: Vec<EnvVar> = original
        .env
        .iter()
        .flatten()
        .filter(|variable| !ours.contains(&variable.name.as_str()))
        .cloned()
        .collect();
    assert_eq!(container.env.clone().unwrap_or_default(), kept);
    container.env = original.env.clone();
    if let Some(mounts) = container.volume_mounts.as_mut() {
        mounts.retain(|mount| mount.name != names::CONTEXT_VOLUME);
    }
    container.volume_mounts = container.volume_mounts.filter(|mounts| !mounts.is_empty());
    if let Some(context) = container.security_context.as_mut() {
        if let Some(capabilities) = context.capabilities.as_mut() {
            capabilities
                .drop
                .iter_mut()
                .for_each(|drop| drop.retain(|name| name != "NET_RAW"));
            capabilities.drop = capabilities.drop.take().filter(|drop| !drop.is_empty());
        }
        context.capabilities = context
            .capabilities
            .take()
            .filter(|capabilities| *capabilities != Capabilities::default());
    }
    container.security_context = container
        .security_context
        .filter(|context| *context != SecurityContext::default());
    container
}

#[track_caller]
fn check(case: &Path) {
    let text = fs::read_to_string(case.join("pod.yaml")).expect("pod.yaml");
    let pod: Pod = serde_yaml::from_str(&text).expect("pod.yaml is a pod");
    let (file, got) = match inject(&pod, &agent(), &config()) {
        Injection::Injected(patch) => {
            let after = applied(&pod, &patch);
            check_injected(&pod, &typed(after.clone()));
            (
                "expected.yaml",
                serde_yaml::to_string(&after).expect("plain data"),
            )
        }
        Injection::Refused(refusal) => ("refused.txt", format!("{refusal}\n")),
        Injection::AlreadyInjected => panic!("{} is injected already", case.display()),
    };
    expect(here!(), &case.join(file), &got);
}

fn a_dotted_pod_name_is_refused_as_an_identity() {
    let mut pod: Pod = serde_yaml::from_str(
        &fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inject/bare-pod/pod.yaml"),
        )
        .expect("pod.yaml"),
    )
    .expect("pod.yaml is a pod");
    let mut by_pod = agent();
    by_pod.spec.identity = Some(Identity::Pod);
    let is_refused = |pod: &Pod, agent: &Agent| {
        matches!(
            inject(pod, agent, &config()),
            Injection::Refused(Refusal::DottedIdentity { .. })
        )
    };
    assert!(!is_refused(&pod, &by_pod));
    pod.metadata.name = Some("news.shared".to_string());
    assert!(is_refused(&pod, &by_pod));
    assert!(!is_refused(&pod, &agent()));
    pod.metadata.name = None;
    pod.metadata.generate_name = Some("news.shared-".to_string());
    assert!(is_refused(&pod, &by_pod));
}

/// Another webhook adds its containers after ours ran, and the API server calls ours again.
fn a_mesh_that_is_injected_later_is_put_before_the_mediator() {
    let pod: Pod = serde_yaml::from_str(include_str!("inject/full-pod/pod.yaml")).unwrap();
    let Injection::Injected(patch) = inject(&pod, &agent(), &config()) else {
        panic!("injected");
    };
    let mut meshed = typed(applied(&pod, &patch));
    let spec = meshed.spec.as_mut().unwrap();
    let named = |name: &str| Container {
        name: name.to_string(),
        ..Container::default()
    };
    spec.init_containers
        .as_mut()
        .unwrap()
        .push(named("istio-init"));
    spec.containers.push(named("late"));
    let Injection::Injected(patch) = inject(&meshed, &agent(), &config()) else {
        panic!("injected again");
    };
    let again = typed(applied(&meshed, &patch));
    let spec = again.spec.as_ref().unwrap();
    let order: Vec<&str> = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| container.name.as_str())
        .collect();
    assert_eq!(order, ["migrate", "istio-init", "toolcrib-mediator"]);
    assert!(spec.containers.iter().all(|container| {
        container
            .env
            .iter()
            .flatten()
            .any(|variable| variable.name == names::ENV_OPENAI_API_KEY)
    }));
    assert_eq!(
        inject(&again, &agent(), &config()),
        Injection::AlreadyInjected
    );
}

/// A private registry: the pod's own Secrets stay, and a Secret that is listed already is not
/// added again.
fn pull_secrets_are_added_once() {
    let private = InjectConfig {
        image_pull_secrets: vec!["theirs".to_string(), "mediators".to_string()],
        ..config()
    };
    let text = include_str!("inject/bare-pod/pod.yaml");
    for (before, after) in [
        (serde_json::json!(null), ["theirs", "mediators"].as_slice()),
        (
            serde_json::json!([{"name": "own"}, {"name": "theirs"}]),
            &["own", "theirs", "mediators"],
        ),
    ] {
        let mut pod: Value = serde_yaml::from_str(text).expect("a pod");
        pod["spec"]["imagePullSecrets"] = before;
        let pod = typed(pod);
        let Injection::Injected(patch) = inject(&pod, &agent(), &private) else {
            panic!("injected");
        };
        let injected = typed(applied(&pod, &patch));
        let secrets = injected.spec.as_ref().unwrap().image_pull_secrets.iter();
        let names: Vec<&str> = secrets.flatten().map(|secret| &*secret.name).collect();
        assert_eq!(names, after);
        assert_eq!(
            inject(&injected, &agent(), &private),
            Injection::AlreadyInjected
        );
    }
}

/// Without a setting there is no argument, so an installation without export is as before.
fn the_export_of_records_becomes_arguments() {
    let pod: Pod = serde_yaml::from_str(include_str!("inject/bare-pod/pod.yaml")).unwrap();
    let export = |arguments, when_behind| {
        Some(RecordExport {
            arguments,
            when_behind,
        })
    };
    for (export, expected) in [
        (None, &[][..]),
        (export(false, WhenBehind::Drop), &["--export-records"]),
        (
            export(true, WhenBehind::Refuse),
            &[
                "--export-records",
                "--export-arguments",
                "--export-when-behind=Refuse",
            ],
        ),
    ] {
        let config = InjectConfig { export, ..config() };
        let Injection::Injected(patch) = inject(&pod, &agent(), &config) else {
            panic!("injected");
        };
        let injected = typed(applied(&pod, &patch));
        let spec = injected.spec.as_ref().unwrap();
        let mediators = spec.init_containers.iter().flatten();
        let arguments: Vec<&String> = mediators
            .filter(|it| it.name == names::MEDIATOR_CONTAINER)
            .flat_map(|it| it.args.iter().flatten())
            .filter(|argument| argument.starts_with("--export"))
            .collect();
        assert_eq!(arguments, expected);
        assert_eq!(
            inject(&injected, &agent(), &config),
            Injection::AlreadyInjected
        );
    }
}

/// Known edits of other webhooks to our container are accepted.
fn known_edits_of_other_webhooks_are_accepted() {
    let pod: Pod = serde_yaml::from_str(include_str!("inject/bare-pod/pod.yaml")).unwrap();
    let Injection::Injected(patch) = inject(&pod, &agent(), &config()) else {
        panic!("injected");
    };
    let mut edited = typed(applied(&pod, &patch));
    let mediator = &mut edited
        .spec
        .as_mut()
        .unwrap()
        .init_containers
        .as_mut()
        .unwrap()[0];
    mediator.image = Some("mirror.test/toolcrib/sidecar:7".to_string());
    mediator.env.as_mut().unwrap().push(EnvVar {
        name: "AWS_REGION".to_string(),
        value: Some("eu-central-1".to_string()),
        ..EnvVar::default()
    });
    assert_eq!(
        inject(&edited, &agent(), &config()),
        Injection::AlreadyInjected
    );
}

/// The runtime mounts a file at that path, even over the resolver's own.
fn termination_messages_have_a_fixed_path() {
    let pod: Value = serde_yaml::from_str(include_str!("inject/bare-pod/pod.yaml")).expect("a pod");
    let (_, after) = injected(pod);
    for (path, passes) in [("/dev/termination-log", true), ("/etc/resolv.conf", false)] {
        let mut edited = after.clone();
        edited["spec"]["initContainers"][0]["terminationMessagePath"] = path.into();
        let (injection, _) = injected(edited);
        assert_eq!(injection == Injection::AlreadyInjected, passes, "{path}");
    }
}

/// Injects as often as a webhook is called; returns the last outcome and the pod.
#[track_caller]
fn injected(pod: Value) -> (Injection, Value) {
    let pod = typed(pod);
    match inject(&pod, &agent(), &config()) {
        Injection::Injected(patch) => {
            let after = applied(&pod, &patch);
            (Injection::Injected(patch), after)
        }
        other @ (Injection::AlreadyInjected | Injection::Refused(_)) => {
            (other, serde_json::to_value(&pod).expect("plain data"))
        }
    }
}

/// Every other webhook of the folder, before ours and after it: the result is the same pod, one
/// more call changes nothing, and the mediator is behind the mesh and before the rest.
fn the_order_of_webhooks_does_not_change_the_pod() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mutators");
    let text = include_str!("inject/full-pod/pod.yaml");
    let pod: Value = serde_yaml::from_str(text).expect("a pod");
    for mutator in mutators::all(&folder) {
        let mut before = pod.clone();
        mutator.apply(&mut before);
        let (_, before) = injected(before);

        let (_, mut after) = injected(pod.clone());
        mutator.apply(&mut after);
        let (_, after) = injected(after);

        for result in [&before, &after] {
            let (again, _) = injected(result.clone());
            assert_eq!(again, Injection::AlreadyInjected, "{}", mutator.name);
            let mut more = result.clone();
            mutator.apply(&mut more);
            let (again, _) = injected(more);
            // Called once more, the other webhook may edit our containers, which ours accepts.
            assert_eq!(again, Injection::AlreadyInjected, "{}", mutator.name);
            check_order(result, &mutator.name);
        }
    }
}

#[track_caller]
fn check_order(pod: &Value, mutator: &str) {
    let pod = typed(pod.clone());
    let spec = pod.spec.expect("a spec");
    let init: Vec<&str> = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| container.name.as_str())
        .collect();
    let at = |name: &str| init.iter().position(|found| *found == name);
    let mediator = at(names::MEDIATOR_CONTAINER).expect("the mediator");
    let mesh = names::MESH_INIT_CONTAINERS.into_iter().filter_map(at).max();
    if let Some(last) = mesh {
        assert_eq!(mediator, last + 1, "{mutator}: {init:?}");
    }
    for container in &spec.containers {
        let variables = container.env.iter().flatten();
        let ours = variables
            .filter(|variable| variable.name == names::ENV_OPENAI_API_KEY)
            .count();
        let sidecar = names::SIDECAR_CONTAINERS.contains(&container.name.as_str());
        assert_eq!(ours, usize::from(!sidecar), "{mutator}: {}", container.name);
    }
}

fn some_container() -> impl Strategy<Value = Container> {
    let env = prop::collection::vec(
        prop::sample::select(vec![
            "LOG",
            "HTTP_PROXY",
            "https_proxy",
            "NO_PROXY",
            "no_proxy",
        ]),
        0..4,
    );
    let drop = prop::option::of(prop::collection::vec(
        prop::sample::select(vec!["MKNOD", "ALL", "cap_net_raw"]),
        1..3,
    ));
    (env, prop::option::of(drop)).prop_map(|(env, context)| Container {
        env: (!env.is_empty()).then(|| {
            env.iter()
                .map(|name| EnvVar {
                    name: name.to_string(),
                    value: Some("value".to_string()),
                    ..EnvVar::default()
                })
                .collect()
        }),
        security_context: context.map(|drop| SecurityContext {
            run_as_user: Some(7),
            capabilities: drop.map(|drop| Capabilities {
                drop: Some(drop.iter().map(|name| name.to_string()).collect()),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    })
}

fn some_pod() -> impl Strategy<Value = Pod> {
    let init_names = prop::sample::subsequence(
        vec!["first", "istio-init", "second", "istio-proxy", "third"],
        0..5,
    );
    let init = init_names.prop_flat_map(|names| {
        let count = names.len();
        (Just(names), prop::collection::vec(some_container(), count))
    });
    let apps = prop::collection::vec(some_container(), 1..4);
    (init, apps).prop_map(|((init_names, init), apps)| {
        let mut pod: Pod = serde_yaml::from_str(
            "metadata: {labels: {toolcrib.dev/agent: otter}}\nspec: {containers: []}",
        )
        .expect("a pod");
        let spec = pod.spec.as_mut().expect("spec");
        let init: Vec<Container> = init
            .into_iter()
            .zip(init_names)
            .map(|(container, name)| Container {
                name: name.to_string(),
                ..container
            })
            .collect();
        spec.init_containers = (!init.is_empty()).then_some(init);
        spec.containers = apps
            .into_iter()
            .enumerate()
            .map(|(index, container)| Container {
                name: format!("app-{index}"),
                ..container
            })
            .collect();
        pod
    })
}

fn any_pod_is_injected_once_and_keeps_its_containers() {
    proptest!(|(pod in some_pod())| {
        let Injection::Injected(patch) = inject(&pod, &agent(), &config()) else {
            panic!("injected");
        };
        check_injected(&pod, &typed(applied(&pod, &patch)));
    });
}
