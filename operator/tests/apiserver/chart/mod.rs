//! The chart: its values, its alerts, its PodMonitors, its dashboards, its role for responders, its refresh
//! hints, the labels that grants select by, and who writes approvals and decisions.

mod alerts;
mod approvals;
mod dashboards;
mod hints;
mod monitors;
mod responder;
mod selectors;
mod values;
