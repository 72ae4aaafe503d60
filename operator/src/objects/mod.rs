//! Watched objects of the API server in memory, for the controller and the webhook.
//!
//! Reading order: [`pages`] (lists in bounded pages); [`decode`] (one object), [`metadata`] and [`string_arena`]
//! (the metadata of an object that is not decoded); [`budget`] (what a namespace may take);
//! [`store`] (objects by key) and [`stores`] (one store per kind).
//! Not here: which objects are watched, and what a change of one causes.
//!
//! Invariant: an object that cannot be decoded, or is over its budget, affects no other object.

pub mod budget;
pub mod decode;
pub mod metadata;
pub mod pages;
pub mod store;
pub mod stores;
pub mod string_arena;
