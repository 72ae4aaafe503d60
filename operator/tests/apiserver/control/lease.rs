//! The Lease: created if it is missing, and removed with the installation.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams};

use crate::support::harness::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_lease_is_created_and_removed_with_the_installation() {
    let mut harness = Harness::new().await;
    let leases: Api<Lease> = harness.api(&harness.system);
    let gone = || async {
        let params = DeleteParams::default();
        leases.delete("controller", &params).await.expect("deleted");
    };
    let led = || async {
        let lease = leases.get_opt("controller").await.ok()??;
        let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
        (holder == "heron").then_some(lease)
    };
    gone().await;
    harness.start("heron");
    let lease = harness.eventually("heron leads", led).await;
    let secrets: Api<Secret> = harness.api(&harness.system);
    let certificates = secrets.get("certificates").await.expect("the Secret");
    let owners = lease.metadata.owner_references.expect("an owner");
    let [owner] = &owners[..] else {
        panic!("{owners:?}")
    };
    assert_eq!(Some(&owner.uid), certificates.metadata.uid.as_ref());

    // If the Lease is deleted, the leader creates it again and keeps leading.
    gone().await;
    harness.eventually("heron leads again", led).await;
    harness.end().await;
}
