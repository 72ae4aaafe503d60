//! Every diagnostic, with cause and cure.

use toolcrib_compile::{Code, Concern, Severity};

const INTRODUCTION: &str = "\
# Diagnostics

What the compiler has to say of your objects. The same codes are what `kubectl toolcrib`
prints, the reasons of conditions and events, the `code` of `status.withheld`, and a label of
the controller's [metrics](operator-metrics.md). Whatever is wrong, the rest of the agent is
compiled and in force.

An *error* withholds something that was asked for; a *warning* withholds nothing, or what was
asked to be withheld. Findings on an object's own spec show in its condition `Accepted`, those
on what it refers to in `Resolved`.
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
