//! Writes an image from a list of files: as an archive in the format of `docker save`, which
//! containerd imports, or as an OCI image layout, which goes to a registry.
//!
//! Not here: the list of images and the sources of their files (`images`). Invariant: the same files
//! give the same bytes, on any day and in any order of listing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// The user of every image: no image of ours needs root, and Pod Security `restricted` requires a
/// number.
const USER: &str = "65532:65532";

/// The content of an image.
#[derive(Debug)]
pub struct Archive {
    tag: String,
    entrypoint: Vec<String>,
    environment: Vec<String>,
    /// Entries by absolute path in the image.
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug)]
enum Entry {
    /// A folder, created with its parents; any user may enter it, no user may write.
    Folder,
    /// A folder in which any user may create files and remove only their own.
    Temporary,
    File {
        source: PathBuf,
        mode: u32,
    },
    Link(PathBuf),
}

impl Archive {
    pub fn new(tag: &str, entrypoint: &[&str]) -> Archive {
        Archive {
            tag: tag.into(),
            entrypoint: entrypoint.iter().map(|word| (*word).into()).collect(),
            environment: Vec::new(),
            entries: BTreeMap::new(),
        }
    }

    pub fn environment(&mut self, name: &str, value: &str) {
        self.environment.push(format!("{name}={value}"));
    }

    /// Adds an executable file.
    pub fn program(&mut self, path: impl Into<PathBuf>, source: impl Into<PathBuf>) {
        self.add(
            path.into(),
            Entry::File {
                source: source.into(),
                mode: 0o755,
            },
        );
    }

    pub fn file(&mut self, path: impl Into<PathBuf>, source: impl Into<PathBuf>) {
        self.add(
            path.into(),
            Entry::File {
                source: source.into(),
                mode: 0o644,
            },
        );
    }

    pub fn link(&mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) {
        self.add(path.into(), Entry::Link(target.into()));
    }

    pub fn temporary(&mut self, path: impl Into<PathBuf>) {
        self.add(path.into(), Entry::Temporary);
    }

    /// True if the image has an entry at this path.
    pub fn contains(&self, path: &Path) -> bool {
        self.entries.contains_key(path)
    }

    fn add(&mut self, path: PathBuf, entry: Entry) {
        for folder in path.ancestors().skip(1) {
            if folder != Path::new("/") {
                self.entries.entry(folder.into()).or_insert(Entry::Folder);
            }
        }
        self.entries.insert(path, entry);
    }

    /// Writes the archive; returns its size in bytes.
    pub fn write(&self, path: &Path) -> Result<u64> {
        let written = || -> Result<u64> {
            let folder = path.parent().context("an archive has a folder")?;
            fs::create_dir_all(folder)?;
            let mut layer = tempfile::tempfile_in(folder)?;
            let digest = self.write_layer(&mut layer)?;
            let temporary = tempfile::NamedTempFile::new_in(folder)?;
            self.write_archive(BufWriter::new(temporary.as_file()), layer, &digest)?;
            let size = temporary.as_file().metadata()?.len();
            temporary.persist(path)?;
            Ok(size)
        };
        written().with_context(|| format!("write {}", path.display()))
    }

