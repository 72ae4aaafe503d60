//! The connection to the user's cluster, configured as in kubectl.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::GetParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Client, Config, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolcrib_compile::{Inputs, ObjectRef};
use toolcrib_crds::Agent;

use super::read::{ListItem, list};
use super::{Cluster, ReadError, Scope, advice, read_all};
use crate::args::{ClusterArgs, ConnectionArgs, OperatorArgs};
use crate::cluster::tls;
use crate::failure::Failure;

/// A connection to a cluster. Only the first request shows whether it works.
pub struct Session {
    runtime: tokio::runtime::Runtime,
    config: Config,
    client: Client,
    /// Address of the API server, for messages.
    server: String,
    /// The command's namespace; `None`: all namespaces.
    pub namespace: Option<String>,
    default_namespace: String,
    operator: OperatorArgs,
}

/// The sources that a command can read instead of a cluster, for the advice to a user without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutCluster {
    /// Objects from files.
    Files,
    /// For `plan` and `propose`: the objects that are in force now, from files.
    Against,
    /// For `audit` and `propose`: records from files.
    Records,
    /// For `why`: objects from files, beside a record from files.
    Why,
    Nothing,
}

impl WithoutCluster {
    fn advice(self) -> &'static str {
        match self {
            WithoutCluster::Files => "name files with -f, or ",
            WithoutCluster::Against => "name the files that are in force now with --against, or ",
            WithoutCluster::Records => "name files of a record with -f, or ",
            WithoutCluster::Why => "name the files that were applied with --files, or ",
            WithoutCluster::Nothing => "name ",
        }
    }
}

/// Limit on all reads of one command. A large cluster takes less.
const DEADLINE: Duration = Duration::from_secs(60);

/// Limit on a completion: the user waits with an incomplete word.
const PATIENCE: Duration = Duration::from_secs(2);

impl Session {
    pub fn open(
        args: &ClusterArgs,
        operator: &OperatorArgs,
        instead: WithoutCluster,
    ) -> Result<Self, Failure> {
        tls::provide()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let mut config = runtime
            .block_on(config(&args.connection, instead))
            .map_err(Failure::Usage)?;
        if let Some(user) = &args.connection.impersonate {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups = Some(args.connection.impersonate_groups.clone());
        }
        let default_namespace = args
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string();
        let client = client(&runtime, config.clone())?;
        Ok(Self {
            runtime,
            config,
            client,
            server,
            namespace: (!args.all_namespaces).then(|| default_namespace.clone()),
            default_namespace,
            operator: operator.clone(),
        })
    }

    /// Namespace of objects that name none.
    pub fn default_namespace(&self) -> &str {
        &self.default_namespace
    }

    /// Reads the cluster, including the objects that `files` refer to.
    pub fn read(&self, scope: Scope, files: Option<&Inputs>) -> Result<Cluster, Failure> {
        self.ask(read_all(&self.client, &scope, &self.operator, files))?
            .map_err(|broken| self.failure(broken))
    }

    /// Reads all namespaces. If the user may not, it reads `namespaces` alone and adds a note.
    pub fn read_widely(
        &self,
        namespaces: BTreeSet<String>,
        files: Option<&Inputs>,
    ) -> Result<Cluster, Failure> {
        match self.ask(read_all(&self.client, &Scope::All, &self.operator, files))? {
            Ok(cluster) => Ok(cluster),
            Err(ReadError::Api {
                doing,
                error: kube::Error::Api(status),
            }) if status.code == 403 => {
                let listed: Vec<String> = namespaces.iter().cloned().collect();
                let mut cluster = self.read(Scope::Namespaces(namespaces), files)?;
                cluster.notes.insert(format!(
                    "you may not {doing}: only agents of {} are looked at",
                    listed.join(", ")
                ));
                Ok(cluster)
            }
            Err(broken) => Err(self.failure(broken)),
        }
    }

