//! Prints diagnostics to standard error, in one or two lines each.

use std::io::IsTerminal as _;

use toolcrib_compile::{Diagnostic, LoadResult, Severity};

use super::plain;

/// The worst severity that was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Findings {
    /// No finding, or warnings only.
    Clean,
    /// At least one error.
    Errors,
}

impl Findings {
    pub fn exit_code(self) -> std::process::ExitCode {
        match self {
            Findings::Clean => std::process::ExitCode::SUCCESS,
            Findings::Errors => std::process::ExitCode::from(1),
        }
    }
}

/// Prints each finding once, in the order of objects.
pub fn findings<'a>(
    loaded: &'a LoadResult,
    diagnostics: impl IntoIterator<Item = &'a Diagnostic>,
) -> Findings {
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut all: Vec<&Diagnostic> = loaded.diagnostics.iter().chain(diagnostics).collect();
    all.sort();
    all.dedup();
    for diagnostic in &all {
        eprintln!("{}", line(diagnostic, color));
        if let Some(origin) = loaded.origins.get(&diagnostic.object) {
            eprintln!("  in {origin}");
        }
    }
    let errors = all
        .iter()
        .any(|diagnostic| diagnostic.severity == Severity::Error);
    if errors {
        Findings::Errors
    } else {
        Findings::Clean
    }
}

/// Formats a finding as `error[Code] Kind namespace/name .field: message`.
fn line(diagnostic: &Diagnostic, color: bool) -> String {
    let head = format!("{}[{}]", diagnostic.severity.name(), diagnostic.code.name());
    let head = match (color, diagnostic.severity) {
        (false, _) => head,
        (true, Severity::Error) => format!("\x1b[1;31m{head}\x1b[0m"),
        (true, Severity::Warning) => format!("\x1b[1;33m{head}\x1b[0m"),
    };
    let object = format!(
        "{} {}",
        diagnostic.object.kind.name(),
        diagnostic.object.key
    );
    let field = match diagnostic.field.as_str() {
        "" => String::new(),
        field => format!(" .{field}"),
    };
    let tail = format!("{object}{field}: {}", diagnostic.message);
    format!("{head} {}", plain(&tail))
}

#[cfg(test)]
mod tests {
    use toolcrib_compile::{Code, Kind, ObjectRef, Subject};

    use super::*;

    #[test]
    fn a_finding_is_one_line() {
        let diagnostic = Diagnostic {
            object: Subject::new(Kind::ToolGrant, &ObjectRef::new("pond", "otter-reads")),
            field: "spec.tools[0].allow[1]".into(),
            code: Code::ToolNotFound,
            severity: Code::ToolNotFound.severity(),
            message: "the surface fish has no tool dive".into(),
        };
        assert_eq!(
            line(&diagnostic, false),
            "error[ToolNotFound] ToolGrant pond/otter-reads .spec.tools[0].allow[1]: \
             the surface fish has no tool dive"
        );
    }
}
