//! The chart: its values, its alerts, its role for responders, its refresh hints, and the
//! labels that grants select by.

mod alerts;
mod hints;
mod responder;
mod selectors;
mod values;
