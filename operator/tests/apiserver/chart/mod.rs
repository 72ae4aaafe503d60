//! The chart: its values, its alerts, its role for responders, its refresh hints.

mod alerts;
mod hints;
mod responder;
mod values;