    /// Writes the image as an OCI layout into `folder`, which must not exist, under this tag.
    /// Returns the digest of its manifest, by which a registry serves it.
    pub fn write_layout(&self, folder: &Path, tag: &str) -> Result<String> {
        let written = || -> Result<String> {
            let blobs = folder.join("blobs/sha256");
            fs::create_dir_all(folder.parent().context("a layout has a parent")?)?;
            fs::create_dir(folder)?;
            fs::create_dir_all(&blobs)?;
            let mut layer = tempfile::tempfile_in(&blobs)?;
            let plain = self.write_layer(&mut layer)?;
            layer.rewind()?;
            let layer = compress(layer, &blobs)?;
            let config = write_blob(&blobs, &self.config(&plain))?;
            let manifest = json!({
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
                "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar+gzip")],
            });
            let manifest = write_blob(&blobs, &manifest)?;
            let mut entry = manifest.descriptor(MANIFEST_TYPE);
            entry["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
            let index = json!({"schemaVersion": 2, "manifests": [entry]});
            fs::write(folder.join("index.json"), index.to_string())?;
            fs::write(
                folder.join("oci-layout"),
                r#"{"imageLayoutVersion":"1.0.0"}"#,
            )?;
            Ok(manifest.digest)
        };
        written().with_context(|| format!("write {}", folder.display()))
    }

    /// Writes the layer and returns its digest.
    fn write_layer(&self, layer: &mut File) -> Result<String> {
        let mut tar = Builder::new(HashingWriter::new(BufWriter::new(layer)));
        for (path, entry) in &self.entries {
            let name = path
                .strip_prefix("/")
                .context("paths in an image are absolute")?;
            match entry {
                Entry::Folder => {
                    tar.append_data(
                        &mut header(EntryType::Directory, 0o755, 0),
                        name,
                        io::empty(),
                    )?;
                }
                Entry::Temporary => {
                    tar.append_data(
                        &mut header(EntryType::Directory, 0o1777, 0),
                        name,
                        io::empty(),
                    )?;
                }
                Entry::File { source, mode } => {
                    let file =
                        File::open(source).with_context(|| format!("open {}", source.display()))?;
                    let size = file.metadata()?.len();
                    tar.append_data(&mut header(EntryType::Regular, *mode, size), name, file)?;
                }
                Entry::Link(target) => {
                    tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), name, target)?;
                }
            }
        }
        let mut hashed = tar.into_inner()?;
        hashed.flush()?;
        Ok(hex::encode(hashed.hash.finalize()))
    }

    fn write_archive(&self, to: impl Write, mut layer: File, digest: &str) -> Result<()> {
        let config = self.config(digest).to_string();
        let config_name = format!("{}.json", hex::encode(Sha256::digest(&config)));
        let manifest = json!([{
            "Config": config_name,
            "RepoTags": [self.tag],
            "Layers": ["layer.tar"],
        }])
        .to_string();
        let mut tar = Builder::new(to);
        for (name, content) in [
            (config_name.as_str(), &config),
            ("manifest.json", &manifest),
        ] {
            let mut header = header(EntryType::Regular, 0o644, content.len() as u64);
            tar.append_data(&mut header, name, content.as_bytes())?;
        }
        let size = layer.metadata()?.len();
        layer.rewind()?;
        tar.append_data(
            &mut header(EntryType::Regular, 0o644, size),
            "layer.tar",
            layer,
        )?;
        tar.into_inner()?.flush()?;
        Ok(())
    }

    fn config(&self, layer: &str) -> Value {
        json!({
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "User": USER,
                "Entrypoint": self.entrypoint,
                "Env": self.environment,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
        })
    }
}

/// A header without times and owners, which would differ between builds.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header
}

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// A file of an OCI layout, named by its digest.
struct Blob {
    digest: String,
    size: u64,
}

impl Blob {
    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": self.digest, "size": self.size})
    }
}

fn write_blob(folder: &Path, content: &Value) -> Result<Blob> {
    let text = content.to_string();
    let name = hex::encode(Sha256::digest(&text));
    fs::write(folder.join(&name), &text)?;
    Ok(Blob {
        digest: format!("sha256:{name}"),
        size: text.len() as u64,
    })
}

/// Compresses the file into `folder`, without a time or a name in the gzip header.
fn compress(mut from: File, folder: &Path) -> Result<Blob> {
    let temporary = tempfile::NamedTempFile::new_in(folder)?;
    let to = HashingWriter::new(BufWriter::new(temporary.as_file()));
    let mut gzip = GzEncoder::new(to, flate2::Compression::best());
    io::copy(&mut from, &mut gzip)?;
    let HashingWriter { mut to, hash } = gzip.finish()?;
    to.flush()?;
    drop(to);
    let name = hex::encode(hash.finalize());
    let size = temporary.as_file().metadata()?.len();
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o644))?;
    temporary.persist(folder.join(&name))?;
    Ok(Blob {
        digest: format!("sha256:{name}"),
        size,
    })
}

