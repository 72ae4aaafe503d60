//! A real registry on loopback, and images to push to it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use flate2::{Compression, write::GzEncoder};
use reqwest::header::{CONTENT_TYPE, LOCATION};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use toolcrib_e2e::packages;

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const PLAIN: &str = "application/vnd.oci.image.layer.v1.tar";
pub const GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

/// `otter`, with the password `fish:bone`.
pub const USER: (&str, &str) = ("otter", "fish:bone");
const HTPASSWD: &str = "otter:$2b$04$1ZerkmNC03ZbjZzAOZrZ/O9I5RwcQkPEC6ICpvyz.i5ih0P3BVYLS\n";

pub struct Registry {
    process: Child,
    /// `127.0.0.1:PORT`.
    pub address: String,
    storage: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AllowedUsers {
    Anybody,
    /// Only the user with the password of [`USER`].
    User,
}

impl Registry {
    pub fn start(who: AllowedUsers) -> Self {
        let root = packages::debian("registry.txt").unwrap();
        let storage = tempfile::tempdir().unwrap();
        let mut config = json!({
            "version": "0.1",
            "log": {"formatter": "json"},
            "storage": {"filesystem": {"rootdirectory": storage.path().join("data")}},
            "http": {"addr": "127.0.0.1:0"},
        });
        if who == AllowedUsers::User {
            let path = storage.path().join("htpasswd");
            fs::write(&path, HTPASSWD).unwrap();
            config["auth"] = json!({"htpasswd": {"realm": "pond", "path": path}});
        }
        let file = storage.path().join("config.yml");
        fs::write(&file, config.to_string()).unwrap();
        let mut process = Command::new(root.join("usr/bin/docker-registry"))
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map(Result::unwrap).find_map(|line| {
            let line: Value = serde_json::from_str(&line).ok()?;
            Some(
                line["msg"]
                    .as_str()?
                    .strip_prefix("listening on ")?
                    .to_owned(),
            )
        });
        // The log is read and dropped: a full pipe would stop the registry.
        std::thread::spawn(move || lines.for_each(drop));
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Self {
            process,
            address: address.unwrap(),
            storage,
            runtime,
            client: reqwest::Client::new(),
        }
    }

    fn send(&self, request: reqwest::RequestBuilder) -> reqwest::Response {
        let request = request.basic_auth(USER.0, Some(USER.1));
        let response = self.runtime.block_on(request.send()).unwrap();
        assert!(response.status().is_success(), "{response:?}");
        response
    }

    /// Pushes a blob; returns its descriptor for a manifest.
    pub fn blob(&self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = digest(&bytes);
        let size = bytes.len();
        let begin = format!("http://{}/v2/pond/fish/blobs/uploads/", self.address);
        let begun = self.send(self.client.post(begin));
        let place = begun.headers()[LOCATION].to_str().unwrap();
        let put = self.client.put(place).query(&[("digest", &digest)]);
        self.send(
            put.header(CONTENT_TYPE, "application/octet-stream")
                .body(bytes),
        );
        json!({"mediaType": media_type, "digest": digest, "size": size})
    }

    /// Pushes a manifest; returns its digest.
    pub fn manifest(&self, name: &str, media_type: &str, manifest: &Value) -> String {
        let url = format!("http://{}/v2/pond/fish/manifests/{name}", self.address);
        let body = manifest.to_string();
        let digest = digest(body.as_bytes());
        self.send(
            self.client
                .put(url)
                .header(CONTENT_TYPE, media_type)
                .body(body),
        );
        digest
    }

    /// Pushes an image of these layers, the topmost last, under this tag; returns its digest.
    pub fn image(&self, tag: &str, labels: Value, layers: Vec<Value>) -> String {
        let config = json!({"architecture": "amd64", "os": "linux", "config": {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": []}});
        let config = self.blob(CONFIG, config.to_string().into_bytes());
        let manifest =
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        self.manifest(tag, MANIFEST, &manifest)
    }

    pub fn reference(&self, tag: &str) -> String {
        format!("{}/pond/fish:{tag}", self.address)
    }

    /// Returns the path of a blob's bytes in the registry's storage.
    pub fn stored(&self, digest: &str) -> PathBuf {
        let hex = digest.strip_prefix("sha256:").unwrap();
        let blobs = self
            .storage
            .path()
            .join("data/docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(hex).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Returns a layer's archive.
pub fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, path, text.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

pub fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
