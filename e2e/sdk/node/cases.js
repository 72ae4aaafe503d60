// The part that the cases of the SDKs share: texts of the scripted model, checks, and the runner.

"use strict";

const assert = require("node:assert/strict");

const ODD_TEXT =
  'data: [DONE]\n\nevent: error\n"quoted" \\ \u{1f9a6} \u00e9 \u2028\u0007 {{not a placeholder}}';
// An integer in the arguments of the first call of `local_clock`, as the model wrote it. It does not
// fit in a double.
const CLOCK_INTEGER = "12345678901234567";

/** Checks that the text is the desk's answer for this agent, whatever id the model sent. */
function assertMarket(text) {
  const result = JSON.parse(text);
  assert.equal(result.ok, true, text);
  assert.equal(result.status_code, 200, text);
  assert.equal(result.data.claw_id, "analyst", text);
  assert.equal(result.data.principal, "reader", text);
}

/** Checks for two results with the error of a wrong order: nothing was executed. */
function assertWrongOrder(text) {
  const codes = text.split("\n").map((line) => JSON.parse(line).error.code);
  assert.deepEqual(codes, ["mixed_tool_order", "mixed_tool_order"]);
}

/** Returns the error of this kind that `ask` raises. */
async function expectError(kind, ask) {
  try {
    await ask();
  } catch (error) {
    assert.ok(error instanceof kind, `${error.constructor.name} and not ${kind.name}: ${error}`);
    return error;
  }
  assert.fail(`no ${kind.name}`);
}

/**
 * Checks that a retry of the SDK after a 5xx never runs a tool twice.
 * `connect` returns a client with these options, `ask` sends it a prompt.
 */
async function assertResentOnlyBeforeACall(kind, connect, ask) {
  for (const [prompt, expected] of [["broken", 3], ["hangs up later", 1]]) {
    let sent = 0;
    const counting = (...request) => {
      sent += 1;
      return fetch(...request);
    };
    const client = connect({ maxRetries: 2, timeout: 60_000, fetch: counting });
    await expectError(kind, () => ask(client, prompt));
    assert.equal(sent, expected, prompt);
  }
}

// True with Live streaming: the agent gets the model's text as it is written, hidden rounds included.
// Otherwise it gets the last reply once it is complete.
const LIVE = process.env.STREAMING === "Live";

/** Runs all cases, or with Live streaming the cases that depend on it. */
async function run(all, suite, streamed) {
  const cases = LIVE ? streamed : all;
  const failed = [];
  for (const test of cases) {
    try {
      await test();
      console.log("ok", test.name);
    } catch (error) {
      failed.push(test.name);
      console.log("FAILED", test.name, error);
    }
  }
  console.log(`${suite}: ${cases.length} cases`);
  if (failed.length > 0) {
    console.error(`failed: ${failed.join(", ")}`);
    process.exitCode = 1;
  }
}

module.exports = {
  CLOCK_INTEGER,
  LIVE,
  ODD_TEXT,
  assertMarket,
  assertWrongOrder,
  assertResentOnlyBeforeACall,
  expectError,
  run,
};
