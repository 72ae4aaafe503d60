//! Labels, annotations, ports and other fixed names, from the constants and their documentation.

use toolcrib_docs::cell;

const SOURCES: [&str; 2] = [
    include_str!("../../../operator/compile/src/names.rs"),
    include_str!("../../../crds/manifest/src/names.rs"),
];

const INTRODUCTION: &str = "\
# Names

Labels and annotations of Toolcrib, and the names of the objects that it writes. All are defined in one
file of the code (`operator/compile/src/names.rs`).
";

pub fn page() -> String {
    let constants: Vec<Constant> = SOURCES.into_iter().flat_map(constants).collect();
    let table = |title: &str, about: &str, has: &dyn Fn(&Constant) -> bool| {
        let rows: String = constants
            .iter()
            .filter(|constant| has(constant))
            .map(|constant| format!("| `{}` | {} |\n", constant.value, cell(&constant.about)))
            .collect();
        assert!(!rows.is_empty(), "{title}");
        format!("\n## {title}\n\n{about}\n\n| name | |\n|---|---|\n{rows}")
    };
    let ends = |suffix: &'static str| move |constant: &Constant| constant.name.ends_with(suffix);
    INTRODUCTION.to_owned()
        + &table(
            "Labels",
            "On pods, Secrets and what is compiled.",
            &ends("_LABEL"),
        )
        + &table(
            "Annotations",
            "Those that you write are `hosts` and `ca` ([where a credential may go](../guide.md#where-a-credential-may-go)), `rotate` and `env`; `image` is `surface from-image`'s, the others are the operator's.",
            &ends("_ANNOTATION"),
        )
        + &table(
            "Ports",
            "In the agent's pod, on its loopback.",
            &ends("_PORT"),
        )
        + &table(
            "The runner's environment",
            "Set in every container of an agent's pod but known sidecars.",
            &|constant: &Constant| {
                constant.name.starts_with("ENV_")
                    && constant
                        .value
                        .chars()
                        .all(|c| c.is_ascii_uppercase() || c == '_')
            },
        )
        + &table("Paths", "In the pod.", &ends("_DIR"))
        + &objects()
}

fn objects() -> String {
    use toolcrib_compile::names;
    let rows = [
        (
            "Secret",
            names::mediator_secret("AGENT"),
            "the four compiled files; only the mediator mounts it",
        ),
        (
            "Secret",
            names::identity_secret("AGENT"),
            "the runner's token, in its environment",
        ),
        (
            "ConfigMap",
            names::manifest_config_map("AGENT"),
            "`tools.json` without credentials, for admins",
        ),
        (
            "ConfigMap",
            names::context_config_map("AGENT"),
            "the tools document, skills and `mcp.json`; the runner mounts it",
        ),
        (
            "NetworkPolicy",
            names::network_policy("AGENT"),
            "with `egress: Declared`",
        ),
    ];
    let rows: String = rows
        .iter()
        .map(|(kind, name, about)| format!("| {kind} | `{name}` | {about} |\n"))
        .collect();
    format!(
        "\n## Objects per agent\n\nWritten by the operator in the agent's namespace.\n\n| kind | name | holds |\n|---|---|---|\n{rows}"
    )
}

struct Constant {
    name: String,
    value: String,
    about: String,
}

/// Reads `pub const NAME: TYPE = VALUE;` and the documentation before it. A constant without
/// documentation gets the words of its name.
fn constants(source: &str) -> Vec<Constant> {
    let mut constants = Vec::new();
    let mut about = String::new();
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("///") {
            about += text;
            continue;
        }
        let declared = line
            .strip_prefix("pub const ")
            .and_then(|rest| rest.split_once(": "))
            .and_then(|(name, rest)| Some((name, rest.split_once(" = ")?.1)));
        if let Some((name, value)) = declared {
            let value = value.trim_end_matches(';').trim_matches('"');
            constants.push(Constant {
                name: name.to_owned(),
                value: value.replace(
                    '_',
                    if value.chars().all(|c| c.is_ascii_digit() || c == '_') {
                        ""
                    } else {
                        "_"
                    },
                ),
                about: links_as_text(&about),
            });
        }
        about.clear();
    }
    constants
}

/// Replaces `[`NAME`]`, which is a link only in the code, by the constant's value.
fn links_as_text(text: &str) -> String {
    let mut text = text.to_owned();
    for (name, value) in [
        ("[`TRUE`]", "`true`"),
        ("[`ENV_OVERRIDE`]", "`override`"),
        ("[`MANAGED_BY_LABEL`]", "`app.kubernetes.io/managed-by`"),
        ("[`AGENT_LABEL`]", "`toolcrib.dev/agent`"),
        ("[`ROTATE_ANNOTATION`]", "`toolcrib.dev/rotate`"),
    ] {
        text = text.replace(name, value);
    }
    text.replace("[`", "`").replace("`]", "`")
}
