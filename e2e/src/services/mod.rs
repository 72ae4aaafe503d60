//! Programs that stand in for other services: the scripted model and the trading desk.

pub mod desk;
pub mod model;
pub mod serving;
