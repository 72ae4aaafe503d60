//! Translates Clawdapus pod files to Toolcrib's objects: the pure part of `import`.
//!
//! Reading order: [`yaml`] (values with their lines), [`pod`] (the parts of the file),
//! [`translate`] with [`workloads`] and [`secrets`], [`file`] (the result as text). Not here:
//! reading the files that the pod file names, and compiling the result (`commands::import`).

pub mod describe;
mod effects;
mod file;
mod finding;
mod names;
mod pod;
mod providers;
mod secrets;
mod translate;
mod variables;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use toolcrib_compile::Diagnostic;

pub use file::File;
use finding::Cause;
pub use finding::{Finding, Findings, Weight};
pub use names::dns_label;
pub use pod::{LineValue, PodFile};
pub use providers::KnownProvider;
pub use translate::namespace;
pub use variables::{Values, dotenv};
pub use yaml::YamlError;

/// The inputs of the translation besides the pod file.
#[derive(Debug, Default)]
pub struct ImportOptions {
    /// `None`: the pod's name.
    pub namespace: Option<String>,
    /// Values of the `.env` file.
    pub values: Values,
    pub secret_values: SecretValues,
    /// Descriptors by the service's name in the pod file.
    pub descriptors: BTreeMap<String, Value>,
    /// The files that agents name, by path as written. `Err`: why one could not be read.
    pub files: BTreeMap<String, Result<String, String>>,
    pub providers: Vec<KnownProvider>,
    pub existing: ExistingObjects,
}

/// Whether Secrets hold placeholders or the variables' values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecretValues {
    #[default]
    Placeholders,
    Written,
}

/// Existing objects of the namespace, which are not written again.
#[derive(Debug, Default)]
pub struct ExistingObjects {
    /// Services with their port, if they have only one.
    pub services: BTreeMap<String, Option<u16>>,
    pub surfaces: BTreeSet<String>,
    pub providers: BTreeSet<String>,
}

/// A parsed pod file with its findings.
pub struct PodImport {
    pub pod: PodFile,
    findings: Findings,
}

pub fn read(text: &str) -> Result<PodImport, YamlError> {
    let root = yaml::parse(text)?;
    let mut findings = Findings::default();
    let pod = pod::read(&root, &mut findings)?;
    Ok(PodImport { pod, findings })
}

impl PodImport {
    /// Returns the services' names, each with the path of its descriptor's file, as written.
    pub fn described(&self) -> impl Iterator<Item = (&str, Option<&LineValue<String>>)> {
        let services = self.pod.services.iter();
        services.map(|service| (service.name.value.as_str(), service.describe_file.as_ref()))
    }

    /// Returns the paths of contracts and skills, as written.
    pub fn files(&self) -> BTreeSet<&str> {
        let own = self
            .pod
            .services
            .iter()
            .filter_map(|service| service.agent.as_ref())
            .flat_map(|agent| {
                let contract = agent.contract.as_ref().map(|path| path.value.as_str());
                contract.into_iter().chain(skills(&agent.requests))
            });
        own.chain(skills(&self.pod.defaults)).collect()
    }

    /// Converts a descriptor for a Surface, and adds findings on it.
    pub fn adapt(&mut self, service: &str, descriptor: &mut Value, skill: Option<String>) {
        describe::adapt(descriptor, skill, service, &mut self.findings);
    }

    /// Adds a finding: the descriptor of a service, named in this line, could not be read.
    pub fn undescribed(&mut self, line: usize, service: &str, reason: &str) {
        self.findings.add_cause(
            line,
            Weight::Error,
            format!("descriptor of {service}: {reason}"),
            Cause::Surface(dns_label(service)),
        );
    }

    pub fn translate(mut self, given: &ImportOptions) -> PodObjects {
        let files = translate::translate(&self.pod, given, &mut self.findings);
        PodObjects {
            files,
            findings: self.findings,
        }
    }
}

/// The objects of a pod file, and the faults of the file.
pub struct PodObjects {
    pub files: Vec<File>,
    findings: Findings,
}

impl PodObjects {
    /// Returns the findings, and the diagnostics of the objects that these findings do not cause.
    pub fn report(mut self, diagnostics: Vec<Diagnostic>) -> (Vec<Finding>, Vec<Diagnostic>) {
        let diagnostics = effects::without(&self.files, &mut self.findings, diagnostics);
        (self.findings.into_sorted(), diagnostics)
    }
}

fn skills(requests: &pod::RequestLists) -> impl Iterator<Item = &str> {
    requests
        .skills
        .iter()
        .flatten()
        .filter_map(|entry| match entry {
            pod::Entry::Own(path) => Some(path.value.as_str()),
            pod::Entry::Defaults => None,
        })
}
