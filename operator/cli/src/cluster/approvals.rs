//! Reads ToolApprovals of the cluster, and creates ToolDecisions. Writes nothing else.

use std::time::{Duration, Instant};

use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use toolcrib_compile::{ObjectRef, near};
use toolcrib_crds::{ConditionType, HasConditions, ToolApproval, ToolDecision, ToolDecisionSpec};

use super::{ReadError, Scope, Session};
use crate::failure::Failure;

const POLL: Duration = Duration::from_millis(250);
/// Pause between the end of a watch and the list that begins the next one.
const BEFORE_NEXT_WATCH: Duration = Duration::from_secs(1);
/// The role with the rights that these verbs need.
const ROLE: &str = "the chart's ClusterRole NAME-approver has them, bound in the namespace";

impl Session {
    /// The ToolApprovals of the command's namespaces.
    pub fn approvals(&self) -> Result<Vec<ToolApproval>, Failure> {
        let scope = Scope::of(self.namespace.clone());
        let found = self.ask(super::read::list::<ToolApproval>(self.client(), &scope))?;
        let found = found.map_err(|broken| self.approval_failure(broken))?;
        // One that cannot be decoded was not made by this release, and cannot be decided here.
        Ok(found
            .into_iter()
            .filter_map(|item| item.object.ok())
            .collect())
    }

    pub fn approval(&self, key: &ObjectRef) -> Result<ToolApproval, Failure> {
        let api = self.api::<ToolApproval>(&key.namespace);
        let found = self.ask(api.get_opt(&key.name))?;
        let doing = format!("get ToolApproval {key}");
        let found =
            found.map_err(|error| self.approval_failure(ReadError::Api { doing, error }))?;
        found.ok_or_else(|| self.no_approval(key))
    }

    /// The error about a ToolApproval that does not exist.
    fn no_approval(&self, key: &ObjectRef) -> Failure {
        let others = self.ask(super::read::list::<ToolApproval>(
            self.client(),
            &Scope::of(Some(key.namespace.clone())),
        ));
        let others = others.ok().and_then(Result::ok).unwrap_or_default();
        let names = others.iter().map(|other| &*other.key.name);
        let meant = near::meant_or_known(&key.name, names);
        Failure::Failed(anyhow::anyhow!(
            "there is no ToolApproval {key}: {meant} (finished ones are deleted after an hour, and the record keeps them)"
        ))
    }

    /// The user of this connection, as the API server knows it.
    pub fn user(&self) -> Result<UserInfo, Failure> {
        let api: Api<SelfSubjectReview> = Api::all(self.client().clone());
        let review = SelfSubjectReview::default();
        let answer = self.ask(async { api.create(&PostParams::default(), &review).await })?;
        let answer = answer.map_err(|error| {
            let doing = "ask the API server who you are".to_owned();
            self.failure(ReadError::Api { doing, error })
        })?;
        Ok(answer
            .status
            .and_then(|status| status.user_info)
            .unwrap_or_default())
    }

    /// Creates a ToolDecision; returns it as it is stored.
    pub fn decide(&self, namespace: &str, spec: ToolDecisionSpec) -> Result<ToolDecision, Failure> {
        let doing = format!(
            "decide about ToolApproval {namespace}/{}",
            spec.approval.name
        );
        let mut decision = ToolDecision::new("", spec);
        decision.metadata.name = None;
        decision.metadata.generate_name = Some(format!("{}-", decision.spec.approval.name));
        let api = self.api::<ToolDecision>(namespace);
        let created = self.ask(async { api.create(&PostParams::default(), &decision).await })?;
        created.map_err(|error| self.approval_failure(ReadError::Api { doing, error }))
    }

    /// Waits until the operator says whether the decision counts. `None`: it has not said so.
    pub fn counted(
        &self,
        decision: &ObjectRef,
        deadline: Instant,
    ) -> Result<Option<Condition>, Failure> {
        let api = self.api::<ToolDecision>(&decision.namespace);
        loop {
            let found = self.ask(api.get_opt(&decision.name))?;
            let doing = format!("get ToolDecision {decision}");
            let found =
                found.map_err(|error| self.approval_failure(ReadError::Api { doing, error }))?;
            let conditions = found.as_ref().map_or(&[][..], HasConditions::conditions);
            let mut conditions = conditions.iter();
            let counted = conditions.find(|it| it.type_ == ConditionType::Counted.as_str());
            if let Some(counted) = counted {
                return Ok(Some(counted.clone()));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Calls `show` with each ToolApproval, and again whenever one changes. Never ends by itself.
    pub fn watch_approvals(
        &self,
        mut show: impl FnMut(&ToolApproval) -> anyhow::Result<()>,
    ) -> Result<(), Failure> {
        let api: Api<ToolApproval> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client().clone(), namespace),
            None => Api::all(self.client().clone()),
        };
        self.wait(async {
            loop {
                let list = api.list(&ListParams::default()).await;
                let list = list.map_err(|error| self.watch_failure(error))?;
                for approval in &list.items {
                    show(approval)?;
                }
                let version = list.metadata.resource_version.unwrap_or_default();
                let changes = api.watch(&WatchParams::default(), &version).await;
                let changes = changes.map_err(|error| self.watch_failure(error))?;
                until_it_ends(changes, &mut show).await?;
                tokio::time::sleep(BEFORE_NEXT_WATCH).await;
            }
        })
    }

    fn watch_failure(&self, error: kube::Error) -> Failure {
        let doing = "watch ToolApprovals".to_owned();
        self.approval_failure(ReadError::Api { doing, error })
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client().clone(), namespace)
    }

    fn approval_failure(&self, broken: ReadError) -> Failure {
        match broken {
            ReadError::Api {
                doing,
                error: kube::Error::Api(status),
            } if status.code == 403 && !status.message.contains("toolcrib: ") => {
                Failure::Failed(anyhow::anyhow!(
                    "you may not {doing}: {}: rights on toolapprovals and tooldecisions are needed: {ROLE}",
                    status.message
                ))
            }
            broken @ (ReadError::Api { .. } | ReadError::TooMany(_) | ReadError::NoPolicies(_)) => {
                self.failure(broken)
            }
        }
    }
}

/// Shows the changes until the API server ends the watch, as it does from time to time.
async fn until_it_ends(
    changes: impl Stream<Item = Result<WatchEvent<ToolApproval>, kube::Error>>,
    show: &mut impl FnMut(&ToolApproval) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut changes = std::pin::pin!(changes);
    loop {
        match changes.try_next().await {
            Ok(Some(WatchEvent::Added(approval) | WatchEvent::Modified(approval))) => {
                show(&approval)?;
            }
            // Finished ones are deleted after an hour: they were shown.
            Ok(Some(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => {}
            // The caller lists again.
            Ok(Some(WatchEvent::Error(_)) | None) | Err(_) => return Ok(()),
        }
    }
}
