//! A call from its arguments to its result, in the model's words and in the record's.

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
