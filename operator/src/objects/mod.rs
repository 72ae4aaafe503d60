//! Objects of the API server as this process holds them, for the controller and the webhook.
//!
//! Reading order: [`pages`] (lists in bounded pages); [`decode`] (one object), [`kept`] and [`texts`]
//! (the metadata of an object that is not decoded); [`budget`] (what a namespace may take);
//! [`tables`] (objects by key) and [`stores`] (all tables).
//! Not here: which objects are watched, and what a change of one causes.
//!
//! Invariant: an object that cannot be decoded, or is over its budget, affects no other object.

pub mod budget;
pub mod decode;
pub mod kept;
pub mod pages;
pub mod stores;
pub mod tables;
pub mod texts;
