//! The authenticated identity towards services.

use toolcrib_manifest::{Feed, Tool};

/// `claw_id`: the agent's name (or its pod's), never what a model says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClawId {
    pub name: String,
    pub namespace: String,
}

impl ClawId {
    /// As the tool's service knows it: another namespace's gets `name.namespace`, so
    /// that two agents of one name stay two.
    pub fn towards(&self, tool: &Tool) -> String {
        self.said(tool.extension.foreign)
    }

    /// The same for a feed.
    pub fn towards_feed(&self, feed: &Feed) -> String {
        self.said(feed.foreign)
    }

    fn said(&self, foreign: bool) -> String {
        if foreign {
            format!("{}.{}", self.name, self.namespace)
        } else {
            self.name.clone()
        }
    }
}