struct HashingWriter<W> {
    to: W,
    hash: Sha256,
}

impl<W: Write> HashingWriter<W> {
    fn new(to: W) -> HashingWriter<W> {
        HashingWriter {
            to,
            hash: Sha256::new(),
        }
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Reads one file of an archive, to check a written archive.
pub fn read_file(archive: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let mut tar = tar::Archive::new(File::open(archive)?);
    for entry in tar.entries()? {
        let mut entry = entry?;
        if entry.path()? == Path::new(name) {
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            return Ok(Some(content));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_reproducible_and_the_config_names_the_layer() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("source");
        fs::write(&source, "otter").expect("written");
        let write = |name: &str, paths: [&str; 2]| {
            let mut archive = Archive::new("docker.io/pond/otter:dev", &["/bin/otter"]);
            archive.temporary("/tmp");
            for path in paths {
                archive.program(path, &source);
            }
            archive.link("/bin/heron", "otter");
            let tar = folder.path().join(name);
            archive.write(&tar).expect("written");
            tar
        };
        let one = write("one.tar", ["/bin/otter", "/etc/otter"]);
        let two = write("two.tar", ["/etc/otter", "/bin/otter"]);
        assert_eq!(fs::read(&one).expect("read"), fs::read(&two).expect("read"));

        let read = |name: &str| read_file(&one, name).expect("read").expect("there");
        let manifest: Value = serde_json::from_slice(&read("manifest.json")).expect("JSON");
        assert_eq!(manifest[0]["RepoTags"], json!(["docker.io/pond/otter:dev"]));
        let config = read(manifest[0]["Config"].as_str().expect("a name"));
        let config: Value = serde_json::from_slice(&config).expect("JSON");
        let layer = read("layer.tar");
        assert_eq!(
            config["rootfs"]["diff_ids"],
            json!([format!("sha256:{}", hex::encode(Sha256::digest(&layer)))]),
        );
        let paths: Vec<String> = tar::Archive::new(layer.as_slice())
            .entries()
            .expect("a tar")
            .map(|entry| {
                entry
                    .expect("whole")
                    .path()
                    .expect("a path")
                    .display()
                    .to_string()
            })
            .collect();
        assert_eq!(
            paths,
            ["bin", "bin/heron", "bin/otter", "etc", "etc/otter", "tmp"]
        );
    }

    #[test]
    fn a_layout_is_reproducible_and_each_file_has_the_digest_in_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("source");
        fs::write(&source, "otter").expect("written");
        let write = |name: &str| {
            let mut archive = Archive::new("docker.io/pond/otter:dev", &["/otter"]);
            archive.program("/otter", &source);
            let layout = folder.path().join(name);
            let digest = archive.write_layout(&layout, "1.2.3").expect("written");
            (layout, digest)
        };
        let (one, digest) = write("one");
        assert_eq!(digest, write("two").1);

        let json = |path: PathBuf| -> Value {
            serde_json::from_slice(&fs::read(path).expect("read")).expect("JSON")
        };
        let index = json(one.join("index.json"));
        assert_eq!(index["manifests"][0]["digest"], json!(digest));
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().expect("a digest");
            let path = one.join("blobs").join(digest.replace(':', "/"));
            let content = fs::read(&path).expect("read");
            assert_eq!(
                digest,
                format!("sha256:{}", hex::encode(Sha256::digest(&content)))
            );
            assert_eq!(descriptor["size"], json!(content.len()));
            path
        };
        let manifest = json(blob(&index["manifests"][0]));
        let config = json(blob(&manifest["config"]));
        let layer = blob(&manifest["layers"][0]);
        let mut plain = Vec::new();
        let mut gzip = flate2::read::GzDecoder::new(File::open(layer).expect("opened"));
        gzip.read_to_end(&mut plain).expect("compressed");
        let digest = hex::encode(Sha256::digest(&plain));
        assert_eq!(
            config["rootfs"]["diff_ids"],
            json!([format!("sha256:{digest}")])
        );
        let files = fs::read_dir(one.join("blobs/sha256"))
            .expect("listed")
            .count();
        assert_eq!(files, 3);
    }
}
