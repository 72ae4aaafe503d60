//! Files and standard input, line by line: those of a record, and others.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::Splitter;
use super::otlp::{RecordLine, lines_of};
use crate::failure::Failure;

/// Calls `each` with the source's name and each line of the record in its files, which can be the
/// mediator's or a collector's; `-` is standard input. Returns the number of lines that were too long
/// to read.
pub fn read_files(
    paths: &[PathBuf],
    mut each: impl FnMut(&str, RecordLine<'_>) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    read_lines(paths, |name, text| {
        let mut outcome = Ok(());
        lines_of(text, |line| {
            if outcome.is_ok() {
                outcome = each(name, line);
            }
        });
        outcome
    })
}

/// Calls `each` with the source's name and each line of its files; `-` is standard input. Returns the
/// number of lines that were too long to read.
pub fn read_lines(
    paths: &[PathBuf],
    mut each: impl FnMut(&str, &[u8]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut too_long = 0;
    for path in paths {
        let name = path.display().to_string();
        let source: Box<dyn Read> = match path == Path::new("-") {
            true => Box::new(io::stdin().lock()),
            false => Box::new(File::open(path).map_err(|error| {
                Failure::usage(format_args!(
                    "cannot open {name}: {error}: name a file that you may read"
                ))
            })?),
        };
        too_long += read(&name, source, &mut each)?;
    }
    Ok(too_long)
}

fn read(
    name: &str,
    mut source: impl Read,
    each: &mut impl FnMut(&str, &[u8]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut splitter = Splitter::default();
    let mut chunk = vec![0; 256 * 1024];
    let mut outcome = Ok(());
    let mut line = |text: &[u8]| {
        if outcome.is_ok() {
            outcome = each(name, text);
        }
    };
    loop {
        match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => splitter.push(&chunk[..length], &mut line),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Failure::usage(format_args!(
                    "cannot read {name}: {error}: name a file that you may read"
                )));
            }
        }
    }
    splitter.end(&mut line);
    outcome?;
    Ok(splitter.too_long)
}
