//! Every diagnostic, with cause and cure.

use toolcrib_compile::{Code, Concern, Severity};

const INTRODUCTION: &str = "\
# Diagnostics

These are the compiler's findings on your objects. `kubectl toolcrib` prints their codes, and the same
codes are the reasons of conditions and events, the `code` of `status.withheld`, and a label of the
controller's [metrics](operator-metrics.md). Whatever is wrong, the rest of the agent is compiled and in
force.

An *error* withholds a tool, feed or model that the objects ask for. A *warning* withholds nothing, or
only what the objects ask to withhold. Findings on an object's own spec are in its condition `Accepted`,
findings on its references in `Resolved`.
";

pub fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    for code in Code::ALL {
        let severity = match code.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let concern = match code.concern() {
            Concern::Spec => "`Accepted`",
            Concern::Reference => "`Resolved`",
        };
        text += &format!(
            "\n## {}\n\n*{severity}*, in {concern}. {}\n\n**Cause.** {}\n\n**Cure.** {}\n",
            code.name(),
            code.meaning(),
            code.cause(),
            code.cure()
        );
    }
    text
}
