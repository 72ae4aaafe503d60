//! Other webhooks as data: the known edits of each to a pod. `README.md` has the sources.
//!
//! The pure tests of injection apply them in process, the guard's tests as a second mutating
//! webhook of a real API server.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// One webhook's edit of a pod. Applied a second time it changes nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Mutator {
    #[serde(skip)]
    pub name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub init_containers: ContainerAddition,
    #[serde(default)]
    pub containers: ContainerAddition,
    #[serde(default)]
    volumes: Vec<Value>,
    /// Edits every container, init containers too.
    #[serde(default)]
    every: ContainerEdit,
    /// Prefixes of images, and their replacements.
    #[serde(default)]
    images: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerAddition {
    #[serde(default)]
    pub first: Vec<Value>,
    #[serde(default)]
    pub last: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ContainerEdit {
    #[serde(default)]
    env: Vec<Value>,
    #[serde(default)]
    volume_mounts: Vec<Value>,
    /// Fields that are set if they are missing.
    #[serde(default)]
    security_context: Map<String, Value>,
}

/// Loads all mutators of `folder`, sorted by name.
pub fn all(folder: &Path) -> Vec<Mutator> {
    let mut all: Vec<Mutator> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a file");
            let mutator: Mutator = serde_yaml::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let name = path.file_stem().expect("a name").to_string_lossy();
            Mutator {
                name: name.into_owned(),
                ..mutator
            }
        })
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(!all.is_empty(), "{}", folder.display());
    all
}

impl Mutator {
    pub fn apply(&self, pod: &mut Value) {
        for (field, added) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            for (key, value) in added {
                pod["metadata"][field][key] = json!(value);
            }
        }
        let spec = &mut pod["spec"];
        for list in ["initContainers", "containers"] {
            for container in elements(&mut spec[list]) {
                self.edit(container);
            }
        }
        add(&mut spec["initContainers"], &self.init_containers);
        add(&mut spec["containers"], &self.containers);
        let volumes = ContainerAddition {
            first: Vec::new(),
            last: self.volumes.clone(),
        };
        add(&mut spec["volumes"], &volumes);
    }

    fn edit(&self, container: &mut Value) {
        add_to(&mut container["env"], &self.every.env, "name");
        let mounts = &self.every.volume_mounts;
        add_to(&mut container["volumeMounts"], mounts, "mountPath");
        for (field, value) in &self.every.security_context {
            let context = &mut container["securityContext"];
            if context[field].is_null() {
                context[field] = value.clone();
            }
        }
        let image = container["image"].as_str().unwrap_or_default().to_owned();
        for (prefix, mirror) in &self.images {
            if let Some(rest) = image.strip_prefix(prefix.as_str()) {
                container["image"] = json!(format!("{mirror}{rest}"));
            }
        }
        // Indexing a field creates it.
        if let Some(fields) = container.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
    }
}

fn elements(list: &mut Value) -> impl Iterator<Item = &mut Value> {
    list.as_array_mut().into_iter().flatten()
}

fn add(list: &mut Value, added: &ContainerAddition) {
    if added.first.is_empty() && added.last.is_empty() {
        return;
    }
    let there = list.as_array().cloned().unwrap_or_default();
    let new = |wanted: &&Value| !there.iter().any(|found| found["name"] == wanted["name"]);
    let first = added.first.iter().filter(new).cloned();
    let last = added.last.iter().filter(new).cloned();
    let whole: Vec<Value> = first.chain(there.iter().cloned()).chain(last).collect();
    *list = json!(whole);
}

fn add_to(list: &mut Value, added: &[Value], key: &str) {
    if added.is_empty() {
        return;
    }
    let mut whole = list.as_array().cloned().unwrap_or_default();
    for wanted in added {
        if !whole.iter().any(|found| found[key] == wanted[key]) {
            whole.push(wanted.clone());
        }
    }
    *list = json!(whole);
}
