//! The program that uses the mediator: its identity, its attacks, Native mode.

mod identity;
mod native;
mod native_sessions;
mod security;
