// The official `openai` SDK for Node, unchanged, against the mediator: responses.
//
// Run behind `kubectl toolcrib run --agent analyst` with the scripted model playing
// ../script.yaml and the provider `ibis` of ../providers.yaml.

"use strict";

const assert = require("node:assert/strict");
const OpenAI = require("openai").default;

const { CLOCK_INTEGER, LIVE, ODD_TEXT, assertMarket, assertWrongOrder, assertResentOnlyBeforeACall, expectError, run } = require("./cases");

const CLOCK = {
  type: "function",
  name: "local_clock",
  description: "The agent's own clock",
  parameters: { type: "object", properties: { zone: { type: "string" } } },
  strict: false,
};
// No retries: the cases check the error.
const client = new OpenAI({ maxRetries: 0, timeout: 60_000 });

function request(input, more = {}) {
  return { model: "ibis/otter-1", input, ...more };
}

function ask(input, more) {
  return client.responses.create(request(input, more));
}

/** Returns the response that the SDK accumulates from the events. */
function stream(input, more) {
  return client.responses.stream(request(input, more)).finalResponse();
}

function assertOwnCalls(response) {
  const [message, ...calls] = response.output;
  assert.equal(message.content[0].text, "I will look.");
  assert.deepEqual(calls.map((call) => call.call_id), ["call_a", "call_b"]);
  assert.match(calls[0].arguments, new RegExp(`\\b${CLOCK_INTEGER}\\b`));
  assert.deepEqual(JSON.parse(calls[1].arguments), { zone: "UTC" });
}

async function managedCall() {
  for (const send of [ask, stream]) {
    const response = await send("market");
    const text = response.output.flatMap((item) => item.content.map((part) => part.text)).join("");
    assertMarket(text);
    assert.equal(response.status, "completed");
    assert.deepEqual(response.output.map((item) => item.type), ["message"]);
    assert.equal(response.usage.total_tokens, 300);
  }
}

async function ownCalls() {
  for (const send of [ask, stream]) {
    assertOwnCalls(await send("clock", { tools: [CLOCK] }));
  }
}

async function managedThenOwn(prompt) {
  const first = await ask(prompt, { tools: [CLOCK] });
  const calls = first.output.filter((item) => item.type === "function_call");
  assert.deepEqual(calls.map((call) => call.name), ["local_clock"]);
  const history = [{ role: "user", content: prompt }, ...first.output];
  for (const { call_id } of calls) {
    history.push({ type: "function_call_output", call_id, output: "half past nine" });
  }
  const [market, clock] = (await ask(history, { tools: [CLOCK] })).output_text.split("\n");
  assertMarket(market);
  assert.equal(clock, "half past nine");
}

async function managedPrefixOwnSuffix() {
  await managedThenOwn("both");
  await managedThenOwn("prefix");
}

/**
 * With Live streaming this text begins the answer; otherwise it is left out.
 * The next turn works either way.
 */
async function textBeforeAHiddenCall() {
  const first = await stream("aloud", { tools: [CLOCK] });
  const messages = first.output.filter((item) => item.type === "message");
  const texts = messages.map((item) => item.content[0].text);
  assert.deepEqual(texts, LIVE ? ["Let me look.", "And the time."] : ["And the time."]);
  const { call_id } = first.output.at(-1);
  const result = { type: "function_call_output", call_id, output: "half past nine" };
  const last = await stream([{ role: "user", content: "aloud" }, ...first.output, result], { tools: [CLOCK] });
  const [market, clock] = last.output.at(-1).content[0].text.split("\n");
  assertMarket(market);
  assert.equal(clock, "half past nine");
}

async function wrongOrder() {
  assertWrongOrder((await ask("wrong order", { tools: [CLOCK] })).output_text);
}

async function reasoningAndTextAreUnchanged() {
  for (const send of [ask, stream]) {
    const items = (await send("think")).output.filter((item) => item.type === "reasoning");
    const thoughts = items.map((item) => item.summary[0].text);
    const hidden = LIVE && send === stream ? ["Which market?"] : [];
    assert.deepEqual(thoughts, [...hidden, "Deep and green."]);
    assert.equal((await send("odd text")).output[0].content[0].text, ODD_TEXT);
    const cut = await send("cut by ibis");
    assert.equal(cut.incomplete_details.reason, "max_output_tokens");
  }
}

async function errorsInAStream() {
  await expectError(OpenAI.OpenAIError, () => stream("reset"));
  if (!LIVE) {
    await expectError(OpenAI.OpenAIError, () => stream("hangs up later"));
    return;
  }
  // The stream had begun, so the error is an event, as providers send it.
  const events = [];
  for await (const event of await ask("hangs up later", { stream: true })) events.push(event);
  const last = events.at(-1);
  assert.deepEqual([last.type, last.code], ["error", "upstream_unreachable"]);
}

async function noRetryAfterACall() {
  await assertResentOnlyBeforeACall(
    OpenAI.InternalServerError,
    (options) => new OpenAI(options),
    (other, prompt) => other.responses.create(request(prompt)),
  );
}

async function errorsHaveTheSdksTypes() {
  const other = new OpenAI({ apiKey: "analyst:0000", maxRetries: 0 });
  const wrong = await expectError(OpenAI.AuthenticationError, () => other.responses.create(request("market")));
  assert.equal(wrong.code, "unauthorized");
  assert.match((await expectError(OpenAI.InternalServerError, () => ask("broken"))).message, /it broke/);
  for (const prompt of ["reset", "hangs up later"]) {
    assert.equal((await expectError(OpenAI.InternalServerError, () => ask(prompt))).status, 502);
  }
  await errorsInAStream();
  await expectError(OpenAI.BadRequestError, () => ask("market", { previous_response_id: "resp_1" }));
}

run(
  [
    managedCall,
    ownCalls,
    managedPrefixOwnSuffix,
    textBeforeAHiddenCall,
    wrongOrder,
    reasoningAndTextAreUnchanged,
    errorsHaveTheSdksTypes,
    noRetryAfterACall,
  ],
  `openai for Node at ${client.baseURL}`,
  [managedCall, ownCalls, textBeforeAHiddenCall, reasoningAndTextAreUnchanged, errorsInAStream],
);
