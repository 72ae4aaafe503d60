//! Caches watched objects of the API server, for the controller and the webhook.
//!
//! Reading order: [`pages`] (lists in bounded pages); [`decode`] (one object), [`metadata`] and
//! [`string_arena`] (the metadata of an object that is not decoded); [`budget`] (the memory of
//! each namespace); [`store`] (objects by key) and [`stores`] (one store per kind).
//! Not here: the choice of watched objects, and the effects of a change.
//!
//! Invariant: an object that cannot be decoded, or is over its budget, affects no other object.

pub mod budget;
pub mod decode;
pub mod metadata;
pub mod pages;
pub mod store;
pub mod stores;
pub mod string_arena;
