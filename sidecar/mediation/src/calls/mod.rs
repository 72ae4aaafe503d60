//! A call from its arguments to its result, as the model reads it and as the record has it.

pub(crate) mod arguments;
pub(crate) mod call;
pub(crate) mod call_state;
pub(crate) mod claw_id;
pub(crate) mod connection;
pub(crate) mod http_call;
pub(crate) mod outcome;
pub(crate) mod rejection;
pub(crate) mod target;
pub(crate) mod trace;
