//! Reads an image's parts from a registry with HTTP API v2.
//!
//! A library logs in and downloads layers. Manifests are read here: the library would read one of
//! any size into memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek as _, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use flate2::read::MultiGzDecoder;
use futures::StreamExt as _;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError as Library;
use oci_client::manifest::{self as media, OciDescriptor, OciImageIndex, OciManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use reqwest::{StatusCode, header::ACCEPT};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use toolcrib_bounds::Buffer;

use super::layer::{ImagePath, LayerEntry, find_file};
use crate::authoring::connection::{MachineNames, Verb, no_answer, no_answer_to_library};
use crate::authoring::image::platform::Platform;
use crate::print::brief;

const CONNECT: Duration = Duration::from_secs(10);
/// Limit between two parts of an answer.
const READ: Duration = Duration::from_secs(30);
/// Longest manifest or config; registries have the same bound.
const DOCUMENT: usize = 4 << 20;
const LAYERS: usize = 256;
/// The advice for a registry that refuses this user.
const LOG_IN: &str = "log in with `docker login`, or name a docker config with --docker-config";
/// Limit on the bytes of all layers, compressed. They stay on disk until the command ends.
const LAYER_BYTES: u64 = 2 << 30;

/// Media types of manifests, of Docker and of OCI.
const MANIFESTS: [&str; 4] = [
    media::OCI_IMAGE_MEDIA_TYPE,
    media::OCI_IMAGE_INDEX_MEDIA_TYPE,
    media::IMAGE_MANIFEST_MEDIA_TYPE,
    media::IMAGE_MANIFEST_LIST_MEDIA_TYPE,
];

struct Registry {
    client: Client,
    http: reqwest::Client,
    scheme: &'static str,
    reference: Reference,
    /// The credential for manifests.
    auth: RegistryAuth,
}

/// The registry of an image, and how to connect to it.
pub struct Access {
    pub reference: Reference,
    pub auth: RegistryAuth,
    /// Whether the registry is reached without TLS.
    pub is_plain: bool,
}

/// An image whose config was read, and whose layers were not.
pub struct Image {
    registry: Registry,
    /// Digest of the reference: of the list, if there is one for many platforms.
    pub digest: String,
    labels: BTreeMap<String, String>,
    /// Layers, the topmost first.
    layers: Vec<Layer>,
    /// Bytes that may still be read of layers.
    left: u64,
}

struct Layer {
    descriptor: OciDescriptor,
    file: Option<File>,
}

impl Image {
    pub async fn open(access: Access, platform: &Platform) -> anyhow::Result<Self> {
        let registry = Registry::open(access).await?;
        let named = registry.reference.digest();
        let tag = registry.reference.tag().unwrap_or("latest");
        let (manifest, digest) = registry.manifest(named.unwrap_or(tag), named).await?;
        let image = match manifest {
            OciManifest::Image(image) => image,
            OciManifest::ImageIndex(list) => {
                let one = of_platform(&list, platform)?;
                match registry.manifest(&one, Some(&one)).await? {
                    (OciManifest::Image(image), _) => image,
                    (OciManifest::ImageIndex(_), _) => {
                        bail!("the image's list holds a list: name one image by its digest")
                    }
                }
            }
        };
        ensure!(
            image.layers.len() <= LAYERS,
            "the image has more than {LAYERS} layers: build it with fewer"
        );
        let labels = registry.labels(&image.config.digest).await?;
        let topmost_first = image.layers.into_iter().rev();
        Ok(Self {
            registry,
            digest,
            labels,
            layers: topmost_first
                .map(|descriptor| Layer {
                    descriptor,
                    file: None,
                })
                .collect(),
            left: LAYER_BYTES,
        })
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    /// Reads a file as a container of the image would see it; `None` if it would not exist.
    pub async fn file(&mut self, place: &ImagePath) -> anyhow::Result<Option<Vec<u8>>> {
        for layer in &mut self.layers {
            let seen = layer.find_file(&self.registry, &mut self.left, place).await;
            match seen.with_context(|| format!("layer {}", brief(&layer.descriptor.digest)))? {
                LayerEntry::Nothing => {}
                LayerEntry::File(bytes) => return Ok(Some(bytes)),
                LayerEntry::Removed => return Ok(None),
            }
        }
        Ok(None)
    }
}

impl Layer {
    async fn find_file(
        &mut self,
        registry: &Registry,
        left: &mut u64,
        place: &ImagePath,
    ) -> anyhow::Result<LayerEntry> {
        let is_compressed = match self.descriptor.media_type.as_str() {
            media::IMAGE_LAYER_MEDIA_TYPE | media::IMAGE_DOCKER_LAYER_TAR_MEDIA_TYPE => false,
            media::IMAGE_LAYER_GZIP_MEDIA_TYPE | media::IMAGE_DOCKER_LAYER_GZIP_MEDIA_TYPE => true,
            other if other.ends_with("+zstd") => {
                bail!("is compressed with zstd, which is not read here: push the image with gzip")
            }
            other => bail!(
                "is of the type {}, which is not read here: push the image with gzip",
                brief(other)
            ),
        };
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(registry.layer(&self.descriptor.digest, left).await?),
        };
        file.rewind()?;
        Ok(match is_compressed {
            // Concatenated members are one stream: some builders write one for each file.
            true => find_file(MultiGzDecoder::new(&*file), place)?,
            false => find_file(&*file, place)?,
        })
    }
}

impl Registry {
    async fn open(access: Access) -> anyhow::Result<Self> {
        // The library would create a client by itself, and panic on an error.
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(READ)
            .dns_resolver(Arc::new(MachineNames))
            .build()
            .context("there is no TLS: are there CA certificates on this machine?")?;
        let (protocol, scheme) = match access.is_plain {
            true => (ClientProtocol::Http, "http"),
            false => (ClientProtocol::Https, "https"),
        };
        let client = Client::try_from(ClientConfig {
            protocol,
            connect_timeout: Some(CONNECT),
            read_timeout: Some(READ),
            ..ClientConfig::default()
        })?;
        let reference = access.reference;
        let registry = reference.registry();
        let token = client.auth(&reference, &access.auth, RegistryOperation::Pull);
        let token = match token.await {
            Ok(token) => token,
            Err(Library::RequestError(error)) => {
                return Err(no_answer_to_library(error, registry, Verb::FromImage).await);
            }
            Err(error) => {
                bail!(
                    library_error(&error)
                        .context(format!("{registry} does not let you in: {LOG_IN}"))
                )
            }
        };
        Ok(Self {
            client,
            http,
            scheme,
            reference,
            auth: token.map_or(access.auth, RegistryAuth::Bearer),
        })
    }

    /// Reads a manifest by tag or digest; also returns its digest.
    async fn manifest(
        &self,
        which: &str,
        digest: Option<&str>,
    ) -> anyhow::Result<(OciManifest, String)> {
        let (registry, repository) = (
            self.reference.resolve_registry(),
            self.reference.repository(),
        );
        let url = format!(
            "{}://{registry}/v2/{repository}/manifests/{which}",
            self.scheme
        );
        let request = self.http.get(url).header(ACCEPT, MANIFESTS.join(", "));
        let request = match &self.auth {
            RegistryAuth::Anonymous => request,
            RegistryAuth::Basic(user, password) => request.basic_auth(user, Some(password)),
            RegistryAuth::Bearer(token) => request.bearer_auth(token),
        };
        let sent = request.send().await;
        let mut response = sent.map_err(|error| no_answer(error, registry, Verb::FromImage))?;
        match response.status() {
            StatusCode::OK => {}
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                bail!("{registry} answered {status}: {LOG_IN}")
            }
            StatusCode::NOT_FOUND => {
                bail!("{registry} has no image {repository} {which}: check its name and tag")
            }
            status => bail!("{registry} answered {status}: ask again, or see its log"),
        }
        let mut body = Buffer::new(DOCUMENT);
        while let Some(chunk) = response.chunk().await? {
            body.push(&chunk).context("the image's manifest")?;
        }
        let body = body.into_bytes();
        let is = format!("sha256:{}", hex::encode(Sha256::digest(&body)));
        if let Some(digest) = digest {
            ensure!(
                digest == is,
                "the manifest is not {}, but {is}: the registry gives something else under this \
                 digest, so do not use the image",
                brief(digest)
            );
        }
        Ok((manifest_of(&body)?, is))
    }

    async fn labels(&self, digest: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let mut bytes = Vec::new();
        let mut left = u64::try_from(DOCUMENT)?;
        let fetched = self.blob(digest, &mut left, &mut bytes).await;
        fetched.context("the image's config")?;
        labels_of(&bytes)
    }

    async fn layer(&self, digest: &str, left: &mut u64) -> anyhow::Result<File> {
        let mut file = tempfile::tempfile().context("no temporary file can be made")?;
        self.blob(digest, left, &mut file).await?;
        Ok(file)
    }

    /// Reads a blob as a whole and verifies its digest.
    async fn blob(&self, digest: &str, left: &mut u64, out: &mut impl Write) -> anyhow::Result<()> {
        // Only the digest is used: a manifest may also name URLs, which are not trusted.
        let blob = self.client.pull_blob_stream(&self.reference, digest).await;
        let mut blob = blob.map_err(|error| {
            let Library::RequestError(error) = error else {
                return library_error(&error);
            };
            // The error does not name the server that was asked.
            let registry = self.reference.registry();
            let server = format!("{registry}, or the server to which it redirects,");
            no_answer(error, server, Verb::FromImage)
        })?;
        while let Some(chunk) = blob.next().await {
            let chunk = chunk.map_err(|error| anyhow::anyhow!(brief(&error.to_string())))?;
            *left = left
                .checked_sub(u64::try_from(chunk.len())?)
                .context("there is more of it than is read here: write a descriptor by hand")?;
            out.write_all(&chunk)?;
        }
        Ok(())
    }
}

