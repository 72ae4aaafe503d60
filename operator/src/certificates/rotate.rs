//! Rotates the certificates: reads and writes their Secret and the webhooks' `caBundle`. Only the
//! leader runs this.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::{ByteString, ClusterResourceScope};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use rustls::sign::CertifiedKey;
use serde::de::DeserializeOwned;
use toolcrib_compile::names;
use toolcrib_manifest::SecretText;

use super::issue::{self, IssueError, Pair};
use super::path::{self, Configuration, NoRandomness};
use super::plan::{self, StoredCertificates};

/// Keys of the Secret. The webhook mounts the first three.
pub const BUNDLE: &str = "ca.crt";
pub const WEBHOOK_CERTIFICATE: &str = "tls.crt";
pub const WEBHOOK_KEY: &str = "tls.key";
const LINK_CERTIFICATE: &str = "link.crt";
const LINK_KEY: &str = "link.key";

#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error("cannot read the certificate Secret")]
    Read(#[source] kube::Error),
    #[error("cannot write the certificate Secret")]
    Write(#[source] kube::Error),
    #[error("cannot issue a certificate")]
    Issue(#[from] IssueError),
    #[error("cannot read a webhook configuration")]
    ReadWebhook(#[source] kube::Error),
    #[error("cannot patch caBundle and path of a webhook configuration")]
    WriteWebhook(#[source] kube::Error),
    #[error("cannot list the webhook's pods")]
    ListWebhooks(#[source] kube::Error),
    #[error(transparent)]
    Path(#[from] NoRandomness),
    #[error("cannot load the new certificate")]
    Unusable,
}

/// The Secret and the webhook configuration that are written, and the hosts to certify.
#[derive(Clone, Debug)]
pub struct CertificateTargets {
    pub namespace: String,
    pub secret: String,
    pub webhook_config: Option<String>,
    /// Label selector of the webhook's pods. Empty: all running pods read their path from the
    /// configuration.
    pub webhook_pods: String,
    pub webhook_hosts: Vec<String>,
    pub link_hosts: Vec<String>,
}

/// The certificates in use, for the listeners.
#[derive(Clone, Debug)]
pub struct Material {
    /// All authorities, newest first, PEM.
    pub bundle: String,
    pub link: Arc<CertifiedKey>,
    /// True if the Secret or a webhook configuration was written.
    pub renewed: bool,
}

/// Reads the Secret, renews certificates that are due, and returns the ones to use. The chart
/// creates the Secret empty, so the operator needs no right to create one, and uninstalling the
/// chart removes it.
pub async fn rotate(
    client: &Client,
    targets: &CertificateTargets,
    now: Timestamp,
) -> Result<Material, RotateError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &targets.namespace);
    let secret = api.get(&targets.secret).await.map_err(RotateError::Read)?;
    let content = Content::read(&secret);
    let plan = plan::plan(
        &content.stored,
        &targets.webhook_hosts,
        &targets.link_hosts,
        now,
    );
    let renewed = !plan.nothing_to_do();
    let content = if renewed {
        let content = content.renewed(&plan, targets, now)?;
        write(&api, targets, secret, &content).await?;
        tracing::info!(
            signer = plan.signer,
            authority = plan.add.is_some(),
            webhook = plan.issue_webhook,
            link = plan.issue_link,
            "certificates renewed"
        );
        content
    } else {
        content
    };
    let bundle = content.bundle();
    if let Some(name) = &targets.webhook_config {
        // The path changes with each new certificate of the webhook, so a leaked path does not stay
        // valid.
        let wanted = WebhookValues {
            bundle: &bundle,
            another_path: renewed && plan.issue_webhook,
        };
        publish::<MutatingWebhookConfiguration>(client, targets, name, wanted).await?;
        publish::<ValidatingWebhookConfiguration>(client, targets, name, wanted).await?;
    }
    let link = content
        .link
        .as_ref()
        .and_then(issue::certified)
        .ok_or(RotateError::Unusable)?;
    Ok(Material {
        bundle,
        link,
        renewed,
    })
}

/// The content of the Secret. A damaged entry counts as missing and is issued again.
#[derive(Default)]
struct Content {
    stored: StoredCertificates,
    authorities: BTreeMap<String, Pair>,
    webhook: Option<Pair>,
    link: Option<Pair>,
}

impl Content {
    fn read(secret: &Secret) -> Self {
        let mut stored: StoredCertificates = secret
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(names::CERTIFICATES_ANNOTATION))
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let text = |key: &str| {
            let bytes = secret.data.as_ref()?.get(key)?;
            String::from_utf8(bytes.0.clone()).ok()
        };
        let pair = |certificate: &str, key: &str| {
            let pair = Pair {
                certificate: text(certificate)?,
                key: SecretText::new(text(key)?),
            };
            issue::certified(&pair).is_some().then_some(pair)
        };
        let authorities: BTreeMap<String, Pair> = stored
            .authorities
            .iter()
            .filter_map(|authority| {
                let name = &authority.name;
                Some((
                    name.clone(),
                    pair(&format!("{name}.crt"), &format!("{name}.key"))?,
                ))
            })
            .collect();
        stored
            .authorities
            .retain(|authority| authorities.contains_key(&authority.name));
        let webhook = pair(WEBHOOK_CERTIFICATE, WEBHOOK_KEY);
        let link = pair(LINK_CERTIFICATE, LINK_KEY);
        let usable = |serving: &plan::ServingCertificate, pair: &Option<Pair>| {
            pair.is_some() && authorities.contains_key(&serving.signed_by)
        };
        stored.webhook = stored.webhook.filter(|serving| usable(serving, &webhook));
        stored.link = stored.link.filter(|serving| usable(serving, &link));
        Self {
            stored,
            authorities,
            webhook,
            link,
        }
    }

    fn renewed(
        mut self,
        plan: &plan::Plan,
        targets: &CertificateTargets,
        now: Timestamp,
    ) -> Result<Self, RotateError> {
        if let Some(new) = &plan.add {
            self.authorities
                .insert(new.name.clone(), issue::authority(new)?);
            self.stored.authorities.push(new.clone());
        }
        for name in &plan.drop {
            self.authorities.remove(name);
            self.stored
                .authorities
                .retain(|authority| authority.name != *name);
        }
        let signer = self
            .stored
            .authorities
            .iter()
            .find(|authority| authority.name == plan.signer)
            .cloned()
            .ok_or(RotateError::Unusable)?;
        let key = self
            .authorities
            .get(&signer.name)
            .ok_or(RotateError::Unusable)?
            .key
            .clone();
        let issue =
            |hosts: &[String]| -> Result<(Option<Pair>, Option<plan::ServingCertificate>), RotateError> {
                let pair = issue::serving(&signer, &key, hosts, now)?;
                let not_after = now
                    .checked_add(
                        jiff::SignedDuration::try_from(plan::SERVING_LIFE)
                            .expect("a constant within range"),
                    )
                    .unwrap_or(Timestamp::MAX);
                let serving = plan::ServingCertificate {
                    signed_by: signer.name.clone(),
                    not_after,
                    hosts: hosts.to_vec(),
                };
                Ok((Some(pair), Some(serving)))
            };
        if plan.issue_webhook {
            (self.webhook, self.stored.webhook) = issue(&targets.webhook_hosts)?;
        }
        if plan.issue_link {
            (self.link, self.stored.link) = issue(&targets.link_hosts)?;
        }
        Ok(self)
    }

    fn bundle(&self) -> String {
        self.stored
            .authorities
            .iter()
            .rev()
            .filter_map(|authority| self.authorities.get(&authority.name))
            .map(|pair| pair.certificate.as_str())
            .collect()
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::from([(BUNDLE.to_owned(), bytes(&self.bundle()))]);
        let mut put = |certificate: String, key: String, pair: &Pair| {
            data.insert(certificate, bytes(&pair.certificate));
            data.insert(key, bytes(pair.key.expose()));
        };
        for (name, pair) in &self.authorities {
            put(format!("{name}.crt"), format!("{name}.key"), pair);
        }
        if let Some(pair) = &self.webhook {
            put(WEBHOOK_CERTIFICATE.to_owned(), WEBHOOK_KEY.to_owned(), pair);
        }
        if let Some(pair) = &self.link {
            put(LINK_CERTIFICATE.to_owned(), LINK_KEY.to_owned(), pair);
        }
        data
    }
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

async fn write(
    api: &Api<Secret>,
    targets: &CertificateTargets,
    mut secret: Secret,
    content: &Content,
) -> Result<(), RotateError> {
    let stored = serde_json::to_string(&content.stored).expect("dates and names are JSON");
    secret
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(names::CERTIFICATES_ANNOTATION.to_owned(), stored);
    secret.data = Some(content.data());
    // Carries the resourceVersion that was read, so newer keys of another leader are not
    // overwritten.
    api.replace(&targets.secret, &PostParams::default(), &secret)
        .await
        .map(drop)
        .map_err(RotateError::Write)
}

/// The values that every webhook of a configuration must have.
#[derive(Clone, Copy)]
struct WebhookValues<'a> {
    bundle: &'a str,
    /// Replaces the path even if it is secret already.
    another_path: bool,
}

/// Sets `caBundle` and path on every webhook of the configuration that differs.
async fn publish<K>(
    client: &Client,
    targets: &CertificateTargets,
    name: &str,
    wanted: WebhookValues<'_>,
) -> Result<(), RotateError>
where
    K: Configuration
        + Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let kind = K::kind(&());
    let Some(found) = api.get_opt(name).await.map_err(RotateError::ReadWebhook)? else {
        tracing::warn!(name, %kind, "webhook configuration not found");
        return Ok(());
    };
    let entries = found.entries();
    let ours = is_path_ours(&found);
    let plain = |path: &str| ours && (wanted.another_path || !path::is_secret(K::PLAIN, path));
    let path = match entries.iter().any(|entry| plain(entry.path)) {
        true if all_know_paths(client, targets).await? => Some(path::secret(K::PLAIN)?),
        true => {
            tracing::info!(name, %kind, "webhook path kept: pods of an earlier release still run");
            None
        }
        false => None,
    };
    let mut wrong: Vec<serde_json::Value> = Vec::new();
    for entry in &entries {
        let mut config = serde_json::Map::new();
        if entry.bundle != Some(wanted.bundle.as_bytes()) {
            config.insert("caBundle".into(), serde_json::json!(bytes(wanted.bundle)));
        }
        if let Some(path) = path.as_deref().filter(|_| plain(entry.path)) {
            config.insert("service".into(), serde_json::json!({ "path": path }));
        }
        if !config.is_empty() {
            wrong.push(serde_json::json!({ "name": entry.name, "clientConfig": config }));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    // A strategic merge patch merges the list by name and leaves other webhooks unchanged.
    let patch = serde_json::json!({
        "metadata": { "resourceVersion": found.meta().resource_version },
        "webhooks": wrong,
    });
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    api.patch(name, &params, &Patch::Strategic(&patch))
        .await
        .map_err(RotateError::WriteWebhook)?;
    tracing::info!(name, %kind, path = path.is_some(), "webhook configuration patched");
    Ok(())
}

/// Whether the chart leaves the path to the controller. The chart of an earlier release, which a
/// rollback restores, sets the path itself, and its webhook pods answer only that path.
fn is_path_ours(configuration: &impl Resource) -> bool {
    let annotations = configuration.meta().annotations.as_ref();
    annotations
        .and_then(|all| all.get(names::WEBHOOK_PATH_ANNOTATION))
        .map(String::as_str)
        == Some(names::WEBHOOK_PATH_NAMED)
}

/// Whether every running webhook pod reads its paths from the configurations. During an upgrade,
/// older pods still answer only `/inject` and `/validate`.
async fn all_know_paths(
    client: &Client,
    targets: &CertificateTargets,
) -> Result<bool, RotateError> {
    if targets.webhook_pods.is_empty() {
        return Ok(true);
    }
    let api: Api<Pod> = Api::namespaced(client.clone(), &targets.namespace);
    let (label, value) = (names::WEBHOOK_PATH_LABEL, names::WEBHOOK_PATH_NAMED);
    let others = ListParams::default()
        .labels(&format!("{},{label}!={value}", targets.webhook_pods))
        // Pods that have ended do not matter.
        .fields("status.phase!=Succeeded,status.phase!=Failed")
        .limit(1);
    let pods = api
        .list_metadata(&others)
        .await
        .map_err(RotateError::ListWebhooks)?;
    Ok(pods.items.is_empty())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn targets() -> CertificateTargets {
        CertificateTargets {
            namespace: "pond".into(),
            secret: "certificates".into(),
            webhook_config: None,
            webhook_pods: String::new(),
            webhook_hosts: vec!["webhook.pond.svc".into()],
            link_hosts: vec!["link.pond.svc".into()],
        }
    }

    fn as_secret(content: &Content) -> Secret {
        Secret {
            metadata: ObjectMeta {
                annotations: Some(BTreeMap::from([(
                    names::CERTIFICATES_ANNOTATION.to_owned(),
                    serde_json::to_string(&content.stored).unwrap(),
                )])),
                ..ObjectMeta::default()
            },
            data: Some(content.data()),
            ..Secret::default()
        }
    }

    fn renew(content: Content, now: Timestamp) -> (Content, plan::Plan) {
        let targets = targets();
        let plan = plan::plan(
            &content.stored,
            &targets.webhook_hosts,
            &targets.link_hosts,
            now,
        );
        (content.renewed(&plan, &targets, now).unwrap(), plan)
    }

    #[test]
    fn a_written_secret_is_read_back_and_a_damaged_entry_is_issued_again() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (made, _) = renew(Content::default(), now);
        let mut secret = as_secret(&made);
        let (read, plan) = renew(Content::read(&secret), now);
        assert!(plan.nothing_to_do());
        assert_eq!(read.stored, made.stored);

        // The webhook's key is replaced with the link's.
        let data = secret.data.as_mut().unwrap();
        let link_key = data[LINK_KEY].clone();
        data.insert(WEBHOOK_KEY.to_owned(), link_key);
        let (_, plan) = renew(Content::read(&secret), now);
        assert!(plan.issue_webhook && !plan.issue_link && plan.add.is_none());

        // The authority's key is lost: all certificates are issued again.
        let name = made.stored.authorities[0].name.clone();
        secret.data.as_mut().unwrap().remove(&format!("{name}.key"));
        let (_, plan) = renew(Content::read(&secret), now);
        assert!(plan.add.is_some() && plan.issue_webhook && plan.issue_link);
    }
}
