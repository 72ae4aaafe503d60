//! Golden files: committed files that a test compares with what the code produces.
//!
//! With `UPDATE_EXPECT=1` every such test writes its files instead of comparing them; read the
//! difference before you commit it. A failed test prints the exact command.
//!
//! A test program whose cases are files has `harness = false` in its Cargo.toml and a [`Suite`]
//! in its `main`: each case is a test of its own, and `--test NAME CASE` runs one of them. A
//! program that has other tests beside its cases uses [`each`].
//!
//! Not here: how a case is run. Invariant: this crate alone reads `UPDATE_EXPECT`.

mod cures;

use std::any::Any;
use std::fs;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use cures::says_what_to_do;
use libtest_mimic::{Arguments, Trial};

/// The test program that a golden file belongs to, for the command that writes the file.
/// [`here!`](crate::here) makes one.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// `CARGO_PKG_NAME`.
    pub package: &'static str,
    /// `CARGO_CRATE_NAME`: the test program, or the library whose unit test this is.
    pub name: &'static str,
}

impl Target {
    /// The command that writes the golden files of this program.
    pub fn command(self) -> String {
        let Self { package, name } = self;
        if package.replace('-', "_") == name {
            format!("UPDATE_EXPECT=1 cargo test -p {package} --lib")
        } else {
            format!("UPDATE_EXPECT=1 cargo test -p {package} --test {name}")
        }
    }
}

/// The [`Target`] of the test in which this macro is used.
#[macro_export]
macro_rules! here {
    () => {
        $crate::Target {
            package: env!("CARGO_PKG_NAME"),
            name: env!("CARGO_CRATE_NAME"),
        }
    };
}

/// True if golden files are to be written.
pub fn updating() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some()
}

/// Compares the file with `actual`, or writes it. The error shows the first different line and
/// `command`.
pub fn compare(path: &Path, actual: &str, command: &str) -> Result<(), String> {
    if updating() {
        return write(path, actual).map_err(|error| format!("{}: {error}", path.display()));
    }
    let expected = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            return Err(format!(
                "{}: {error}\nTo write it: {command}",
                path.display()
            ));
        }
    };
    if expected == actual {
        return Ok(());
    }
    let line = expected
        .lines()
        .zip(actual.lines())
        .position(|(expected, actual)| expected != actual)
        .unwrap_or_else(|| expected.lines().count().min(actual.lines().count()));
    let shown = |text: &str| text.lines().nth(line).unwrap_or("(end)").to_owned();
    Err(format!(
        "{} differs in line {}\n  expected: {}\n  actual:   {}\nIf the new output is right: {command}",
        path.display(),
        line + 1,
        shown(&expected),
        shown(actual),
    ))
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

/// Fails the test if the file differs from `actual`.
///
/// # Panics
/// With the first different line and the command that writes the file.
#[track_caller]
pub fn expect(target: Target, path: &Path, actual: &str) {
    if let Err(difference) = compare(path, actual, &target.command()) {
        panic!("{difference}");
    }
}

/// Fails the test if the folder contains files other than `names`, or removes them in update mode.
/// A missing folder is accepted.
///
/// # Panics
/// With the files that the code no longer produces.
#[track_caller]
pub fn expect_no_others(target: Target, folder: &Path, names: &[&str]) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if names.iter().any(|expected| *expected == name) {
            continue;
        }
        let path = entry.path();
        if updating() {
            fs::remove_file(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        } else {
            panic!(
                "{} is no longer produced\nTo remove it: {}",
                path.display(),
                target.command()
            );
        }
    }
}

/// The folders below `root`, or its files with this extension, in the order of their names.
///
/// # Panics
/// If there are none, since a test without cases cannot fail.
pub fn cases(root: &Path, extension: Option<&str>) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let mut cases: Vec<PathBuf> = entries
        .map(|entry| {
            entry
                .unwrap_or_else(|error| panic!("{}: {error}", root.display()))
                .path()
        })
        .filter(|path| match extension {
            None => path.is_dir(),
            Some(extension) => path.extension().is_some_and(|found| found == extension),
        })
        .collect();
    cases.sort();
    assert!(!cases.is_empty(), "{} holds no cases", root.display());
    cases
}

