//! The work between a model request and its answer.
//!
//! Reading order: [`passthrough`] (an agent without managed tools) and [`answer_reader`] (the answer that it
//! passes), [`drive`] (a turn with tools), [`spending`] (what a model call uses), [`dispatch`] (one call of a
//! tool), [`approval`] and [`waits`] (its wait for a person). Not here: the decisions of a turn, which are pure
//! (`toolcrib_mediation`).

pub mod answer_reader;
mod approval;
pub mod dispatch;
pub mod drive;
pub mod passthrough;
mod spending;
pub mod waits;
