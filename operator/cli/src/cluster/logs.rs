//! The mediators' logs, read through the API server with the user's own rights.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures::{AsyncReadExt as _, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use toolcrib_compile::names;

use super::{PodFacts, Session, pods};
use crate::failure::Failure;

/// Most bytes of one container's log. The kubelet keeps 10 MiB in its newest file by default.
const MAX_LOG: i64 = 50 * 1024 * 1024;
/// Logs that are read at once.
const AT_ONCE: usize = 8;
/// Limit on one pod's logs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A part of a pod's log.
pub enum LogPart<'a> {
    Bytes(&'a [u8]),
    /// The log ended. An error: only a part of it was read.
    End(Result<(), String>),
}

impl Session {
    /// Lists the pods that have a mediator. `agent`: only pods of this one.
    pub fn mediated_pods(&self, agent: Option<&str>) -> Result<Vec<PodFacts>, Failure> {
        let scope = super::Scope::of(self.namespace.clone());
        let mut notes = std::collections::BTreeSet::new();
        let listed = self
            .ask(pods::list(self.client(), &scope, &mut notes))?
            .map_err(|broken| self.failure(broken))?;
        let Some(mut listed) = listed else {
            let notes: Vec<String> = notes.into_iter().collect();
            return Err(Failure::Failed(anyhow::anyhow!("{}", notes.join("; "))));
        };
        listed.retain(|pod| pod.mediated && agent.is_none_or(|agent| pod.agent.name == agent));
        Ok(listed)
    }

    /// Reads the mediators' logs of these pods: of the container before the last restart, and of the
    /// running one. `part` gets the pod's index with each part, `progress` the number of pods that
    /// are read.
    pub fn mediator_logs(
        &self,
        pods: &[PodFacts],
        part: impl FnMut(usize, LogPart<'_>),
        progress: impl Fn(usize),
    ) {
        let part = RefCell::new(part);
        let done = Cell::new(0);
        self.wait(stream::iter(pods.iter().enumerate()).for_each_concurrent(
            AT_ONCE,
            |(index, pod)| {
                let (part, done, progress) = (&part, &done, &progress);
                async move {
                    let read = tokio::time::timeout(PATIENCE, self.one_log(index, pod, part)).await;
                    let waited = PATIENCE.as_secs();
                    let end = read.unwrap_or_else(|_| Err(format!("no end after {waited} s")));
                    (part.borrow_mut())(index, LogPart::End(end));
                    done.set(done.get() + 1);
                    progress(done.get());
                }
            },
        ));
    }

    async fn one_log(
        &self,
        index: usize,
        pod: &PodFacts,
        part: &RefCell<impl FnMut(usize, LogPart<'_>)>,
    ) -> Result<(), String> {
        let api: Api<Pod> = Api::namespaced(self.client().clone(), &pod.pod.namespace);
        for previous in [true, false] {
            let params = LogParams {
                container: Some(names::MEDIATOR_CONTAINER.to_owned()),
                previous,
                limit_bytes: Some(MAX_LOG),
                ..LogParams::default()
            };
            let mut log = match api.log_stream(&pod.pod.name, &params).await {
                Ok(log) => log,
                // There is no earlier container.
                Err(kube::Error::Api(status)) if previous && [400, 404].contains(&status.code) => {
                    continue;
                }
                Err(kube::Error::Api(status)) => return Err(status.message.clone()),
                Err(error) => return Err(error.to_string()),
            };
            let mut chunk = vec![0; 64 * 1024];
            let mut length = 0;
            loop {
                let read = log
                    .read(&mut chunk)
                    .await
                    .map_err(|error| error.to_string())?;
                if read == 0 {
                    break;
                }
                length += read as i64;
                (part.borrow_mut())(index, LogPart::Bytes(&chunk[..read]));
            }
            // A container may end in mid-line.
            (part.borrow_mut())(index, LogPart::Bytes(b"\n"));
            if length >= MAX_LOG {
                return Err(format!("only its first {} MiB were read", MAX_LOG >> 20));
            }
        }
        Ok(())
    }
}
