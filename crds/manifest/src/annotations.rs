//! A tool's annotations, as the mediator applies them and the entry digest covers them.

use serde::{Deserialize, Serialize};

use crate::{Tier, Tool};

/// The annotations that change the execution of a call. Every spelling of a name is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Annotations {
    pub read_only: bool,
    pub parallel_safe: bool,
    pub polling: bool,
    pub idempotent: bool,
    /// A successful call ends the turn.
    pub terminal_on_success: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnnotationsOnWire {
    #[serde(default, alias = "readOnlyHint", alias = "read_only")]
    read_only: Option<bool>,
    #[serde(default, rename = "parallel_safe", alias = "parallelSafe")]
    parallel_safe: Option<bool>,
    #[serde(default)]
    polling: Option<bool>,
    #[serde(default, alias = "idempotentHint")]
    idempotent: Option<bool>,
    #[serde(default, rename = "x-claw")]
    x_claw: Option<XClaw>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct XClaw {
    #[serde(default)]
    terminal_on_success: Option<bool>,
}

impl Annotations {
    /// Reads a tool's annotations. If one cannot be decoded, all count as absent, so that none of
    /// them takes effect.
    pub fn of(tool: &Tool) -> Self {
        let Some(raw) = &tool.annotations else {
            return Self::default();
        };
        let Ok(wire) = serde_json::from_str::<AnnotationsOnWire>(raw.get()) else {
            return Self::default();
        };
        let terminal = wire.x_claw.and_then(|x_claw| x_claw.terminal_on_success);
        Self {
            read_only: wire.read_only.unwrap_or_default(),
            parallel_safe: wire.parallel_safe.unwrap_or_default(),
            polling: wire.polling.unwrap_or_default(),
            idempotent: wire.idempotent.unwrap_or_default(),
            terminal_on_success: terminal.unwrap_or_default(),
        }
    }

    /// Returns true if no annotation is set except those that `tier` implies.
    pub fn is_default(self, tier: Option<&str>) -> bool {
        let implied = tier == Some(Tier::ReadOnly.name());
        self == Self {
            read_only: self.read_only && implied,
            ..Self::default()
        }
    }
}
