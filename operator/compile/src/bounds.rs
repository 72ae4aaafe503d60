//! What a manifest may be at most. Over a bound, whole surfaces, then tools, are withheld
//! from the end in name order until it fits: an old object must not stay in force, or
//! bloating a surface would freeze a revoked grant.

use toolcrib_manifest::{EndpointDialect, ProvidersFile, Tool};

use crate::Code;
use crate::compilation::Files;
use crate::digest::{canonical, render};

/// Of all four files; a Secret's own limit is 1 MiB, and values take more than references.
const MAX_BYTES: usize = 700 * 1024;
/// What OpenAI takes in one request, less room for the runner's own.
const MAX_TOOLS_OPENAI: usize = 128 - 8;

/// Of feeds. All of them together show the model 64 KiB: more would only crowd each other
/// out, and be fetched in vain.
pub(crate) const MAX_FEEDS: usize = 32;

pub(crate) fn too_many_feeds() -> String {
    format!("more than {MAX_FEEDS} feeds are granted, and no more are fetched: grant fewer")
}

/// A tool that does not fit, and which bound it is over.
pub(crate) struct Excess {
    pub tool: Tool,
    pub code: Code,
    pub message: String,
}

/// Takes tools out of `files` until they fit. Tools are sorted by surface, then by name.
pub(crate) fn enforce(files: &mut Files) -> Vec<Excess> {
    let mut excess = Vec::new();
    let mut bytes: usize = render(files).values().map(String::len).sum();
    let cap = tool_cap(&files.providers).unwrap_or(usize::MAX);
    loop {
        let (code, message) = if files.tools.tools.is_empty() {
            break;
        } else if files.tools.tools.len() > cap {
            (
                Code::TooManyTools,
                format!(
                    "more than {cap} tools are granted, and the model API takes no more: grant fewer"
                ),
            )
        } else if bytes > MAX_BYTES {
            (
                Code::ManifestTooLarge,
                format!("the compiled files are over {MAX_BYTES} bytes: grant fewer tools"),
            )
        } else {
            break;
        };
        for tool in last_to_go(&mut files.tools.tools) {
            bytes = bytes.saturating_sub(canonical(&tool).len() + 1);
            excess.push(Excess {
                tool,
                code,
                message: message.clone(),
            });
        }
    }
    excess
}

fn tool_cap(providers: &ProvidersFile) -> Option<usize> {
    providers
        .providers
        .values()
        .flat_map(|provider| &provider.endpoints)
        .any(|endpoint| endpoint.dialect == EndpointDialect::Openai)
        .then_some(MAX_TOOLS_OPENAI)
}

/// The last surface's tools if there are several surfaces, else the last tool.
fn last_to_go(tools: &mut Vec<Tool>) -> Vec<Tool> {
    let Some(last) = tools.last().map(|tool| tool.execution.service.clone()) else {
        return Vec::new();
    };
    let first_of_last = tools
        .iter()
        .position(|tool| tool.execution.service == last)
        .unwrap_or(0);
    if first_of_last > 0 {
        tools.split_off(first_of_last)
    } else {
        tools.pop().into_iter().collect()
    }
}
