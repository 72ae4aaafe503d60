//! Revokes a grant and adds it again under a running mediator, by swapping its files alone.

use std::{fs, thread};

use serde_json::Value;
use toolcrib_e2e::services::model::Script;

use crate::{
    machine::{Laptop, example_files, market, offered},
    mediator::{Mediator, Runner, Version},
};

/// Two rounds with the same tool, then text that quotes both results.
const TWICE: &str = "
steps:
- when: {round: 0, offers: get_market_context}
  reply: {calls: [{tool: {containing: get_market_context}, arguments: {at: noon}}]}
- when: {round: 1}
  reply: {calls: [{tool: {containing: get_market_context}, arguments: {at: dusk}}]}
- when: {round: 2}
  reply: {text: '{tool_results}'}
- reply: {text: 'offered: {tools}'}
";

/// The line in the example's Surface that declares its tool's only argument.
const IDENTITY: &str = "claw_id: {type: string, description: Agent identifier}";

/// Runs one turn; `between` runs while the model decides on its second call.
fn turn(laptop: &Laptop, runner: Runner, asked: usize, between: impl FnOnce()) -> Vec<Value> {
    let text = thread::scope(|scope| {
        let turn = scope.spawn(move || runner.ask("twice"));
        laptop.model_was_asked(asked + 1);
        laptop.let_model_answer();
        laptop.model_was_asked(asked + 2);
        between();
        laptop.let_model_answer();
        laptop.model_was_asked(asked + 3);
        laptop.let_model_answer();
        turn.join().unwrap()
    });
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn revoking_a_grant_denies_the_turns_next_call_and_granting_again_allows_the_next_turn() {
    let laptop = Laptop::start_stepped(Script::parse(TWICE).unwrap());
    let granted = tempfile::tempdir().unwrap();
    let ungranted = tempfile::tempdir().unwrap();
    for (name, text) in example_files() {
        // The two calls differ by an argument, which the tool has to declare.
        let text = text.replace(
            IDENTITY,
            &format!("{IDENTITY}\n          at: {{type: string}}"),
        );
        fs::write(granted.path().join(&name), &text).unwrap();
        if !text.contains("kind: ToolGrant") {
            fs::write(ungranted.path().join(name), text).unwrap();
        }
    }
    let granted = Version::compiled(&laptop, granted.path(), "analyst");
    let ungranted = Version::compiled(&laptop, ungranted.path(), "analyst");

    let mut mediator = Mediator::start(&granted);
    let process = mediator.process();
    let runner = mediator.runner();
    let results = turn(&laptop, runner, 0, || {
        assert_eq!(laptop.desk_log().len(), 1, "the first call ran");
        mediator.swap(&ungranted);
    });
    assert_eq!(results[0], market("analyst", "reader"));
    assert_eq!(
        results[1]["error"]["code"], "permission_denied",
        "{results:?}"
    );
    assert_eq!(results.len(), 2, "{results:?}");
    assert_eq!(laptop.desk_log().len(), 1, "nothing more reached the desk");

    // The next turn is not shown the tool.
    laptop.let_model_answer();
    assert_eq!(mediator.runner().ask("twice"), "offered: ");

    mediator.swap(&granted);
    let results = turn(&laptop, mediator.runner(), 4, || {});
    assert_eq!(
        results,
        [market("analyst", "reader"), market("analyst", "reader")]
    );
    assert_eq!(laptop.desk_log().len(), 3);
    let requests = laptop.model_requests();
    let again = offered(requests.last().unwrap());
    assert_eq!(again, ["trading-api__get_market_context"]);
    assert_eq!(mediator.process(), process);
}
