// What the cases of the SDKs share: what the scripted model says, and how cases are run.

"use strict";

const assert = require("node:assert/strict");

const ODD_TEXT =
  'data: [DONE]\n\nevent: error\n"quoted" \\ \u{1f9a6} \u00e9 \u2028\u0007 {{not a placeholder}}';
// The arguments of the first call of `local_clock` as the model wrote them: the integer is
// one that a double cannot hold.
const CLOCK_INTEGER = "12345678901234567";

/** The desk's answer for this very agent, whoever the model asked for. */
function assertMarket(text) {
  const result = JSON.parse(text);
  assert.equal(result.ok, true, text);
  assert.equal(result.status_code, 200, text);
  assert.equal(result.data.claw_id, "analyst", text);
  assert.equal(result.data.principal, "reader", text);
}

/** Two results that say that nothing was executed. */
function assertWrongOrder(text) {
  const codes = text.split("\n").map((line) => JSON.parse(line).error.code);
  assert.deepEqual(codes, ["mixed_tool_order", "mixed_tool_order"]);
}

/** The error of this kind that asking ends with. */
async function raised(kind, ask) {
  try {
    await ask();
  } catch (error) {
    assert.ok(error instanceof kind, `${error.constructor.name} and not ${kind.name}: ${error}`);
    return error;
  }
  assert.fail(`no ${kind.name}`);
}

/**
 * An SDK that sends a request again after a 5xx does not run a tool again that way.
 * `connect` makes a client of its options, `ask` gives it a prompt.
 */
async function isResentOnlyBeforeACall(kind, connect, ask) {
  for (const [prompt, expected] of [["broken", 3], ["hangs up later", 1]]) {
    let sent = 0;
    const counting = (...request) => {
      sent += 1;
      return fetch(...request);
    };
    const client = connect({ maxRetries: 2, timeout: 60_000, fetch: counting });
    await raised(kind, () => ask(client, prompt));
    assert.equal(sent, expected, prompt);
  }
}

// What streams reach the agent: what the model writes while it writes it, hidden rounds
// included, or the last reply once it is whole.
const LIVE = process.env.STREAMING === "Live";

/** All cases, or with Live streaming those that it makes a difference to. */
async function run(all, what, streamed) {
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
  console.log(`${what}: ${cases.length} cases`);
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
  isResentOnlyBeforeACall,
  raised,
  run,
};
