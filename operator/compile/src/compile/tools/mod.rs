//! An agent's tools and feeds: the tools that its rules name ([`offer`]), the rules of each tool
//! ([`rules`]), and their form in the compiled files ([`lower`]).

pub mod lower;
pub mod offer;
pub mod rules;
