//! Finds one file in one layer: its bytes, or that the layer does not mention or removes it.
//!
//! A layer is a tar archive of changes. It removes a file of the layers below with a whiteout
//! (`.wh.NAME`) of the file or of a folder above it, with an opaque whiteout (`.wh..wh..opq`) in
//! such a folder, or with an entry of another type in a folder's place. Whiteouts concern the
//! layers below, never files of their own layer.
//!
//! Not here: the source of the bytes. Nothing is unpacked, and no link is followed.

use std::io::{self, Read};

use tar::{Archive, Entry, EntryType, PaxExtensions};

/// Longest file: a Surface could not hold a longer descriptor.
const FILE: u64 = 1 << 20;
/// Limit on entries: more than any layer of a useful image has.
const ENTRIES: usize = 1_000_000;
/// Limit on the bytes of an uncompressed layer: a small layer could unpack to any size.
const UNPACKED: u64 = 8 << 30;
/// Longest name that does not fit in a header; only such an extension is read.
const EXTENSION: u64 = 64 << 10;

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// Path of a file in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePath(Vec<String>);

impl ImagePath {
    /// Parses an absolute path, or one relative to the image's root.
    pub fn parse(path: &str) -> Option<Self> {
        let names: Vec<String> = path
            .split('/')
            .filter(|name| !name.is_empty() && *name != ".")
            .map(str::to_owned)
            .collect();
        let is_file = names.iter().all(|name| name != "..") && !path.ends_with('/');
        (is_file && !names.is_empty()).then_some(Self(names))
    }

    /// Parses a path that is written in this file: relative to its folder, unless it is absolute.
    pub fn beside(&self, path: &str) -> Option<Self> {
        if path.starts_with('/') {
            return Self::parse(path);
        }
        let folder = &self.0[..self.0.len() - 1];
        let Self(names) = Self::parse(path)?;
        Some(Self([folder, &names].concat()))
    }

    /// Returns the relation of an entry with this name to the file.
    fn relation(&self, entry: &[u8]) -> Relation {
        let names: Vec<&[u8]> = entry
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty() && *name != b".")
            .collect();
        let Some((last, folder)) = names.split_last() else {
            return Relation::None;
        };
        let begins_with = |names: &[&[u8]]| {
            let ours = self.0.iter().map(String::as_bytes);
            names.len() <= self.0.len() && names.iter().copied().eq(ours.take(names.len()))
        };
        if *last == OPAQUE.as_bytes() {
            let is_above = folder.len() < self.0.len() && begins_with(folder);
            return if is_above {
                Relation::Removes
            } else {
                Relation::None
            };
        }
        if let Some(removed) = last.strip_prefix(WHITEOUT.as_bytes()) {
            let is_it = begins_with(&[folder, &[removed]].concat());
            return if is_it {
                Relation::Removes
            } else {
                Relation::None
            };
        }
        match begins_with(&names) {
            true if names.len() == self.0.len() => Relation::Itself,
            true => Relation::Folder,
            false => Relation::None,
        }
    }
}

impl std::fmt::Display for ImagePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .try_for_each(|name| write!(f, "/{}", name.escape_debug()))
    }
}

#[derive(Clone, Copy)]
enum Relation {
    None,
    Itself,
    /// A folder above the file.
    Folder,
    Removes,
}

/// The entry of a layer for a file.
#[derive(Debug, PartialEq, Eq)]
pub enum LayerEntry {
    /// The layer does not mention the file, so the layer below decides.
    Nothing,
    File(Vec<u8>),
    Removed,
}

#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("the archive cannot be read")]
    Archive(#[from] io::Error),
    #[error("has more than {ENTRIES} files")]
    Entries,
    #[error("a name in it is longer than {EXTENSION} bytes")]
    Name,
    #[error("{0} is a link, or in a folder that is one: links are not followed")]
    Link(ImagePath),
    #[error("{0} is not a file")]
    NoFile(ImagePath),
    #[error("{0} is larger than {FILE} bytes")]
    Large(ImagePath),
}

