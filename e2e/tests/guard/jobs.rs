//! The policies allow the Job controller to remove its finalizer, so that the Job ends.

use anyhow::Result;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::pods::{self, Kind, NamespaceKind};
use crate::policies::{Guard, eventually};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_s_pods_lose_their_finalizer_and_the_job_ends() -> Result<()> {
    let guard = Guard::open("jobs", &[]).await?;
    let namespace = guard.namespace(NamespaceKind::Pond);
    let jobs: Api<Job> = Api::namespaced(guard.client.clone(), &namespace);
    let pod = serde_json::to_value(pods::base(Kind::Injected)?)?;
    let mut template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    template["spec"]["restartPolicy"] = json!("Never");
    let job = |name: &str| {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "template": template},
        }))
    };
    for name in ["fails", "deleted"] {
        jobs.create(&PostParams::default(), &job(name)?).await?;
    }
    let pods = guard.pods(&namespace);
    let of = async |job: &str| -> Result<Vec<Pod>> {
        let list = ListParams::default().labels(&format!("job-name={job}"));
        Ok(pods.list(&list).await?.items)
    };
    let tracked = |pod: &Pod| {
        let finalizers = pod.metadata.finalizers.iter().flatten();
        finalizers.into_iter().any(|name| name == TRACKING)
    };

    for name in ["fails", "deleted"] {
        eventually("the Job's pod", || async {
            Ok(of(name).await?.iter().any(tracked).then_some(()))
        })
        .await?;
    }
    // Writes the status as a kubelet would.
    let failed = of("fails").await?;
    let name = failed[0].metadata.name.as_deref().unwrap_or_default();
    let ended = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    pods.patch_status(name, &PatchParams::default(), &ended)
        .await?;
    eventually("the Job failed and let go of its pod", || async {
        let status = jobs.get("fails").await?.status.unwrap_or_default();
        let free = !of("fails").await?.iter().any(tracked);
        Ok((status.failed == Some(1) && free).then_some(()))
    })
    .await?;

    jobs.delete("deleted", &DeleteParams::background()).await?;
    eventually("the deleted Job's pod is gone", || async {
        Ok(of("deleted").await?.is_empty().then_some(()))
    })
    .await?;
    guard.close().await
}