    /// Returns the names of a kind's objects for completion, or none if that takes long.
    pub fn names<K>(&self) -> BTreeSet<String>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let found = self.at_once::<K>(&Scope::of(self.namespace.clone()));
        found.into_iter().map(|found| found.key.name).collect()
    }

    /// Returns the names of the cluster's namespaces, for completion.
    pub fn namespaces(&self) -> BTreeSet<String> {
        let found = self.at_once::<Namespace>(&Scope::All);
        found.into_iter().map(|found| found.key.name).collect()
    }

    /// Returns the tools of agents of this name, withheld ones too, for completion. They come from
    /// status, so no surface is read.
    pub fn tools(&self, agent: Option<&str>) -> BTreeSet<String> {
        let found = self.at_once::<Agent>(&Scope::of(self.namespace.clone()));
        found
            .iter()
            .filter_map(ListItem::ok)
            .filter(|(key, _)| agent.is_none_or(|agent| key.name == agent))
            .filter_map(|(_, agent)| agent.status.as_ref())
            .flat_map(|status| {
                let given = status.tools.iter().map(|tool| &tool.name);
                let withheld = status.withheld.iter().map(|withheld| &withheld.name);
                given.chain(withheld.filter(|what| !what.contains([' ', '*'])))
            })
            .cloned()
            .collect()
    }

    fn at_once<K>(&self, scope: &Scope) -> Vec<ListItem<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let question =
            async { tokio::time::timeout(PATIENCE, list::<K>(&self.client, scope)).await };
        match self.runtime.block_on(question) {
            Ok(Ok(found)) => found,
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns a client that never retries: the usual one retries if a Service has no pod.
    pub(super) fn client_without_retry(&self) -> Result<Client, Failure> {
        let mut config = self.config.clone();
        config.default_retry = false;
        Ok(client(&self.runtime, config)?)
    }

    /// Waits for work that has a limit of its own.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(super) fn ask<T>(&self, question: impl Future<Output = T>) -> Result<T, Failure> {
        let answer = async { tokio::time::timeout(DEADLINE, question).await };
        self.runtime.block_on(answer).map_err(|_| {
            let waited = DEADLINE.as_secs();
            Failure::Failed(anyhow::anyhow!(
                "{} did not answer all questions in {waited} s: narrow them with --namespace, or try again",
                self.server
            ))
        })
    }

    /// Returns an object as the API server has it. `None`: it does not exist.
    pub(super) fn object<K>(&self, key: &ObjectRef) -> Result<Option<Value>, Failure>
    where
        K: Resource<DynamicType = ()>,
    {
        let read = async {
            let request = Request::new(K::url_path(&(), Some(&key.namespace)))
                .get(&key.name, &GetParams::default())
                .map_err(kube::Error::BuildRequest)?;
            self.client().request::<Value>(request).await
        };
        match self.ask(read)? {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => {
                let doing = format!("read {} {key}", K::kind(&()));
                Err(self.failure(ReadError::Api { doing, error }))
            }
        }
    }

    pub(super) fn failure(&self, broken: ReadError) -> Failure {
        match broken {
            ReadError::Api { doing, error } => advice::failure(&self.server, &doing, error),
            ReadError::TooMany(over) => Failure::Failed(anyhow::anyhow!(
                "{over}, which is more than one command reads: narrow them with --namespace"
            )),
            ReadError::NoPolicies(why) => Failure::Failed(anyhow::anyhow!(
                "you may not list the ClusterToolPolicies, and without them the answer could name tools that one of them denies: {why}: ask an admin of the cluster for `list` on clustertoolpolicies, which the chart gives to everybody who may log in unless policies.readable is false"
            )),
        }
    }
}

fn client(runtime: &tokio::runtime::Runtime, config: Config) -> anyhow::Result<Client> {
    let server = config.cluster_url.to_string();
    let _in_runtime = runtime.enter();
    Client::try_from(config).with_context(|| format!("cannot speak to the API server {server}"))
}

/// Reads `--kubeconfig`, else KUBECONFIG, else ~/.kube/config, else the configuration of this pod.
async fn config(args: &ConnectionArgs, instead: WithoutCluster) -> anyhow::Result<Config> {
    let options = KubeConfigOptions {
        context: args.context.clone(),
        cluster: None,
        user: None,
    };
    let kubeconfig = match &args.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let found = match kubeconfig {
        Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
        Err(error) if args.kubeconfig.is_none() && args.context.is_none() => {
            match Config::incluster() {
                Ok(config) => Ok(config),
                Err(_) => Err(error),
            }
        }
        Err(error) => Err(error),
    };
    found.with_context(|| {
        format!(
            "no cluster to ask: {}a kubeconfig with --kubeconfig or KUBECONFIG, and a context of it with --context",
            instead.advice()
        )
    })
}
