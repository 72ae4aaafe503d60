//! The kinds of requests: their bodies, and how often each is sent.

use std::sync::LazyLock;

use crate::cases::{CHAT, long_chat, said};
use crate::load::Step;

/// Numbers of the tools with a part of their own. The others are called over HTTP.
pub const HTTP: usize = 0;
pub const MCP: usize = 1;
pub const MCP_SESSION: usize = 2;
pub const REVOCABLE: usize = 5;
/// The tool that never answers.
pub const HUNG: usize = 9;
pub const TOOLS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    NoCall,
    /// Hidden rounds with one call each.
    Rounds {
        count: u32,
        tool: usize,
    },
    Revocable,
    /// A call that ends at its deadline.
    Hung,
    /// The client hangs up during a call that never answers.
    HungUp,
    LongHistory,
    Streamed,
    /// The client closes the connection in the middle of a stream.
    CanceledStream,
    WrongToken,
    InvalidBody,
    /// The request asks for two answers at once.
    TwoAnswers,
    /// The client hangs up in the middle of the request's body.
    HalfBody,
}

/// The kinds of a connection to the mediator with tools, one after the other.
pub const WITH_TOOLS: &[Kind] = &[
    Kind::NoCall,
    rounds(2, HTTP),
    Kind::Streamed,
    rounds(2, MCP),
    Kind::Revocable,
    Kind::NoCall,
    rounds(2, MCP_SESSION),
    Kind::WrongToken,
    rounds(8, HTTP),
    Kind::LongHistory,
    rounds(2, HTTP),
    Kind::CanceledStream,
    Kind::Revocable,
    rounds(8, MCP),
    Kind::NoCall,
    Kind::InvalidBody,
    rounds(2, MCP),
    Kind::Streamed,
    Kind::Revocable,
    Kind::TwoAnswers,
    Kind::HalfBody,
];

/// The kinds of a connection to the mediator without tools, which passes requests through.
pub const WITHOUT_TOOLS: &[Kind] = &[
    Kind::NoCall,
    Kind::Streamed,
    Kind::NoCall,
    Kind::LongHistory,
    Kind::CanceledStream,
    Kind::NoCall,
    Kind::WrongToken,
    Kind::HalfBody,
];

/// The kinds of a connection that waits for the tool that never answers.
pub const WAITING: &[Kind] = &[Kind::Hung, Kind::HungUp];

const fn rounds(count: u32, tool: usize) -> Kind {
    Kind::Rounds { count, tool }
}

impl Kind {
    pub fn name(self) -> String {
        let fixed = match self {
            Kind::Rounds { count, tool } => {
                let over = match tool {
                    MCP => "MCP",
                    MCP_SESSION => "MCP with a session",
                    _ => "HTTP",
                };
                return format!("{count} hidden rounds over {over}");
            }
            Kind::NoCall => "no call",
            Kind::Revocable => "a call of the revocable tool",
            Kind::Hung => "a hung call, to its deadline",
            Kind::HungUp => "a hung call, client hangs up",
            Kind::LongHistory => "100 KB history",
            Kind::Streamed => "streamed",
            Kind::CanceledStream => "streamed, client cancels",
            Kind::WrongToken => "refused: wrong token",
            Kind::InvalidBody => "refused: a body that is not JSON",
            Kind::TwoAnswers => "refused: two answers at once",
            Kind::HalfBody => "half a body, client hangs up",
        };
        fixed.to_owned()
    }

    /// Returns the request with this number.
    pub fn step(self, number: u64) -> Step {
        let body = match self {
            Kind::NoCall | Kind::WrongToken | Kind::HalfBody => {
                said(&format!("otter-r0-n{number}"), false)
            }
            Kind::Rounds { count, tool } => {
                said(&format!("otter-r{count}-t{tool}-n{number}"), false)
            }
            Kind::Revocable => said(&format!("otter-r1-t{REVOCABLE}-n{number}"), false),
            Kind::Hung | Kind::HungUp => said(&format!("otter-r1-t{HUNG}-n{number}"), false),
            Kind::Streamed | Kind::CanceledStream => said(&format!("otter-r0-n{number}"), true),
            Kind::LongHistory => {
                static LONG: LazyLock<String> = LazyLock::new(long_chat);
                LONG.replacen("otter-r0", &format!("otter-r0-n{number}"), 1)
            }
            Kind::InvalidBody => {
                let mut body = said(&format!("otter-r0-n{number}"), false);
                body.pop();
                body
            }
            Kind::TwoAnswers => {
                let body = said(&format!("otter-r0-n{number}"), false);
                body.replacen("\"stream\"", "\"n\":2,\"stream\"", 1)
            }
        };
        Step::post(CHAT, body)
    }
}

/// Returns the number of the request whose model has this name.
pub fn number_of(model: &str) -> Option<u64> {
    model.rsplit_once("-n")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_but_one_is_json_whose_model_has_the_number() {
        for kind in [WITH_TOOLS, WITHOUT_TOOLS, WAITING].concat() {
            let body = serde_json::from_slice::<serde_json::Value>(kind.step(17).body());
            assert_eq!(body.is_err(), kind == Kind::InvalidBody, "{kind:?}");
            let Ok(body) = body else { continue };
            let model = body["model"].as_str().unwrap();
            assert_eq!(number_of(model), Some(17), "{model}");
        }
    }
}
