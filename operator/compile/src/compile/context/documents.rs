//! Writes the tools document and the skills. They hold no address of a governed service and no
//! credential.

use std::collections::BTreeMap;

use toolcrib_manifest::{AgentFile, Mode, Tool};

use crate::names;
use crate::surface::descriptor::DescribedEndpoint;

/// The part of a surface that the document shows.
#[derive(Clone, Debug)]
pub(crate) struct ContextSurface<'a> {
    /// The agent's alias of the surface.
    pub name: &'a str,
    pub description: &'a str,
    pub skill: Option<&'a str>,
    /// Endpoints of a surface that declares no tools, which a runner calls by hand. Empty if the
    /// surface declares any tool.
    pub endpoints: &'a [DescribedEndpoint],
    pub base_url: Option<&'a str>,
}

/// Limits all text of the ConfigMap; Kubernetes takes 1 MiB.
const MAX_BYTES: usize = 700 * 1024;
/// Limits the line of one tool, so that it is read at a glance.
const MAX_LINE: usize = 300;

/// Limits the bytes of the document in each request, since the user pays for their tokens.
pub(crate) const MAX_PROMPT: usize = 32 * 1024;

/// Cuts the document for the model's prompt, visibly and after a whole line. Returns whether it
/// was cut.
pub(crate) fn for_prompt(document: String) -> (String, bool) {
    const CUT: &str = "\n… the rest is left out\n";
    if document.len() <= MAX_PROMPT {
        return (document, false);
    }
    let room = document.floor_char_boundary(MAX_PROMPT - CUT.len());
    let end = document[..room].rfind('\n').unwrap_or(room);
    (format!("{}{CUT}", &document[..end]), true)
}

/// Returns the data of the ConfigMap, and the surfaces whose skills did not fit.
pub(crate) fn render(
    agent: &AgentFile,
    tools: &[Tool],
    surfaces: &[ContextSurface<'_>],
) -> (BTreeMap<String, String>, Vec<String>) {
    let mut data = BTreeMap::new();
    let mut left_out = Vec::new();
    let mut room = MAX_BYTES;
    let mut skills = Vec::new();
    for surface in surfaces {
        let Some(skill) = surface.skill else { continue };
        let text = with_front_matter(surface, skill);
        match room.checked_sub(text.len()) {
            Some(rest) => {
                room = rest;
                data.insert(names::skill_file(surface.name), text);
                skills.push(surface);
            }
            None => left_out.push(surface.name.to_owned()),
        }
    }
    data.insert(
        names::CONTEXT_DOCUMENT.to_owned(),
        document(agent, tools, surfaces, &skills),
    );
    (data, left_out)
}

fn document(
    agent: &AgentFile,
    tools: &[Tool],
    surfaces: &[ContextSurface<'_>],
    skills: &[&ContextSurface<'_>],
) -> String {
    let mut text = format!("# Tools of {}\n\n## Tools\n\n", agent.agent);
    if tools.is_empty() {
        text.push_str("None.\n");
    } else {
        text.push_str(&way(agent));
    }
    for tool in tools {
        line(&mut text, &tool.name, &tool.description);
    }
    text.push_str("\n## Skills\n\n");
    if skills.is_empty() {
        text.push_str("None.\n");
    }
    for surface in skills {
        line(
            &mut text,
            &names::skill_file(surface.name),
            surface.description,
        );
    }
    for surface in surfaces {
        let (Some(base_url), false) = (surface.base_url, surface.endpoints.is_empty()) else {
            continue;
        };
        let heading = format!(
            "\n## Endpoints of {}\n\nAt {base_url}; not governed, called by hand.\n\n",
            surface.name
        );
        text.push_str(&heading);
        for endpoint in surface.endpoints {
            line(
                &mut text,
                &format!(
                    "{} {}",
                    one_line(&endpoint.method),
                    one_line(&endpoint.path)
                ),
                &endpoint.description,
            );
        }
    }
    text
}

/// Describes how to call the tools if not by the model's API alone.
fn way(agent: &AgentFile) -> String {
    let server = names::MCP_SERVER;
    match (agent.mode, agent.native) {
        (Mode::Mediated, false) => String::new(),
        (Mode::Mediated, true) => {
            format!("Offered in each request, and by the MCP server `{server}`.\n\n")
        }
        (Mode::Native, _) => format!("Offered by the MCP server `{server}`.\n\n"),
    }
}

fn line(text: &mut String, name: &str, description: &str) {
    let description = one_line(description);
    text.push_str("- `");
    text.push_str(name);
    text.push('`');
    if !description.is_empty() {
        text.push_str(": ");
        text.push_str(&description);
    }
    text.push('\n');
}

/// Makes one line without control characters, cut visibly: a description must not forge the
/// document.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    toolcrib_bounds::cut(&words.join(" "), MAX_LINE).into_owned()
}

/// Adds front matter to a skill that has none, so that runners list it.
fn with_front_matter(surface: &ContextSurface<'_>, skill: &str) -> String {
    if skill.trim_start().starts_with("---") {
        return skill.to_owned();
    }
    let description = match one_line(surface.description) {
        empty if empty.is_empty() => format!("How to use {}", surface.name),
        description => description,
    };
    let description =
        serde_json::to_string(&description).expect("a string is always JSON, which is YAML");
    format!(
        "---\nname: {}\ndescription: {description}\n---\n\n{skill}",
        surface.name
    )
}
