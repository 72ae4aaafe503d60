//! `suspend` and `resume`.

use clap::Args as ClapArgs;

use super::ConnectionArgs;
use super::values::{self, dns_label};

/// The agents that are stopped, or started again.
#[derive(ClapArgs)]
pub struct AgentsArgs {
    /// The agent, as NAME or agent/NAME
    #[arg(value_name = "agent/NAME", value_parser = agent_name, required_unless_present = "all_agents", conflicts_with = "all_agents")]
    pub agent: Option<String>,
    /// Every agent of the namespace, which must be named
    #[arg(long, requires = "namespace")]
    pub all_agents: bool,
    /// The namespace; else the kubeconfig's own
    #[arg(short, long, value_parser = dns_label)]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

#[derive(ClapArgs)]
pub struct SuspendArgs {
    #[command(flatten)]
    pub agents: AgentsArgs,
    /// Why, in one line of at most 256 bytes: the agents' programs and users read it
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub reason: Option<String>,
}

pub(super) fn agent_name(text: &str) -> Result<String, String> {
    let name = values::without_kind(text);
    let is_of_a_label = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    match !name.is_empty() && name.len() <= 63 && name.bytes().all(is_of_a_label) {
        true => Ok(name.to_owned()),
        false => {
            Err("an agent's name has at most 63 lower-case letters, digits and '-'".to_owned())
        }
    }
}

/// Refuses a reason that the operator would shorten: here the user can correct it.
fn reason(text: &str) -> Result<String, String> {
    match toolcrib_compile::suspend_reason(text) {
        same if same == text && !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!(
            "write one line of at most {} bytes",
            toolcrib_compile::MAX_SUSPEND_REASON
        )),
    }
}
