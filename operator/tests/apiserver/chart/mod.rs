//! The chart: its values, its alerts, its role for responders.

mod alerts;
mod responder;
mod values;
