//! Reads the objects that a command works on, from files or from the cluster.

pub mod admitted;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use toolcrib_compile::{
    Fetch, Key, Kind, LoadResult, ObjectRef, Objects as _, PodPort, Presence, ServiceFacts,
    Settings, load_into, near, own_service_of_url,
};

use self::admitted::admitted;
use crate::args::{AssumedArgs, ConnectionArgs, FileArgs, SourceArgs};
use crate::cluster::PodFacts;
use crate::failure::Failure;
use crate::{cluster, operator};

/// Limit on all files together, in bytes: larger than any set of manifests, small enough for
/// memory.
const MAX_BYTES: u64 = 64 << 20;

/// Namespace of objects that name none, as in kubectl.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The objects that a command works on.
pub struct Objects {
    pub loaded: LoadResult,
    /// The namespace that the answer is limited to.
    pub namespace: Option<String>,
    pub from: ObjectSource,
}

pub enum ObjectSource {
    Files,
    /// The cluster, with the pods of agents if the user may list them.
    Cluster(Option<Vec<PodFacts>>),
}

impl ObjectSource {
    /// Returns the words that messages use for the source.
    pub fn place(&self) -> &'static str {
        match self {
            ObjectSource::Files => "in the files",
            ObjectSource::Cluster(_) => "in the cluster",
        }
    }

    pub fn pods(&self) -> &[PodFacts] {
        match self {
            ObjectSource::Files => &[],
            ObjectSource::Cluster(pods) => pods.as_deref().unwrap_or_default(),
        }
    }
}

/// The objects that an answer about one namespace of a cluster needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectScope {
    /// The objects of the namespace, for questions about its agents.
    Namespace,
    /// Agents of all namespaces too, for questions about the users of its surfaces.
    Everybody,
}

/// Reads the files of `-f`; without them, the cluster of the user's kubeconfig.
pub fn objects(args: &SourceArgs, asked: ObjectScope) -> Result<Objects, Failure> {
    objects_or(args, asked, cluster::WithoutCluster::Files)
}

/// Does the same as [`objects`], with the advice for a user without a cluster.
pub fn objects_or(
    args: &SourceArgs,
    asked: ObjectScope,
    instead: cluster::WithoutCluster,
) -> Result<Objects, Failure> {
    let named = &args.cluster;
    if args.paths.is_empty() {
        let session = cluster::Session::open(named, &args.operator, instead)?;
        let namespace = session.namespace.clone();
        let read = match (asked, &namespace) {
            (ObjectScope::Everybody, Some(one)) => {
                session.read_widely(BTreeSet::from([one.clone()]), None)?
            }
            (ObjectScope::Everybody, None) | (ObjectScope::Namespace, _) => {
                session.read(cluster::Scope::of(namespace.clone()), None)?
            }
        };
        read.print_notes();
        return Ok(Objects {
            loaded: read.loaded,
            namespace,
            from: ObjectSource::Cluster(read.pods),
        });
    }
    if named.connection != ConnectionArgs::default() {
        return Err(Failure::usage(
            "--context, --kubeconfig and --as choose a cluster, and -f reads files: leave one out",
        ));
    }
    let settings = operator::settings(&args.operator);
    let mut loaded = loaded_into(&args.paths, named.namespace.as_deref(), settings)?;
    assume(&mut [&mut loaded.inputs], args.assumed)?;
    Ok(Objects {
        loaded,
        namespace: named.namespace.clone(),
        from: ObjectSource::Files,
    })
}

/// Reads and loads all files of `-f`. A document that is not an object at all is an error: an
/// answer from half of the files would be wrong, and nothing would show it.
pub fn loaded(files: &FileArgs) -> Result<LoadResult, Failure> {
    loaded_into(&files.paths, None, operator::settings(&files.operator))
}

/// Does the same as [`loaded`], with a namespace for objects that name none.
pub fn loaded_into(
    paths: &[PathBuf],
    namespace: Option<&str>,
    settings: Settings,
) -> Result<LoadResult, Failure> {
    let texts = read(paths).map_err(Failure::Usage)?;
    let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE);
    let loaded = admitted(load_into(texts, settings, namespace));
    if let Some(error) = loaded.errors.first() {
        return Err(Failure::usage(format_args!(
            "{}: {}",
            error.origin, error.message
        )));
    }
    Ok(loaded)
}

