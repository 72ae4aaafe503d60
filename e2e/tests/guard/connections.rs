//! Connections into running pods: exec and attach.

use anyhow::{Context, Result, bail, ensure};
use http::Request;

use crate::pods::{Kind, NamespaceKind};
use crate::policies::{Guard, eventually};

/// Requests a connection. Returns the API server's error if the policies allow it, since the tests'
/// pods have no node, and `None` if the policies refuse it.
async fn ask(guard: &Guard, pod: Kind, how: &str) -> Result<Option<String>> {
    let namespace = guard.namespace(NamespaceKind::Pond);
    let pod = pod.name();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/{how}");
    let request = Request::get(path).body(Vec::new())?;
    match guard.client.request_text(request).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            ensure!(
                status.message.contains("toolcrib: nobody may exec into"),
                "{how}: {}",
                status.message
            );
            Ok(None)
        }
        Err(kube::Error::Api(status)) => Ok(Some(status.message)),
        Err(error) => Err(error).with_context(|| how.to_owned()),
        Ok(text) => bail!("{how}: connected to a pod that runs nowhere: {text}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_and_attach_to_the_mediator_are_refused() -> Result<()> {
    let guard = Guard::open("connect", &[]).await?;
    let program = "exec?command=/toolcrib-sidecar&stdout=true&container=toolcrib-mediator";
    eventually("the policy is in force", || async {
        let said = ask(&guard, Kind::Injected, program).await?;
        Ok(said.is_none().then_some(()))
    })
    .await?;
    let attach = "attach?stdout=true&container=toolcrib-mediator";
    let said = ask(&guard, Kind::Injected, attach).await?;
    ensure!(said.is_none(), "attach: {said:?}");

    // A user with these rights may exec into the agent's own container, and into other pods.
    for (pod, how) in [
        (
            Kind::Injected,
            "exec?command=ls&stdout=true&container=runner",
        ),
        // The API server chooses the only container that is not an init container.
        (Kind::Injected, "exec?command=ls&stdout=true"),
        (Kind::Injected, "attach?stdout=true&container=runner"),
        (Kind::Plain, "exec?command=ls&stdout=true"),
    ] {
        let said = ask(&guard, pod, how).await?;
        let said = said.with_context(|| format!("refused: {how}"))?;
        ensure!(
            said.contains("does not have a host assigned"),
            "{how}: {said}"
        );
    }
    guard.close().await
}
