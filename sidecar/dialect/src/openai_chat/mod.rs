//! OpenAI's `POST /v1/chat/completions`.

pub(crate) mod answer;
pub(crate) mod history;
mod legacy;
pub(crate) mod live;
pub(crate) mod reassembly;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod stream;
