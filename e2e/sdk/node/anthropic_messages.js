// The official `@anthropic-ai/sdk`, unchanged, against the mediator: messages.
//
// Run behind `kubectl toolcrib run --agent analyst` with the scripted model playing
// ../script.yaml and the provider `heron` of ../providers.yaml.

"use strict";

const assert = require("node:assert/strict");
const Anthropic = require("@anthropic-ai/sdk").default;

const { LIVE, ODD_TEXT, assertMarket, assertWrongOrder, assertResentOnlyBeforeACall, expectError, run } = require("./cases");

const CLOCK = {
  name: "local_clock",
  description: "The agent's own clock",
  input_schema: { type: "object", properties: { zone: { type: "string" } } },
};
// No retries: the cases check the error.
const client = new Anthropic({ maxRetries: 0, timeout: 60_000 });

function request(prompt, more = {}) {
  const messages = [{ role: "user", content: prompt }];
  return { model: "heron/otter-1", max_tokens: 500, messages, ...more };
}

function ask(prompt, more) {
  return client.messages.create(request(prompt, more));
}

/** Returns the message that the SDK accumulates from the events. */
function stream(prompt, more) {
  return client.messages.stream(request(prompt, more)).finalMessage();
}

function textOf(message) {
  assert.deepEqual(message.content.map((block) => block.type), ["text"]);
  return message.content[0].text;
}

async function managedCall() {
  for (const way of [ask, stream]) {
    const message = await way("market");
    assertMarket(textOf(message));
    assert.equal(message.stop_reason, "end_turn");
    assert.deepEqual([message.usage.input_tokens, message.usage.output_tokens], [250, 50]);
  }
}

async function ownCalls() {
  for (const way of [ask, stream]) {
    const message = await way("clock", { tools: [CLOCK] });
    assert.equal(message.stop_reason, "tool_use");
    const [text, ...calls] = message.content;
    assert.equal(text.text, "I will look.");
    assert.deepEqual(calls.map((call) => call.id), ["call_a", "call_b"]);
    assert.deepEqual(calls[1].input, { zone: "UTC" });
  }
}

async function managedThenOwn(prompt) {
  const first = await ask(prompt, { tools: [CLOCK] });
  const calls = first.content.filter((block) => block.type === "tool_use");
  assert.deepEqual(calls.map((call) => call.name), ["local_clock"]);
  const results = calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: "half past nine" }));
  const messages = [
    { role: "user", content: prompt },
    { role: "assistant", content: first.content },
    { role: "user", content: results },
  ];
  const [market, clock] = textOf(await ask(prompt, { messages, tools: [CLOCK] })).split("\n");
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
  const texts = first.content.filter((block) => block.type === "text").map((block) => block.text);
  assert.deepEqual(texts, LIVE ? ["Let me look.", "And the time."] : ["And the time."]);
  const { id } = first.content.at(-1);
  const messages = [
    { role: "user", content: "aloud" },
    { role: "assistant", content: first.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: id, content: "half past nine" }] },
  ];
  const last = await stream("aloud", { messages, tools: [CLOCK] });
  const [market, clock] = textOf(last).split("\n");
  assertMarket(market);
  assert.equal(clock, "half past nine");
}

async function wrongOrder() {
  assertWrongOrder(textOf(await ask("wrong order", { tools: [CLOCK] })));
}

async function thinkingAndTextAreUnchanged() {
  for (const way of [ask, stream]) {
    const { content } = await way("think");
    const thinking = content.filter((block) => block.type === "thinking");
    const hidden = LIVE && way === stream ? ["Which market?"] : [];
    assert.deepEqual(thinking.map((block) => block.thinking), [...hidden, "Deep and green."]);
    assert.ok(thinking.every((block) => block.signature));
    assertMarket(content.at(-1).text);
    assert.equal(textOf(await way("odd text")), ODD_TEXT);
    assert.equal((await way("cut by heron")).stop_reason, "max_tokens");
  }
}

async function errorsInAStream() {
  for (const prompt of ["reset", "hangs up later"]) {
    await expectError(Anthropic.AnthropicError, () => stream(prompt));
  }
}

async function noRetryAfterACall() {
  await assertResentOnlyBeforeACall(
    Anthropic.InternalServerError,
    (options) => new Anthropic(options),
    (other, prompt) => other.messages.create(request(prompt)),
  );
}

async function errorsHaveTheSdksTypes() {
  const other = new Anthropic({ apiKey: "analyst:0000", maxRetries: 0 });
  const wrong = await expectError(Anthropic.AuthenticationError, () => other.messages.create(request("market")));
  assert.equal(wrong.error.error.code, "unauthorized");
  const broken = await expectError(Anthropic.InternalServerError, () => ask("broken"));
  assert.match(broken.message, /it broke/);
  for (const prompt of ["reset", "truncated", "hangs up later"]) {
    assert.equal((await expectError(Anthropic.InternalServerError, () => ask(prompt))).status, 502);
  }
  await errorsInAStream();
  const tool_choice = { type: "tool", name: "no_such_tool" };
  const refused = await expectError(Anthropic.BadRequestError, () => ask("market", { tools: [CLOCK], tool_choice }));
  assert.equal(refused.error.error.code, "unknown_tool_choice");
}

run(
  [
    managedCall,
    ownCalls,
    managedPrefixOwnSuffix,
    textBeforeAHiddenCall,
    wrongOrder,
    thinkingAndTextAreUnchanged,
    errorsHaveTheSdksTypes,
    noRetryAfterACall,
  ],
  `@anthropic-ai/sdk at ${client.baseURL}`,
  [managedCall, ownCalls, textBeforeAHiddenCall, thinkingAndTextAreUnchanged, errorsInAStream],
);