/// Reads an uncompressed layer to its end: a later entry overrides an earlier one.
pub fn find_file(layer: impl Read, place: &ImagePath) -> Result<LayerEntry, LayerError> {
    let mut archive = Archive::new(BoundedReader {
        inner: layer,
        left: UNPACKED,
    });
    let mut seen = LayerEntry::Nothing;
    let mut long_name = None;
    // Raw entries: otherwise the library reads a long name as a whole, whatever its length.
    for (index, entry) in archive.entries()?.raw(true).enumerate() {
        if index == ENTRIES {
            return Err(LayerError::Entries);
        }
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all other entries have a name, and are looked at below"
        )]
        match kind {
            EntryType::GNULongName => {
                let name = extension(&mut entry)?;
                let end = name.iter().position(|byte| *byte == 0);
                long_name = Some(name[..end.unwrap_or(name.len())].to_vec());
                continue;
            }
            EntryType::XHeader => {
                long_name = pax_path(&extension(&mut entry)?)?.or(long_name);
                continue;
            }
            EntryType::GNULongLink | EntryType::XGlobalHeader => continue,
            _ => {}
        }
        let name = long_name
            .take()
            .unwrap_or_else(|| entry.path_bytes().into_owned());
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        match place.relation(&name) {
            Relation::None => {}
            Relation::Itself | Relation::Folder if is_link => {
                return Err(LayerError::Link(place.clone()));
            }
            Relation::Itself => seen = LayerEntry::File(file(&mut entry, kind, place)?),
            Relation::Folder if kind == EntryType::Directory => {}
            Relation::Folder | Relation::Removes if seen == LayerEntry::Nothing => {
                seen = LayerEntry::Removed
            }
            Relation::Folder | Relation::Removes => {}
        }
    }
    Ok(seen)
}

