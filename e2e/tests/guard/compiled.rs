//! Only the controller may write compiled objects.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, TypeMeta};
use serde_json::{Value, json};
use toolcrib_compile::names;

use crate::pods::NamespaceKind;
use crate::policies::{Guard, eventually};

/// A backup's account, which an admin allows to restore these objects.
const VELERO: &str = "system:serviceaccount:velero:velero";
/// A group with every right, so the policies alone refuse.
const ADMINS: &str = "system:masters";

/// One user's access to objects of one kind.
struct Writer {
    api: Api<DynamicObject>,
    resource: ApiResource,
}

impl Writer {
    fn secrets(client: &Client, guard: &Guard) -> Writer {
        Writer::of(ApiResource::erase::<Secret>(&()), client, guard)
    }

    fn config_maps(client: &Client, guard: &Guard) -> Writer {
        Writer::of(ApiResource::erase::<ConfigMap>(&()), client, guard)
    }

    fn of(resource: ApiResource, client: &Client, guard: &Guard) -> Writer {
        let namespace = guard.namespace(NamespaceKind::Pond);
        let api = Api::namespaced_with(client.clone(), &namespace, &resource);
        Writer { api, resource }
    }

    async fn create(&self, name: &str, labels: &[(&str, &str)]) -> Result<Verdict> {
        let object = DynamicObject {
            types: Some(TypeMeta {
                api_version: self.resource.api_version.clone(),
                kind: self.resource.kind.clone(),
            }),
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(
                    labels
                        .iter()
                        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                        .collect(),
                ),
                ..ObjectMeta::default()
            },
            data: json!({"data": {"agent.json": "e30="}}),
        };
        let answer = self.api.create(&PostParams::default(), &object).await;
        answer_of(answer.map(drop))
    }

    async fn change(&self, name: &str, change: Value) -> Result<Verdict> {
        let params = PatchParams::default();
        let answer = self.api.patch(name, &params, &Patch::Merge(change)).await;
        answer_of(answer.map(drop))
    }

    async fn remove(&self, name: &str) -> Result<()> {
        let params = DeleteParams::default();
        self.api.delete(name, &params).await.context("deleted")?;
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Taken,
    /// Refused with the policies' message.
    Refused,
}

fn answer_of(answer: Result<(), kube::Error>) -> Result<Verdict> {
    match answer {
        Ok(()) => Ok(Verdict::Taken),
        Err(kube::Error::Api(status))
            if status
                .message
                .contains("that the controller compiles for an Agent") =>
        {
            ensure!(status.code == 403, "{}", status.message);
            Ok(Verdict::Refused)
        }
        Err(error) => bail!(error),
    }
}

/// The user of the chart's controller: `helm template` renders into `default`.
fn controller(guard: &Guard) -> String {
    format!(
        "system:serviceaccount:default:{}-toolcrib-controller",
        guard.release()
    )
}

async fn open(test: &str, settings: &[&str]) -> Result<Guard> {
    let guard = Guard::open(test, settings).await?;
    let names = [names::mediator_secret, names::context_config_map];
    let writers = [Writer::secrets, Writer::config_maps];
    for (name, writer) in names.into_iter().zip(writers) {
        let (name, writer) = (name("probe"), writer(&guard.client, &guard));
        eventually("the policies on compiled objects are in force", || async {
            match writer.create(&name, &[]).await? {
                Verdict::Refused => Ok(Some(())),
                Verdict::Taken => {
                    writer.remove(&name).await?;
                    Ok(None)
                }
            }
        })
        .await?;
    }
    Ok(guard)
}