/// Runs every case, even if an earlier one failed.
///
/// # Panics
/// With the path and the message of each failed case.
#[track_caller]
pub fn each(cases: &[PathBuf], check: impl Fn(&Path) + RefUnwindSafe) {
    let failed: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let panic = catch_unwind(|| check(case)).err()?;
            Some(format!("{}: {}", case.display(), message(&*panic)))
        })
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} cases failed\n\n{}",
        failed.len(),
        cases.len(),
        failed.join("\n\n")
    );
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}

/// A test program with one test per case, and other tests beside them.
#[derive(Default)]
pub struct Suite {
    trials: Vec<Trial>,
}

impl Suite {
    /// Adds one test per case, named by its path below the crate's `tests` folder.
    #[must_use]
    pub fn cases(
        mut self,
        cases: Vec<PathBuf>,
        check: impl Fn(&Path) + Clone + Send + 'static,
    ) -> Self {
        for case in cases {
            let check = check.clone();
            self.trials.push(Trial::test(name(&case), move || {
                check(&case);
                Ok(())
            }));
        }
        self
    }

    /// Adds a test that has no file.
    #[must_use]
    pub fn test(mut self, name: &str, test: fn()) -> Self {
        self.trials.push(Trial::test(name, move || {
            test();
            Ok(())
        }));
        self
    }

    /// Runs the tests that the program's arguments select.
    pub fn run(self) -> ExitCode {
        libtest_mimic::run(&Arguments::from_args(), self.trials).exit_code()
    }
}

/// The case's path below the nearest folder `tests`.
fn name(case: &Path) -> String {
    let parts: Vec<_> = case.iter().map(|part| part.to_string_lossy()).collect();
    let start = parts.iter().rposition(|part| part == "tests");
    parts[start.map_or(0, |at| at + 1)..].join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["newt", "otter"] {
            fs::write(folder.path().join(format!("{name}.txt")), "1\n2\n").expect("written");
        }
        folder
    }

    #[test]
    fn a_difference_names_file_line_and_command() {
        let folder = folder();
        let path = folder.path().join("otter.txt");
        assert_eq!(compare(&path, "1\n2\n", "COMMAND"), Ok(()));
        let different = compare(&path, "1\n3\n", "COMMAND").expect_err("line 2");
        for part in [
            "otter.txt differs in line 2",
            "expected: 2",
            "actual:   3",
            "COMMAND",
        ] {
            assert!(different.contains(part), "{different}");
        }
        let longer = compare(&path, "1\n2\n3\n", "COMMAND").expect_err("line 3");
        assert!(longer.contains("differs in line 3"), "{longer}");
        let absent = compare(&folder.path().join("none"), "", "COMMAND").expect_err("no file");
        assert!(absent.contains("COMMAND"), "{absent}");
    }

    #[test]
    fn all_failed_cases_are_shown() {
        let folder = folder();
        let cases = cases(folder.path(), Some("txt"));
        let failed = catch_unwind(|| each(&cases, |case| panic!("wrong: {}", name(case))));
        let shown = message(&*failed.expect_err("both fail")).to_owned();
        for part in ["2 of 2 cases failed", "newt.txt", "otter.txt", "wrong: "] {
            assert!(shown.contains(part), "{shown}");
        }
    }

    #[test]
    fn a_file_that_is_no_longer_produced_fails() {
        let folder = folder();
        let both = ["newt.txt", "otter.txt"];
        expect_no_others(here!(), folder.path(), &both);
        expect_no_others(here!(), &folder.path().join("none"), &[]);
        let failed = catch_unwind(|| expect_no_others(here!(), folder.path(), &both[..1]));
        let shown = message(&*failed.expect_err("one too many")).to_owned();
        assert!(shown.contains("otter.txt is no longer produced"), "{shown}");
        assert!(shown.contains("-p toolcrib-golden --lib"), "{shown}");
    }

    #[test]
    fn cases_are_named_below_their_tests_folder() {
        assert_eq!(name(Path::new("/a/tests/cases/otter")), "cases/otter");
        assert_eq!(name(Path::new("/a/otter")), "//a/otter");
        assert!(catch_unwind(|| cases(Path::new("/proc/self/task"), Some("otter"))).is_err());
    }
}
