//! The agent's authenticated identity, as services see it.

use toolcrib_manifest::{Feed, Tool};

/// `claw_id`: the name of the agent (or of its pod), never a value that a model wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClawId {
    pub name: String,
    pub namespace: String,
}

impl ClawId {
    /// Returns the identity for the tool's service. A service of another namespace gets
    /// `name.namespace`, so that two agents of the same name stay distinct.
    pub fn towards(&self, tool: &Tool) -> String {
        self.identity(tool.extension.foreign)
    }

    /// Returns the identity for a feed's service, by the same rule.
    pub fn towards_feed(&self, feed: &Feed) -> String {
        self.identity(feed.foreign)
    }

    fn identity(&self, foreign: bool) -> String {
        if foreign {
            format!("{}.{}", self.name, self.namespace)
        } else {
            self.name.clone()
        }
    }
}
