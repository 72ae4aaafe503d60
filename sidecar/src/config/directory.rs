//! The IO of one read. The kubelet swaps a volume by pointing `..data` at another
//! directory: that directory is opened once, and every file is read relative to it, so
//! that a swap in the middle cannot mix two versions. A plain directory works too.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat};
use toolcrib_manifest::{SecretText, names};

use super::standing::Observation;
use super::version::{ConfigError, Files, contact, parse};

/// A Secret holds at most 1 MiB; the rest is room for hand-written directories.
const MAX_FILE: usize = 4 * 1024 * 1024;
/// No credential is longer.
const MAX_SECRET: usize = 64 * 1024;

/// Swaps that may overtake one read before it waits for the next look.
const ATTEMPTS: usize = 8;

/// What stands in the directory now.
///
/// The kubelet deletes the old version right after a swap, so a read that was overtaken
/// can find any of its files gone, or all of them. Only what was found while `..data`
/// stood still says anything.
pub fn observe(dir: &Path) -> Observation {
    for _ in 0..ATTEMPTS {
        let pointer = std::fs::read_link(dir.join("..data")).ok();
        let seen = read(dir);
        if std::fs::read_link(dir.join("..data")).ok() == pointer {
            return seen;
        }
    }
    broken(ConfigError::Unsettled)
}

fn read(dir: &Path) -> Observation {
    let data = match open_data(dir) {
        Ok(data) => data,
        Err(error) if gone(&error) => return Observation::Absent,
        Err(error) => return broken(unreadable(dir.display().to_string(), &error)),
    };
    let mut found = Vec::with_capacity(names::FILES.len());
    let mut missing = Vec::new();
    for file in names::FILES {
        match read_at(&data, Path::new(file), MAX_FILE, OFlags::empty()) {
            Ok(Some(bytes)) => found.push(bytes),
            Ok(None) => {
                return broken(ConfigError::TooLarge {
                    file,
                    limit: MAX_FILE,
                });
            }
            Err(error) if gone(&error) => missing.push(file),
            Err(error) => return broken(unreadable(file.to_string(), &error)),
        }
    }
    if missing.len() == names::FILES.len() {
        return Observation::Absent;
    }
    if !missing.is_empty() {
        return broken(ConfigError::Missing(missing));
    }
    let [agent, tools, providers, feeds]: [Vec<u8>; 4] =
        found.try_into().expect("one of each of the four files");
    let files = Files {
        agent,
        tools,
        providers,
        feeds,
    };
    match parse(&files, &|path| secret_at(&data, path)) {
        Ok(version) => Observation::Loaded(Box::new(version)),
        Err(error) => Observation::Broken {
            error,
            contact: contact(&files),
        },
    }
}

/// Nothing that was read says where the operator is.
fn broken(error: ConfigError) -> Observation {
    Observation::Broken {
        error,
        contact: None,
    }
}

/// What tells one version from the next without reading it: where `..data` points. A
/// plain directory has only its files' own stamps.
pub fn stamp(dir: &Path) -> Stamp {
    match std::fs::read_link(dir.join("..data")) {
        Ok(target) => Stamp::Link(target),
        Err(_) => Stamp::Files(
            names::FILES
                .iter()
                .map(|file| {
                    let metadata = std::fs::metadata(dir.join(file)).ok()?;
                    Some((metadata.modified().ok()?, metadata.len()))
                })
                .collect(),
        ),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stamp {
    Link(PathBuf),
    Files(Vec<Option<(std::time::SystemTime, u64)>>),
}

fn open_data(dir: &Path) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match open(dir.join("..data"), flags, Mode::empty()) {
        Ok(data) => Ok(data),
        Err(error) if gone(&error.into()) => Ok(open(dir, flags, Mode::empty())?),
        Err(error) => Err(error.into()),
    }
}

/// `None`: longer than `limit`.
fn read_at(
    dir: &OwnedFd,
    path: &Path,
    limit: usize,
    flags: OFlags,
) -> std::io::Result<Option<Vec<u8>>> {
    let file = openat(
        dir,
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | flags,
        Mode::empty(),
    )?;
    let mut bytes = Vec::new();
    File::from(file)
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then_some(bytes))
}

/// A secret in a file of its own. No component may be a link or climb: a path that
/// cannot leave needs no resolving.
fn secret_at(data: &OwnedFd, path: &str) -> Option<SecretText> {
    let path = Path::new(path);
    let components: Vec<_> = path.components().collect();
    if components.is_empty()
        || components
            .iter()
            .any(|part| !matches!(part, Component::Normal(_)))
    {
        return None;
    }
    let mut dir: Option<OwnedFd> = None;
    let (name, parents) = components.split_last()?;
    for parent in parents {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = openat(
            dir.as_ref().unwrap_or(data),
            parent.as_os_str(),
            flags,
            Mode::empty(),
        );
        dir = Some(opened.ok()?);
    }
    let bytes = read_at(
        dir.as_ref().unwrap_or(data),
        Path::new(name.as_os_str()),
        MAX_SECRET,
        OFlags::NOFOLLOW,
    )
    .ok()??;
    let text = String::from_utf8(bytes).ok()?;
    let text = text.trim_end_matches(['\n', '\r']);
    (!text.is_empty()).then(|| SecretText::new(text))
}

fn gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn unreadable(file: String, error: &std::io::Error) -> ConfigError {
    ConfigError::Unreadable {
        file,
        kind: error.kind(),
    }
}
