//! Builds Go programs from committed modules, once per machine and version of their sources.
//!
//! Invariant: a folder in the cache is complete, and its name is the digest of everything that the
//! build reads.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::layout::Home;
use super::lock::{BUILD_DEADLINE, Lock};
use super::process::run;
use super::progress::Progress;

/// Makes the Go compiler collect garbage less often than by default: a fifth less CPU time, for
/// some hundred MB of memory.
const GOGC: &str = "400";
/// No debug information: the linker drops it from every program here, and to generate it takes a
/// tenth of the CPU time.
const COMPILER_FLAGS: &str = "-dwarf=false";
/// Go's build gives way to Cargo's beside it: Go keeps all cores busy until its end, while Cargo's last
/// crates wait for each other.
const NICENESS: [&str; 3] = ["nice", "-n", "10"];
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// A module of which programs are built.
pub(super) struct GoModule<'a> {
    /// Name in the cache.
    pub name: &'a str,
    /// The name in messages.
    pub title: &'a str,
    /// Time of a cold build, for people who wait.
    pub takes: &'a str,
    pub folder: &'a Path,
    /// The files that the build reads, besides the modules that they name.
    pub sources: &'a [&'a str],
    pub packages: &'a [&'a str],
    /// Patterns of packages whose functions are not inlined: to compile them takes a quarter less CPU
    /// time, and to run them more.
    pub not_inlined: &'a [&'a str],
    pub linker_flags: &'a str,
    /// The name that Go gives to the first program: the last element of its package's path.
    pub built: &'a str,
    /// The name that it gets.
    pub program: &'a str,
}

impl GoModule<'_> {
    /// Returns the program: the cached one, else a new build.
    pub fn binary(&self, home: &Home, progress: &Progress) -> Result<PathBuf> {
        let folder = home.join(format!("{}-{}", self.name, self.digest()?));
        let binary = folder.join(self.program);
        if binary.is_file() {
            return Ok(binary);
        }
        let lock = home.join(format!("locks/{}-build", self.name));
        let _lock = Lock::take(&lock, BUILD_DEADLINE, |pid| {
            progress.stage(format!(
                "waiting for process {pid}, which builds {}",
                self.title
            ));
        })?;
        if !binary.is_file() {
            self.build(&folder, progress)?;
        }
        Ok(binary)
    }

    fn digest(&self) -> Result<String> {
        let mut hash = Sha256::new();
        for source in self.sources {
            let path = self.folder.join(source);
            let content = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            hash.update((content.len() as u64).to_le_bytes());
            hash.update(content);
        }
        hash.update(self.linker_flags);
        hash.update(self.compiler_flags().concat());
        Ok(hex::encode(hash.finalize())[..16].to_string())
    }

    /// The flags of the compiler. For each package, the last pattern that it matches counts.
    fn compiler_flags(&self) -> Vec<String> {
        let plain = format!("-gcflags=all={COMPILER_FLAGS}");
        let not_inlined = self.not_inlined.iter();
        let not_inlined =
            not_inlined.map(|packages| format!("-gcflags={packages}={COMPILER_FLAGS} -l"));
        [plain].into_iter().chain(not_inlined).collect()
    }

    fn build(&self, folder: &Path, progress: &Progress) -> Result<()> {
        let title = self.title;
        let go = |arguments: &[&str]| {
            let [program, niceness @ ..] = NICENESS;
            let mut command = Command::new(program);
            command
                .args(niceness)
                .arg("go")
                .current_dir(self.folder)
                .env("CGO_ENABLED", "0")
                .env("GOGC", GOGC)
                .args(arguments);
            command
        };
        progress.stage(format!(
            "{title}: fetching its Go modules (once per machine, about 1 min)"
        ));
        let packages = run(&mut go(&["list", "-deps", "."]))
            .context("is Go installed and may it fetch modules?")?
            .lines()
            .count();

        progress.stage(format!(
            "{title}: compiling (once per machine, {})",
            self.takes
        ));
        // An earlier build that was killed leaves this folder.
        let temporary = folder.with_extension("partial");
        if temporary.exists() {
            fs::remove_dir_all(&temporary).context("remove an unfinished build")?;
        }
        fs::create_dir_all(&temporary)
            .with_context(|| format!("create {}", temporary.display()))?;
        // With the separator, Go writes one program into the folder too.
        let output = format!(
            "{}/",
            temporary.to_str().context("the home's path is not UTF-8")?
        );
        let mut child = go(&["build", "-v", "-trimpath"])
            .args(self.compiler_flags())
            .args(["-ldflags", self.linker_flags, "-o", &output])
            .args(self.packages)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start go")?;
        let lines = BufReader::new(child.stderr.take().context("go's output is piped")?).lines();
        let errors = report(lines, title, packages, progress)?;
        let status = child.wait().context("wait for go")?;
        if !status.success() {
            bail!(
                "go build in {} ended with {status}:\n{errors}",
                self.folder.display()
            );
        }
        fs::rename(temporary.join(self.built), temporary.join(self.program))
            .context("name the binary")?;
        fs::rename(&temporary, folder).with_context(|| format!("write {}", folder.display()))?;
        progress.stage(format!("{title}: compiled"));
        Ok(())
    }
}

/// Prints progress. `go build -v` prints the name of each package that it compiles; other lines
/// are error messages.
fn report(
    lines: impl Iterator<Item = std::io::Result<String>>,
    title: &str,
    packages: usize,
    progress: &Progress,
) -> Result<String> {
    let mut errors = String::new();
    let mut compiled = 0;
    let mut reported = Instant::now();
    for line in lines {
        let line = line.context("read go's output")?;
        if line.contains(' ') {
            errors.push_str(&line);
            errors.push('\n');
            continue;
        }
        compiled += 1;
        if reported.elapsed() > REPORT_EVERY {
            reported = Instant::now();
            progress.stage(format!(
                "{title}: compiled {compiled} of at most {packages} packages"
            ));
        }
    }
    Ok(errors)
}

/// Returns the version of `module` in the text of a go.mod.
pub(super) fn required<'a>(go_mod: &'a str, module: &str) -> Result<&'a str> {
    go_mod
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix(module)?
                .strip_prefix(' ')?
                .split(' ')
                .next()
        })
        .with_context(|| format!("go.mod does not require {module}"))
}

/// Returns the first two numbers of a version such as `v1.35.4`.
pub(super) fn major_minor(version: &str) -> Result<[&str; 2]> {
    let mut parts = version.trim_start_matches('v').split('.');
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => Ok([major, minor]),
        _ => bail!("{version} is not a version"),
    }
}