fn file(
    entry: &mut Entry<'_, impl Read>,
    kind: EntryType,
    place: &ImagePath,
) -> Result<Vec<u8>, LayerError> {
    if !matches!(kind, EntryType::Regular | EntryType::Continuous) {
        return Err(LayerError::NoFile(place.clone()));
    }
    if entry.size() > FILE {
        return Err(LayerError::Large(place.clone()));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn extension(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, LayerError> {
    if entry.size() > EXTENSION {
        return Err(LayerError::Name);
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the name of the entry that follows. (A size that does not fit in a header is over the
/// bound anyway.)
fn pax_path(extension: &[u8]) -> Result<Option<Vec<u8>>, LayerError> {
    let mut path = None;
    for member in PaxExtensions::new(extension) {
        let member = member?;
        if member.key_bytes() == b"path" {
            path = Some(member.value_bytes().to_vec());
        }
    }
    Ok(path)
}

/// A reader that fails at its bound: a truncated archive could look complete.
struct BoundedReader<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let taken = u64::try_from(read).map_err(io::Error::other)?;
        self.left = self
            .left
            .checked_sub(taken)
            .ok_or_else(|| io::Error::other(format!("it unpacks to more than {UNPACKED} bytes")))?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;

    /// Builds a layer of paths: the text of a file, `/` for a folder, `-> X` for a link.
    fn layer(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (path, what) in entries {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            let kind = match *what {
                "/" => EntryType::Directory,
                link if link.starts_with("-> ") => EntryType::Symlink,
                _ => EntryType::Regular,
            };
            header.set_entry_type(kind);
            if let Some(target) = what.strip_prefix("-> ") {
                header.set_link_name(target).unwrap();
            }
            let text = if kind == EntryType::Regular {
                *what
            } else {
                ""
            };
            header.set_size(text.len() as u64);
            builder
                .append_data(&mut header, path, text.as_bytes())
                .unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[track_caller]
    fn check(entries: &[(&str, &str)], expected: LayerEntry) {
        let place = ImagePath::parse("/pond/reed/fish.json").unwrap();
        assert_eq!(find_file(&layer(entries)[..], &place).unwrap(), expected);
    }

    fn found(text: &str) -> LayerEntry {
        LayerEntry::File(text.into())
    }

    #[test]
    fn a_file_is_found_under_each_form_of_its_name() {
        check(&[("pond/reed/fish.json", "a")], found("a"));
        check(&[("./pond/reed/fish.json", "a")], found("a"));
        check(
            &[("pond/reed/fish.json", "a"), ("pond/reed/fish.json", "b")],
            found("b"),
        );
        check(
            &[("pond/", "/"), ("pond/reed/", "/"), ("reed/fish.json", "a")],
            LayerEntry::Nothing,
        );
        check(
            &[("pond/reed/fish.json.old", "a"), ("fish.json", "a")],
            LayerEntry::Nothing,
        );
        check(&[], LayerEntry::Nothing);
    }

    #[test]
    fn a_whiteout_removes_files_of_lower_layers_only() {
        check(&[("pond/reed/.wh.fish.json", "")], LayerEntry::Removed);
        check(&[("pond/.wh.reed", "")], LayerEntry::Removed);
        check(&[(".wh.pond", "")], LayerEntry::Removed);
        check(&[("pond/reed/.wh..wh..opq", "")], LayerEntry::Removed);
        check(&[(".wh..wh..opq", "")], LayerEntry::Removed);
        check(
            &[
                ("pond/.wh.ree", ""),
                ("reed/.wh..wh..opq", ""),
                (".wh.fish.json", ""),
            ],
            LayerEntry::Nothing,
        );
        check(
            &[("pond/reed/fish.json/.wh..wh..opq", "")],
            LayerEntry::Nothing,
        );
        let own = ("pond/reed/fish.json", "a");
        check(&[own, ("pond/.wh..wh..opq", "")], found("a"));
        check(&[("pond/.wh..wh..opq", ""), own], found("a"));
    }

    #[test]
    fn an_entry_in_place_of_a_folder_removes_the_file() {
        check(&[("pond/reed", "a")], LayerEntry::Removed);
    }

    #[test]
    fn links_and_folders_are_errors() {
        let place = ImagePath::parse("pond/fish.json").unwrap();
        let refused = |entries: &[(&str, &str)]| {
            find_file(&layer(entries)[..], &place)
                .unwrap_err()
                .to_string()
        };
        assert!(refused(&[("pond/fish.json", "-> carp.json")]).contains("is a link"));
        assert!(refused(&[("pond", "-> lake")]).contains("is a link"));
        assert!(refused(&[("pond/fish.json/", "/")]).contains("is not a file"));
        let long = "x".repeat(1 + (1 << 20));
        assert!(refused(&[("pond/fish.json", &long)]).contains("is larger than"));
        assert!(find_file(&b"no archive at all"[..], &place).is_err());
    }

    #[test]
    fn long_names_are_read_up_to_a_bound() {
        let folder = "reed/".repeat(60);
        let place = ImagePath::parse(&format!("{folder}fish.json")).unwrap();
        let name = format!("{folder}fish.json");
        assert_eq!(
            find_file(&layer(&[(&name, "a")])[..], &place).unwrap(),
            found("a")
        );

        let mut builder = Builder::new(Vec::new());
        let pax = [("path", name.as_bytes()), ("mtime", b"1.5".as_slice())];
        builder.append_pax_extensions(pax).unwrap();
        let mut header = Header::new_ustar();
        header.set_size(1);
        builder
            .append_data(&mut header, "short", &b"b"[..])
            .unwrap();
        assert_eq!(
            find_file(&builder.into_inner().unwrap()[..], &place).unwrap(),
            found("b")
        );

        let endless = "reed/".repeat(20_000) + "fish.json";
        let error = find_file(&layer(&[(&endless, "a")])[..], &place).unwrap_err();
        assert!(matches!(error, LayerError::Name), "{error}");
    }

    #[test]
    fn unpacked_bytes_have_a_bound() {
        let mut reader = BoundedReader {
            inner: io::repeat(0),
            left: 1 << 16,
        };
        assert!(io::copy(&mut reader, &mut io::sink()).is_err());
    }

    #[test]
    fn paths_stay_within_the_image() {
        for wrong in ["", "/", "pond/", "../fish.json", "pond/../fish.json"] {
            assert_eq!(ImagePath::parse(wrong), None, "{wrong}");
        }
        let descriptor = ImagePath::parse("/pond/fish.json").unwrap();
        let beside = |path: &str| descriptor.beside(path).unwrap().to_string();
        assert_eq!(beside("skills/dive.md"), "/pond/skills/dive.md");
        assert_eq!(beside("/skills/dive.md"), "/skills/dive.md");
        assert_eq!(descriptor.beside("../dive.md"), None);
    }
}
