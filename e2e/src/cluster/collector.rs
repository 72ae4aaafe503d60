//! Finds or builds the OpenTelemetry Collector with which the export of records is tested.
//!
//! Not here: its sources (`e2e/collector/main.go`), and its configuration, which the tests write.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::go_program::GoModule;
use super::layout::Home;
use super::progress::Progress;

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/collector");

/// Returns the cached binary, else a new build.
pub fn collector_binary(home: &Home, progress: &Progress) -> Result<PathBuf> {
    let module = GoModule {
        name: "collector",
        title: "OpenTelemetry Collector",
        takes: "about 2 min on two cores",
        folder: Path::new(MODULE),
        sources: &["go.mod", "go.sum", "main.go"],
        packages: &["."],
        not_inlined: &[],
        linker_flags: "-s -w",
        built: "collector",
        program: "collector",
    };
    module.binary(home, progress)
}
