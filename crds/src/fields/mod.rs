//! The types of fields that several kinds share, or that need a schema of their own.

pub mod agent_selector;
pub mod approval;
pub mod arguments;
pub mod authority;
pub mod budget;
pub mod descriptor;
pub mod documentation;
pub mod duration;
pub mod policy;
pub mod reference;
