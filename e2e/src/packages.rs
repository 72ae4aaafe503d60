//! Third-party packages that tests run, from their package indexes.
//!
//! They are installed into environments under `~/.cache/toolcrib`, one per list, with `pip`, `npm`
//! or `apt-get`; after that no internet is needed. A lock lets one process install at a time.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::cluster::process::run;

/// Gateways that are measured beside the mediator: the program's name, and its list for [`python`].
pub const GATEWAYS: [(&str, &str); 2] = [
    ("smg", "../bench/field/smg.txt"),
    // The list of the tests with LiteLLM as a provider.
    ("litellm", "../providers/requirements.txt"),
];

/// The Python interpreter of an environment with the packages of this list in `e2e/sdk`.
pub fn python(list: &str) -> Result<PathBuf> {
    let list = sdk().join(list);
    let environment = environment(&list, |folder| {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        run(Command::new(folder.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet"])
            .args(["--disable-pip-version-check", "-r"])
            .arg(&list))?;
        Ok(())
    })?;
    Ok(environment.join("bin/python"))
}

/// The `node_modules` folder for the `package-lock.json` in this folder of `e2e/sdk`.
pub fn node_modules(folder: &str) -> Result<PathBuf> {
    let sources = sdk().join(folder);
    let environment = environment(&sources.join("package-lock.json"), |folder| {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(sources.join(file), folder.join(file))?;
        }
        run(Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit"])
            .args(["--no-fund", "--silent"])
            .current_dir(folder))?;
        Ok(())
    })?;
    Ok(environment.join("node_modules"))
}

/// Unpacks the Debian packages of this list in `e2e/sdk`, one per line, and returns the root of
/// their files. Installing them would start their services.
pub fn debian(list: &str) -> Result<PathBuf> {
    let list = sdk().join(list);
    let environment = environment(&list, |folder| {
        let names = fs::read_to_string(&list)?;
        let download = || {
            run(Command::new("apt-get")
                .args(["download", "--quiet"])
                .args(names.split_whitespace())
                .current_dir(folder))
        };
        // A machine may have no package index yet, or an outdated one.
        if download().is_err() {
            run(Command::new("apt-get").args(["update", "--quiet"]))?;
            download()?;
        }
        for file in fs::read_dir(folder)? {
            let file = file?.path();
            if file.extension().is_some_and(|it| it == "deb") {
                run(Command::new("dpkg-deb")
                    .arg("--extract")
                    .arg(&file)
                    .arg(folder.join("root")))?;
            }
        }
        Ok(())
    })?;
    Ok(environment.join("root"))
}

fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk")
}

/// Returns the folder for the packages that `list` pins. If it is missing, creates it and calls
/// `install`, in one process at a time.
fn environment(list: &Path, install: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let list = fs::read(list).with_context(|| format!("read {}", list.display()))?;
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    let cache = Path::new(&home).join(".cache/toolcrib");
    fs::create_dir_all(&cache)?;
    let lock = File::create(cache.join("sdk.lock"))?;
    lock.lock()?;

    let name = format!("sdk-{}", &hex::encode(Sha256::digest(&list))[..16]);
    let environment = cache.join(name);
    let complete = environment.join("complete");
    if !complete.is_file() {
        if environment.exists() {
            fs::remove_dir_all(&environment)?;
        }
        fs::create_dir(&environment)?;
        install(&environment).context("install packages")?;
        fs::write(&complete, &list)?;
    }
    Ok(environment)
}
