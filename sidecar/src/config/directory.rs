//! The IO of one read. The kubelet swaps a volume by pointing `..data` at another directory. A
//! read opens that directory once and reads every file relative to it, so a concurrent swap cannot
//! mix two versions. A plain directory works too.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat};
use toolcrib_manifest::{SecretText, names};

use super::load_state::Observation;
use super::version::{ConfigError, Files, contact, parse};

/// Most bytes of a file. A Secret holds at most 1 MiB; the rest is room for hand-written files.
const MAX_FILE: usize = 4 * 1024 * 1024;
/// Most bytes of a credential in a file of its own.
const MAX_SECRET: usize = 64 * 1024;

/// Most attempts of one read that swaps may interrupt before it waits for the next look.
const ATTEMPTS: usize = 8;

/// Reads the directory.
///
/// The kubelet deletes the old version right after a swap, so an overtaken read may miss any of
/// its files. Only a read during which `..data` did not change counts.
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

/// An observation without the address of the operator.
fn broken(error: ConfigError) -> Observation {
    Observation::Broken {
        error,
        contact: None,
    }
}

/// The stamp that tells versions apart without reading them: the target of `..data`, or in a plain
/// directory the stamps of its files.
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

/// Reads a file; `None`: it is longer than `limit`.
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

/// Reads a secret from a file of its own. No component of the path may be a link or `..`, so the
/// path cannot leave the directory.
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