fn manifest_of(body: &[u8]) -> anyhow::Result<OciManifest> {
    serde_json::from_slice(body)
        .context("the registry's answer is not a manifest of an image: check its address")
}

/// Reads the labels in an image's config.
pub fn labels_of(config: &[u8]) -> anyhow::Result<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        config: Option<Inner>,
    }
    #[derive(Deserialize)]
    struct Inner {
        #[serde(default, rename = "Labels")]
        labels: Option<BTreeMap<String, String>>,
    }
    let config: Config = serde_json::from_slice(config)
        .context("the image's config is no JSON of an image: name another image")?;
    Ok(config
        .config
        .and_then(|inner| inner.labels)
        .unwrap_or_default())
}

/// Returns the digest that a registry's answer has for a platform: of the config, or of the
/// manifest in a list.
pub fn digest_of(body: &[u8], platform: &Platform) -> anyhow::Result<String> {
    match manifest_of(body)? {
        OciManifest::Image(image) => Ok(image.config.digest),
        OciManifest::ImageIndex(list) => of_platform(&list, platform),
    }
}

fn of_platform(list: &OciImageIndex, wanted: &Platform) -> anyhow::Result<String> {
    let platform_of = |entry: &media::ImageIndexEntry| {
        let platform = entry.platform.as_ref()?;
        Some(Platform {
            os: platform.os.to_string(),
            architecture: platform.architecture.to_string(),
        })
    };
    let mut all = list.manifests.iter();
    match all.find(|entry| platform_of(entry).as_ref() == Some(wanted)) {
        Some(entry) => Ok(entry.digest.clone()),
        None => {
            let others = list.manifests.iter().filter_map(platform_of);
            let others: Vec<String> = others.map(|it| brief(&it.to_string())).collect();
            bail!(
                "no image found for {wanted}, but for {}: choose with --platform",
                others.join(", ")
            )
        }
    }
}

/// Converts an error of the library about a registry's answer, which its text quotes.
fn library_error(error: &Library) -> anyhow::Error {
    anyhow::anyhow!(brief(&error.to_string()))
}
