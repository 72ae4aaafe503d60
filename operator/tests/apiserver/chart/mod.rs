//! The chart: its values, its alerts, its role for responders, its refresh hints, the labels that grants
//! select by, and who writes approvals and decisions.

mod alerts;
mod approvals;
mod hints;
mod responder;
mod selectors;
mod values;
