//! Names that both sides of the contract must agree on. Names that only the operator needs are in
//! `toolcrib_compile::names`, which re-exports these.

/// The four files of one version, in the order of writing.
pub const AGENT_FILE: &str = "agent.json";
pub const TOOLS_FILE: &str = "tools.json";
pub const PROVIDERS_FILE: &str = "providers.json";
pub const FEEDS_FILE: &str = "feeds.json";
pub const FILES: [&str; 4] = [AGENT_FILE, TOOLS_FILE, PROVIDERS_FILE, FEEDS_FILE];

/// Directory of these files in the mediator.
pub const CONFIG_DIR: &str = "/etc/toolcrib/config";
/// Directory of the record and the continuity store.
pub const HISTORY_DIR: &str = "/var/lib/toolcrib";
/// The projected ServiceAccount token for the link.
pub const LINK_TOKEN_FILE: &str = "/etc/toolcrib/link/token";

/// Port for the runner: model API (and `/mcp` in native mode).
pub const LISTEN_PORT: u16 = 4141;
/// Path of the MCP server on that port.
pub const MCP_PATH: &str = "/mcp";
/// Port for probes and metrics, on loopback.
pub const ADMIN_PORT: u16 = 4142;

/// Audience of the projected ServiceAccount token that the link accepts.
pub const LINK_AUDIENCE: &str = "toolcrib.dev/link";
/// Path of the link on the operator's leader.
pub const LINK_PATH: &str = "/v1/link";
/// Path on the operator's leader that takes a [`crate::Question`].
pub const QUESTIONS_PATH: &str = "/v1/questions";

/// The argument that always carries the authenticated identity.
pub const CLAW_ID: &str = "claw_id";

/// Most ClusterToolPolicies that the files, and so the lines of the record, name.
pub const MAX_POLICIES: usize = 32;

/// Entry in `requires` of agent.json: `provider_tools: Refuse` must be enforced.
pub const PROVIDER_TOOLS: &str = "providerTools";

/// Entry in `requires` of agent.json: `budgets` must be enforced.
pub const BUDGETS: &str = "budgets/1";
/// The entries in `requires` of agent.json that this release enforces.
pub const AGENT_REQUIREMENTS: [&str; 2] = [PROVIDER_TOOLS, BUDGETS];

/// Entry in `requires` of a tool: the conditions of its rules must be enforced.
pub const RULES: &str = "rules/1";
/// Entry in `requires` of a tool: one of its rules has expressions (`when`). It is not part of [`RULES`],
/// because a mediator that knows only [`RULES`] would ignore the expressions and allow more calls. It is
/// written even if another rule of the tool has no conditions: the link may remove that rule before new
/// files are loaded.
pub const WHEN: &str = "when/1";
/// Entry in `requires` of a tool: one of its rules has rates (`rate`). It is not part of [`RULES`] for
/// the same reason as [`WHEN`].
pub const RATES: &str = "rates/1";
/// Entry in `requires` of a tool: calls need an approval, because one of its rules or a policy asks for
/// it. Not needed for tier Elevated, whose calls earlier mediators refuse.
pub const APPROVAL: &str = "approval/1";
/// The entries in `requires` of a tool that this release enforces.
pub const TOOL_REQUIREMENTS: [&str; 4] = [RULES, WHEN, RATES, APPROVAL];
