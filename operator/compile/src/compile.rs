//! compile: resolve → check → lower → context → bounds → digest.

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_manifest::{
    AgentFile, Context, Digests, FeedsFile, Identity, Mode, Policy, ProvidersFile, Streaming, Tier,
    ToolsExtension, ToolsFile, VERSION,
};

use crate::compilation::Files;
use crate::{
    Compilation, GrantReport, Inputs, ObjectRef, ProviderReport, SurfaceReport, manifest_digest,
};

/// Which Secrets and ConfigMaps an agent's compilation looks at: names to have facts about
/// before [`compile`] runs. Reading a value takes [`Compilation::references`], which are
/// fewer: what compile refuses is never read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    pub secrets: BTreeSet<ObjectRef>,
    pub config_maps: BTreeSet<ObjectRef>,
}

/// Compiles one agent. `None`: there is no such Agent, or it cannot be read.
pub fn compile(inputs: &Inputs, agent: &ObjectRef) -> Option<Compilation> {
    inputs.agents.get(agent)?;
    let mut files = Files {
        agent: AgentFile {
            version: VERSION,
            agent: agent.name.clone(),
            namespace: agent.namespace.clone(),
            claw_id: agent.name.clone(),
            identity: Identity::Agent,
            tokens: Vec::new(),
            models: None,
            streaming: Streaming::Buffered,
            max_tier: Tier::Elevated,
            context: Context::Mount,
            digest: None,
            files: None,
            link: inputs.settings.link.clone(),
            mode: Mode::Mediated,
            native: false,
            prompt: None,
            requires: Vec::new(),
        },
        tools: ToolsFile {
            version: VERSION,
            tools: Vec::new(),
            policy: Policy::default(),
            extension: ToolsExtension::default(),
        },
        providers: ProvidersFile {
            version: VERSION,
            providers: BTreeMap::new(),
        },
        feeds: FeedsFile::default(),
    };
    let manifest_digest = manifest_digest(&files);
    files.agent.digest = Some(Digests {
        manifest: manifest_digest.clone(),
        credentials: String::new(),
    });
    Some(Compilation {
        agent: agent.clone(),
        files,
        context: BTreeMap::new(),
        manifest_digest,
        sources: BTreeMap::new(),
        tools: Vec::new(),
        withheld: Vec::new(),
        diagnostics: Vec::new(),
        refusal: None,
    })
}

/// Compiles every agent.
pub fn compile_all(inputs: &Inputs) -> BTreeMap<ObjectRef, Compilation> {
    inputs
        .agents
        .keys()
        .filter_map(|agent| Some((agent.clone(), compile(inputs, agent)?)))
        .collect()
}

/// What must be known of Secrets and ConfigMaps to compile `agent`.
pub fn references(_inputs: &Inputs, _agent: &ObjectRef) -> References {
    References::default()
}

/// A Surface by itself, for its status. `None`: there is none.
pub fn check_surface(inputs: &Inputs, surface: &ObjectRef) -> Option<SurfaceReport> {
    inputs.surfaces.get(surface)?;
    Some(SurfaceReport {
        tools: 0,
        descriptor_digest: None,
        consumers: 0,
        diagnostics: Vec::new(),
    })
}

/// A ToolGrant by itself, for its status. `None`: there is none.
pub fn check_grant(inputs: &Inputs, grant: &ObjectRef) -> Option<GrantReport> {
    inputs.grants.get(grant)?;
    Some(GrantReport {
        agents: 0,
        tools: 0,
        diagnostics: Vec::new(),
    })
}

/// A ToolDefaults by itself, for its status. `None`: there is none.
pub fn check_defaults(inputs: &Inputs, defaults: &ObjectRef) -> Option<GrantReport> {
    inputs.defaults.get(defaults)?;
    Some(GrantReport {
        agents: 0,
        tools: 0,
        diagnostics: Vec::new(),
    })
}

/// A ModelProvider by itself, for its status. `None`: there is none.
pub fn check_provider(inputs: &Inputs, provider: &ObjectRef) -> Option<ProviderReport> {
    inputs.providers.get(provider)?;
    Some(ProviderReport {
        keys: 0,
        consumers: 0,
        diagnostics: Vec::new(),
    })
}
