// The official `openai` SDK for Node, unchanged, against the mediator: responses.
//
// Run behind `kubectl toolcrib run --agent analyst` with the scripted model playing
// ../script.yaml and the provider `ibis` of ../providers.yaml.

"use strict";

const assert = require("node:assert/strict");
const OpenAI = require("openai").default;

const { CLOCK_INTEGER, ODD_TEXT, assertMarket, assertWrongOrder, raised, run } = require("./cases");

const CLOCK = {
  type: "function",
  name: "local_clock",
  description: "The agent's own clock",
  parameters: { type: "object", properties: { zone: { type: "string" } } },
  strict: false,
};
// No retries: a case wants the error itself.
const client = new OpenAI({ maxRetries: 0, timeout: 60_000 });

function request(input, more = {}) {
  return { model: "ibis/otter-1", input, ...more };
}

function ask(input, more) {
  return client.responses.create(request(input, more));
}

/** The response that the SDK's accumulator makes of the events. */
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
  for (const way of [ask, stream]) {
    const response = await way("market");
    const text = response.output.flatMap((item) => item.content.map((part) => part.text)).join("");
    assertMarket(text);
    assert.equal(response.status, "completed");
    assert.deepEqual(response.output.map((item) => item.type), ["message"]);
    assert.equal(response.usage.total_tokens, 300);
  }
}

async function ownCalls() {
  for (const way of [ask, stream]) {
    assertOwnCalls(await way("clock", { tools: [CLOCK] }));
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

async function managedBeforeOwn() {
  await managedThenOwn("both");
  await managedThenOwn("prefix");
}

async function wrongOrder() {
  assertWrongOrder((await ask("wrong order", { tools: [CLOCK] })).output_text);
}

async function reasoningAndTextSurvive() {
  for (const way of [ask, stream]) {
    const [reasoning] = (await way("think")).output;
    assert.equal(reasoning.summary[0].text, "Deep and green.");
    assert.equal((await way("odd text")).output[0].content[0].text, ODD_TEXT);
    const cut = await way("cut by ibis");
    assert.equal(cut.incomplete_details.reason, "max_output_tokens");
  }
}

async function errorsAreTheSdksOwn() {
  const other = new OpenAI({ apiKey: "analyst:0000", maxRetries: 0 });
  const wrong = await raised(OpenAI.AuthenticationError, () => other.responses.create(request("market")));
  assert.equal(wrong.code, "unauthorized");
  assert.match((await raised(OpenAI.InternalServerError, () => ask("broken"))).message, /it broke/);
  for (const prompt of ["reset", "hangs up later"]) {
    assert.equal((await raised(OpenAI.InternalServerError, () => ask(prompt))).status, 502);
    await raised(OpenAI.OpenAIError, () => stream(prompt));
  }
  await raised(OpenAI.BadRequestError, () => ask("market", { previous_response_id: "resp_1" }));
}

run(
  [
    managedCall,
    ownCalls,
    managedBeforeOwn,
    wrongOrder,
    reasoningAndTextSurvive,
    errorsAreTheSdksOwn,
  ],
  `openai for Node at ${client.baseURL}`,
);