/// Adds the objects that are assumed to exist and are on none of these sides.
pub fn assume(
    sides: &mut [&mut toolcrib_compile::Inputs],
    assumed: AssumedArgs,
) -> Result<(), Failure> {
    // Services first: compile does not ask for the Secret of a Surface whose Service is missing.
    if assumed.services {
        assume_services(sides);
    }
    if assumed.secrets {
        assume_secrets(sides)?;
    }
    Ok(())
}

/// Adds the Secrets that objects refer to and that are on none of these sides, in the form that
/// their users need: Secrets are often kept apart from the files.
fn assume_secrets(sides: &mut [&mut toolcrib_compile::Inputs]) -> Result<(), Failure> {
    // No bound is needed: nothing is read for a key, and the files with the keys are in memory.
    let mut fetch = Fetch::new(usize::MAX);
    loop {
        for (side, inputs) in sides.iter().enumerate() {
            for subject in inputs.subjects() {
                fetch.evaluate(side, &**inputs, &subject);
            }
        }
        let mut wanted = BTreeSet::new();
        for key in fetch.missing().map_err(anyhow::Error::from)? {
            if let Key::Object(Kind::Secret, secret) = key
                && sides.iter().all(|inputs| !inputs.knows_secret(&secret))
            {
                wanted.insert(secret);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        for inputs in sides.iter_mut() {
            for secret in &wanted {
                let why = "is not among the files".to_owned();
                inputs.set_secret(secret.clone(), Presence::Unknown(why));
            }
        }
    }
}

/// Adds the Services that Surfaces and ModelProviders name: another team may keep them. Their pods are unknown, so a
/// NetworkPolicy is not narrowed to them.
fn assume_services(sides: &mut [&mut toolcrib_compile::Inputs]) {
    let mut wanted: BTreeMap<ObjectRef, ServiceFacts> = BTreeMap::new();
    let mut want = |(service, port): (ObjectRef, u16)| {
        let ports = &mut wanted.entry(service).or_default().ports;
        ports.insert(port, PodPort::Number(port));
    };
    for inputs in sides.iter() {
        let of_url = |key: &ObjectRef, url: &str| {
            own_service_of_url(&key.namespace, url, &inputs.settings().cluster_domain)
        };
        for (key, surface) in inputs.surfaces() {
            if let Some(target) = &surface.spec.service {
                let service = ObjectRef::new(key.namespace.clone(), target.name.clone());
                want((service, target.port));
            }
            let url = surface.spec.url.as_deref();
            url.and_then(|url| of_url(key, url))
                .into_iter()
                .for_each(&mut want);
        }
        for (key, provider) in inputs.providers() {
            let urls = provider.spec.endpoints.iter().map(|it| &*it.url);
            let urls = urls.chain(provider.spec.proxy.as_deref());
            urls.filter_map(|url| of_url(key, url)).for_each(&mut want);
        }
    }
    for (service, facts) in wanted {
        if sides
            .iter()
            .all(|inputs| inputs.service(&service).is_none())
        {
            for inputs in sides.iter_mut() {
                inputs.set_service(service.clone(), facts.clone());
            }
        }
    }
}

/// Finds the only agent of that name, in `namespace` if that is given.
pub fn find_agent(
    loaded: &LoadResult,
    name: &str,
    namespace: Option<&str>,
    from: &ObjectSource,
) -> Result<ObjectRef, Failure> {
    let agents = loaded.inputs.agents().map(|(key, _)| key);
    find(loaded, Kind::Agent, agents, name, namespace, from)
}

/// Finds the only surface of that name.
pub fn find_surface(
    loaded: &LoadResult,
    name: &str,
    namespace: Option<&str>,
    from: &ObjectSource,
) -> Result<ObjectRef, Failure> {
    let surfaces = loaded.inputs.surfaces().map(|(key, _)| key);
    find(loaded, Kind::Surface, surfaces, name, namespace, from)
}

fn find<'a>(
    loaded: &LoadResult,
    kind: Kind,
    all: impl Iterator<Item = &'a ObjectRef>,
    name: &str,
    namespace: Option<&str>,
    from: &ObjectSource,
) -> Result<ObjectRef, Failure> {
    let (what, place) = (kind.name().to_lowercase(), from.place());
    let all: BTreeSet<&ObjectRef> = all.collect();
    let fits = |key: &&ObjectRef| {
        key.name == name && namespace.is_none_or(|namespace| key.namespace == namespace)
    };
    let found: Vec<&&ObjectRef> = all.iter().filter(|key| fits(key)).collect();
    match found.as_slice() {
        [key] => Ok((**key).clone()),
        [] => {
            let mut unusable = loaded.inputs.undecodable();
            if let Some((_, key, why)) =
                unusable.find(|(other, key, _)| *other == kind && fits(key))
            {
                return Err(Failure::usage(format_args!(
                    "the {what} {key} {place} cannot be used: {why}"
                )));
            }
            let known: Vec<String> = all.iter().map(ToString::to_string).collect();
            let known = match (known.is_empty(), namespace) {
                (false, _) => format!("there are: {}", known.join(", ")),
                (true, None) => "there are: none".to_owned(),
                (true, Some(namespace)) => {
                    format!("there are none in namespace {namespace}: is it spelt right?")
                }
            };
            let meant = near::other(name, all.iter().map(|key| &*key.name));
            Err(Failure::usage(format_args!(
                "no {what} {name} {place}{meant}; {known}"
            )))
        }
        _ => Err(Failure::usage(format_args!(
            "{what}s named {name} are in several namespaces: add --namespace"
        ))),
    }
}

/// Checks that the files are there. A command that also reads a cluster does so first: otherwise
/// a cluster that cannot be reached would hide a misspelt path.
pub fn exist(paths: &[PathBuf]) -> Result<(), Failure> {
    for path in paths.iter().filter(|path| path.as_os_str() != "-") {
        fs::metadata(path).map_err(|error| Failure::Usage(unreadable(path, error)))?;
    }
    Ok(())
}

/// The error of a path that a user named.
pub fn unreadable(path: &Path, error: std::io::Error) -> anyhow::Error {
    let shown = path.display();
    match error.kind() == std::io::ErrorKind::NotFound {
        true => anyhow::anyhow!("there is no file or folder {shown}: correct the path"),
        false => anyhow::Error::new(error).context(format!("cannot read {shown}")),
    }
}

/// Reads all files as `(path, text)`, the files of a folder in the order of their names.
pub fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    let mut budget = MAX_BYTES;
    for path in paths {
        if path.as_os_str() == "-" {
            let text = read_capped(std::io::stdin().lock(), &mut budget, "standard input")?;
            texts.push(("standard input".to_string(), text));
            continue;
        }
        for file in files_below(path)? {
            let shown = file.display().to_string();
            let open = fs::File::open(&file).map_err(|error| unreadable(&file, error))?;
            let text = read_capped(open, &mut budget, &shown)?;
            texts.push((shown, text));
        }
    }
    Ok(texts)
}

fn read_capped(from: impl std::io::Read, budget: &mut u64, name: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    from.take(*budget + 1)
        .read_to_string(&mut text)
        .map_err(
            |error| match error.kind() == std::io::ErrorKind::InvalidData {
                true => {
                    anyhow::anyhow!("{name} is no text in UTF-8: convert it, or name another file")
                }
                false => anyhow::Error::new(error).context(format!("cannot read {name}")),
            },
        )?;
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    *budget = budget
        .checked_sub(length)
        .with_context(|| format!("more than {MAX_BYTES} bytes in all, at {name}"))?;
    Ok(text)
}

/// Returns the file itself, or the YAML and JSON files below a folder, as with kubectl's `-R`.
fn files_below(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let kind = fs::metadata(path).map_err(|error| unreadable(path, error))?;
    if !kind.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read {}", path.display()))?
        .into_iter()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        let hidden = entry
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let extension = entry.extension().and_then(|extension| extension.to_str());
        // Only real folders are followed: links may form a circle.
        if !hidden && fs::symlink_metadata(&entry).is_ok_and(|kind| kind.is_dir()) {
            files.extend(files_below(&entry)?);
        } else if !hidden && matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(entry);
        }
    }
    Ok(files)
}
