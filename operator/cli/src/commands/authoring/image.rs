//! `surface from-image`: the descriptor in an image as a Surface for review, or its changes since
//! the review.
//!
//! Exit codes: 0; 1 when the image cannot be read, or with `--check` if it differs from the
//! reviewed Surface; 2 when a file cannot be used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use oci_client::secrets::RegistryAuth;
use serde_json::{Value, json};
use toolcrib_compile::names::IMAGE_ANNOTATION;

use super::review::{Listing, SurfaceName};
use crate::args::{DescriptionForm, FromImageArgs};
use crate::authoring::image::credential::credential;
use crate::authoring::image::described::{Description, DescriptorFile, find};
use crate::authoring::image::descriptor::{drift, for_review};
use crate::authoring::image::registry::{Access, Image};
use crate::authoring::mcp::tools::Drift;
use crate::authoring::openapi::{self, Address, Remarks};
use crate::authoring::wrapped;
use crate::cluster::tls;
use crate::commands::authoring::review;
use crate::failure::Failure;
use crate::print;

/// Limit on reading an image: it can be large, and its lowest layer may hold the descriptor.
const DEADLINE: Duration = Duration::from_secs(600);

pub fn from_image(args: &FromImageArgs) -> Result<ExitCode, Failure> {
    let name = SurfaceName {
        name: &args.name,
        namespace: &args.namespace,
    };
    let reviewed = review::reviewed(&name, &args.paths)?;
    let before = match (&reviewed, place(args)) {
        (Some(surface), _) => surface.clone(),
        (None, Some(spec)) => review::new_surface(&name, spec),
        (None, None) if args.output == DescriptionForm::Descriptor => {
            review::new_surface(&name, json!({}))
        }
        (None, None) => {
            return Err(Failure::usage(
                "where does the image run? Say it with --service or --url, or name the Surface's file with -f",
            ));
        }
    };
    let (image, described) = read(args)?;
    let mut remarks = Remarks::default();
    let (mut surface, drift) = with(before, described.description, &mut remarks)?;
    if reviewed.is_some() {
        for change in &drift {
            eprintln!("{change}");
        }
        note_new_digest(&surface, &image);
    }
    if args.check {
        return Ok(ExitCode::from(u8::from(!drift.is_empty())));
    }
    for line in openapi::lines(&remarks.0) {
        eprintln!("{line}");
    }
    if args.output == DescriptionForm::Descriptor {
        let text = serde_json::to_string_pretty(&surface["spec"]["descriptor"])
            .context("the descriptor does not print as JSON")?;
        print::to_stdout(&(text + "\n")).context("cannot write to standard output")?;
        return Ok(ExitCode::SUCCESS);
    }
    surface["metadata"]["annotations"][IMAGE_ANNOTATION] = image.into();
    let place = described.place;
    let comment = format!(
        "As {place} of the image says. Nobody may call its tools yet: a ToolGrant gives them."
    );
    review::print(surface, comment, &remarks)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the address of a new Surface's service.
fn place(args: &FromImageArgs) -> Option<Value> {
    match args.service.as_ref().or(args.url.as_ref())? {
        Address::Service { name, port } => Some(json!({"service": {"name": name, "port": port}})),
        Address::Url(url) => Some(json!({"url": url.as_str().trim_end_matches('/')})),
    }
}

/// Reads the image; returns its name by tag and digest, and its descriptor.
fn read(args: &FromImageArgs) -> Result<(String, DescriptorFile), Failure> {
    let access = access(args)?;
    tls::provide()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let shown = args.image.whole();
    let question = async {
        let mut image = Image::open(access, &args.platform).await?;
        let described = find(&mut image).await?;
        Ok::<_, anyhow::Error>((image.digest, described))
    };
    let answer = runtime.block_on(async { tokio::time::timeout(DEADLINE, question).await });
    let answer = answer.with_context(|| {
        format!(
            "not read within {} s: ask again, or pull the image to a registry nearby",
            DEADLINE.as_secs()
        )
    });
    let (digest, described) = answer.flatten().with_context(|| shown.clone())?;
    let tagged = shown.split('@').next().unwrap_or(&shown);
    Ok((format!("{tagged}@{digest}"), described))
}

fn access(args: &FromImageArgs) -> Result<Access, Failure> {
    let registry = args.image.registry();
    if args.plain_http && !is_loopback(registry) {
        return Err(Failure::usage(format_args!(
            "--plain-http is for registries of this machine, and {registry} is none: what it says could be anybody's"
        )));
    }
    if args
        .image
        .digest()
        .is_some_and(|digest| !digest.starts_with("sha256:"))
    {
        return Err(Failure::usage("only sha256 digests are verified here"));
    }
    Ok(Access {
        reference: args.image.clone(),
        auth: auth(args.docker_config.as_deref(), registry)?,
        is_plain: args.plain_http,
    })
}

fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => registry,
    };
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse()
            .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

fn auth(config: Option<&Path>, registry: &str) -> Result<RegistryAuth, Failure> {
    let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker/config.json"));
    let Some(path) = config.map(Path::to_owned).or_else(usual) else {
        return Ok(RegistryAuth::Anonymous);
    };
    let shown = path.display();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if config.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(RegistryAuth::Anonymous);
        }
        Err(error) => return Err(Failure::usage(format_args!("cannot read {shown}: {error}"))),
    };
    credential(&text, registry).map_err(|error| Failure::usage(format_args!("{shown} {error}")))
}

/// Puts the image's descriptor into the Surface; also returns the differences.
fn with(
    mut surface: Value,
    description: Description,
    remarks: &mut Remarks,
) -> Result<(Value, Vec<Drift>), Failure> {
    match description {
        Description::Tools(listed) => {
            let listing = Listing::of(Some(&surface), &listed, "the image's list")?;
            *remarks = listing.remarks;
            if surface["spec"]["descriptor"].is_null() {
                surface["spec"]["mcp"] = json!({"path": wrapped::PATH});
            }
            Ok((
                review::with_mcp_tools(surface, listing.tools),
                listing.drift,
            ))
        }
        Description::Descriptor { descriptor, skill } => {
            let name = surface["metadata"]["name"].as_str().unwrap_or_default();
            let now = for_review(descriptor, skill, name, remarks);
            let drift = drift(&surface["spec"]["descriptor"], &now);
            surface["spec"]["descriptor"] = now;
            Ok((surface, drift))
        }
    }
}

/// Prints the image's new digest. It is not a change to review if the descriptor is the same.
fn note_new_digest(surface: &Value, image: &str) {
    let pinned = surface["metadata"]["annotations"][IMAGE_ANNOTATION].as_str();
    if let Some(pinned) = pinned.filter(|pinned| *pinned != image) {
        eprintln!("image: {image}, reviewed at {}", pinned.escape_debug());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_limited_to_this_machine() {
        for local in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:5000",
            "[::1]:5000",
        ] {
            assert!(is_loopback(local), "{local}");
        }
        for other in [
            "pond.test",
            "pond.test:5000",
            "127.0.0.1.pond.test:80",
            "10.0.0.1:5000",
            "localhost.pond.test",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