#[tokio::test(flavor = "multi_thread")]
async fn other_users_cannot_create_compiled_objects() -> Result<()> {
    let guard = open("planted", &[]).await?;
    let admin = guard.client.clone();
    let secrets = Writer::secrets(&admin, &guard);
    let config_maps = Writer::config_maps(&admin, &guard);
    let ours = [
        (names::COMPILED_FOR_LABEL, "otter"),
        (names::MANAGED_BY_LABEL, names::FIELD_MANAGER),
    ];
    for name in [
        names::mediator_secret("otter"),
        names::identity_secret("otter"),
    ] {
        ensure!(
            secrets.create(&name, &[]).await? == Verdict::Refused,
            "{name}"
        );
    }
    for name in [
        names::manifest_config_map("otter"),
        names::context_config_map("otter"),
    ] {
        let said = config_maps.create(&name, &[]).await?;
        ensure!(said == Verdict::Refused, "{name}");
    }
    for label in ours {
        for writer in [&secrets, &config_maps] {
            let said = writer.create("heron", &[label]).await?;
            ensure!(said == Verdict::Refused, "{label:?}");
        }
    }
    // Adds the label later, by an update.
    for writer in [&secrets, &config_maps] {
        ensure!(
            writer.create("heron", &[]).await? == Verdict::Taken,
            "heron"
        );
        let (label, value) = ours[0];
        let labelled = json!({"metadata": {"labels": {label: value}}});
        ensure!(writer.change("heron", labelled).await? == Verdict::Refused);
    }
    guard.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_controller_changes_compiled_objects() -> Result<()> {
    let guard = open("compiled", &[]).await?;
    let controller = guard.member(&controller(&guard), ADMINS).await?;
    let admin = guard.client.clone();
    let (secret, config_map) = (
        names::mediator_secret("otter"),
        names::context_config_map("otter"),
    );
    let labels = [
        (names::COMPILED_FOR_LABEL, "otter"),
        (names::MANAGED_BY_LABEL, names::FIELD_MANAGER),
    ];
    for (name, writes, others) in [
        (
            &secret,
            Writer::secrets(&controller, &guard),
            Writer::secrets(&admin, &guard),
        ),
        (
            &config_map,
            Writer::config_maps(&controller, &guard),
            Writer::config_maps(&admin, &guard),
        ),
    ] {
        ensure!(writes.create(name, &labels).await? == Verdict::Taken);
        for change in [
            json!({"data": {"agent.json": "W10="}}),
            json!({"data": null}),
            json!({"immutable": true}),
            json!({"metadata": {"annotations": {names::MANIFEST_DIGEST_ANNOTATION: "sha256:0"}}}),
            json!({"metadata": {"labels": {names::COMPILED_FOR_LABEL: "heron"}}}),
            json!({"metadata": {"labels": {names::MANAGED_BY_LABEL: null}}}),
        ] {
            let said = others.change(name, change.clone()).await?;
            ensure!(said == Verdict::Refused, "{name}: {change}");
        }
        // The garbage collector removes owner references, and an inventory tool labels objects.
        for change in [
            json!({"metadata": {"ownerReferences": null}}),
            json!({"metadata": {"labels": {"team": "reed"}}}),
        ] {
            let said = others.change(name, change.clone()).await?;
            ensure!(said == Verdict::Taken, "{name}: {change}");
        }
        let rotated = json!({"data": {"agent.json": "W10="}, "immutable": null});
        ensure!(writes.change(name, rotated).await? == Verdict::Taken);
        others.remove(name).await?;
    }
    guard.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn other_objects_and_allowed_writers_are_left_alone() -> Result<()> {
    let setting = format!("guard.compiledWriters={{{VELERO}}}");
    let guard = open("restored", &[&setting]).await?;
    let secrets = Writer::secrets(&guard.client, &guard);
    let config_maps = Writer::config_maps(&guard.client, &guard);
    // Each object has Helm's label, and no compiled name of its kind: for example, one of our names
    // on the other kind, or only a part of one.
    let helm = [(names::MANAGED_BY_LABEL, "Helm")];
    for (writer, name) in [
        (&secrets, "toolcrib-certificates"),
        (&secrets, "toolcrib-otter-context"),
        (&secrets, "otter-mediator"),
        (&config_maps, "toolcrib-otter-mediator"),
        (&config_maps, "kube-root-ca.crt.copy"),
    ] {
        ensure!(
            writer.create(name, &helm).await? == Verdict::Taken,
            "{name}"
        );
        let change = json!({"data": {"agent.json": "W10="}});
        ensure!(
            writer.change(name, change).await? == Verdict::Taken,
            "{name}"
        );
    }
    let velero = guard.member(VELERO, ADMINS).await?;
    let name = names::identity_secret("otter");
    ensure!(secrets.create(&name, &[]).await? == Verdict::Refused);
    let restores = Writer::secrets(&velero, &guard);
    ensure!(restores.create(&name, &[]).await? == Verdict::Taken);
    guard.close().await
}
