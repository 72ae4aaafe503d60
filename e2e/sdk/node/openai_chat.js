// The official `openai` SDK for Node, unchanged, against the mediator: chat completions.
//
// Run behind `kubectl toolcrib run --agent analyst` with the scripted model playing
// ../script.yaml; each case checks, with the SDK's own helpers, a behaviour that agents rely on.

"use strict";

const assert = require("node:assert/strict");
const OpenAI = require("openai").default;

const { CLOCK_INTEGER, LIVE, ODD_TEXT, assertMarket, assertWrongOrder, assertResentOnlyBeforeACall, expectError, run } = require("./cases");

const CLOCK = {
  type: "function",
  function: {
    name: "local_clock",
    description: "The agent's own clock",
    parameters: { type: "object", properties: { zone: { type: "string" } } },
  },
};
// No retries: the cases check the error.
const client = new OpenAI({ maxRetries: 0, timeout: 60_000 });

function request(prompt, more = {}) {
  return { model: "otter-1", messages: [{ role: "user", content: prompt }], ...more };
}

function ask(prompt, more) {
  return client.chat.completions.create(request(prompt, more));
}

/** Returns the completion that the SDK accumulates from the chunks. */
function stream(prompt, more) {
  return client.chat.completions.stream(request(prompt, more)).finalChatCompletion();
}

function assertOwnCalls(completion) {
  const [choice] = completion.choices;
  assert.equal(choice.finish_reason, "tool_calls");
  assert.equal(choice.message.content, "I will look.");
  const calls = choice.message.tool_calls;
  assert.deepEqual(calls.map((call) => call.id), ["call_a", "call_b"]);
  assert.deepEqual(calls.map((call) => call.function.name), ["local_clock", "local_clock"]);
  assert.match(calls[0].function.arguments, new RegExp(`\\b${CLOCK_INTEGER}\\b`));
  assert.deepEqual(JSON.parse(calls[1].function.arguments), { zone: "UTC" });
}

async function managedCall() {
  const completion = await ask("market");
  const [choice] = completion.choices;
  assertMarket(choice.message.content);
  assert.equal(choice.finish_reason, "stop");
  assert.equal(choice.message.tool_calls, undefined);
  const { prompt_tokens, completion_tokens, total_tokens } = completion.usage;
  assert.deepEqual([prompt_tokens, completion_tokens, total_tokens], [250, 50, 300]);
}

async function managedCallStreamed() {
  const completion = await stream("market", { stream_options: { include_usage: true } });
  assertMarket(completion.choices[0].message.content);
  assert.equal(completion.usage.total_tokens, 300);
}

async function concurrentTurns() {
  const turns = Array.from({ length: 16 }, () => ask("market"));
  for (const completion of await Promise.all(turns)) {
    assertMarket(completion.choices[0].message.content);
  }
}

async function ownCalls() {
  assertOwnCalls(await ask("clock", { tools: [CLOCK] }));
}

async function ownCallsStreamed() {
  assertOwnCalls(await stream("clock", { tools: [CLOCK] }));
}

/** Runs the SDK's own tool loop, which must see only the agent's own tool. */
async function toolRunner(prompt) {
  const executed = [];
  const runner = client.chat.completions.runTools(
    request(prompt, {
      tools: [
        {
          type: "function",
          function: {
            ...CLOCK.function,
            parse: JSON.parse,
            function: (given) => {
              executed.push(given);
              return "half past nine";
            },
          },
        },
      ],
    }),
  );
  const [market, clock] = (await runner.finalContent()).split("\n");
  assertMarket(market);
  assert.equal(clock, "half past nine");
  assert.equal(executed.length, 1);
}

async function managedThenOwnInTheSdksLoop() {
  await toolRunner("both");
}

async function managedPrefixOwnSuffixInTheSdksLoop() {
  await toolRunner("prefix");
}

/**
 * With Live streaming this text begins the answer; otherwise it is left out.
 * The next turn works either way.
 */
async function textBeforeAHiddenCall() {
  const [{ message }] = (await stream("aloud", { tools: [CLOCK] })).choices;
  assert.equal(message.content, (LIVE ? "Let me look.\n\n" : "") + "And the time.");
  assert.deepEqual(message.tool_calls.map((call) => call.function.name), ["local_clock"]);
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "half past nine" };
  const messages = [{ role: "user", content: "aloud" }, message, result];
  const last = await stream("aloud", { messages, tools: [CLOCK] });
  const [market, clock] = last.choices[0].message.content.split("\n");
  assertMarket(market);
  assert.equal(clock, "half past nine");
}

async function wrongOrder() {
  const completion = await ask("wrong order", { tools: [CLOCK] });
  assertWrongOrder(completion.choices[0].message.content);
}

async function textAndFinishReasonAreUnchanged() {
  for (const way of [ask, stream]) {
    assert.equal((await way("odd text")).choices[0].message.content, ODD_TEXT);
  }
  assert.equal((await ask("cut short")).choices[0].finish_reason, "length");
}

async function wrongKey() {
  for (const apiKey of ["analyst:0000", "nonsense", "x".repeat(4096)]) {
    const other = new OpenAI({ apiKey, maxRetries: 0 });
    const error = await expectError(OpenAI.AuthenticationError, () =>
      other.chat.completions.create(request("market")),
    );
    assert.equal(error.code, "unauthorized");
  }
}

async function modelErrorsArePassedOn() {
  const error = await expectError(OpenAI.InternalServerError, () => ask("broken"));
  assert.match(error.message, /it broke/);
  for (const prompt of ["reset", "truncated", "hangs up later"]) {
    const error = await expectError(OpenAI.InternalServerError, () => ask(prompt));
    assert.equal(error.status, 502);
  }
}

async function noRetryAfterACall() {
  await assertResentOnlyBeforeACall(
    OpenAI.InternalServerError,
    (options) => new OpenAI(options),
    (other, prompt) => other.chat.completions.create(request(prompt)),
  );
}

async function aBrokenStreamIsAnError() {
  for (const prompt of ["reset", "hangs up later"]) {
    await expectError(OpenAI.APIError, () => stream(prompt));
  }
}

async function refusedRequests() {
  assert.equal((await expectError(OpenAI.BadRequestError, () => ask("market", { n: 2 }))).code, "n_not_supported");
  const tool_choice = { type: "function", function: { name: "no_such_tool" } };
  const error = await expectError(OpenAI.BadRequestError, () => ask("market", { tools: [CLOCK], tool_choice }));
  assert.equal(error.code, "unknown_tool_choice");
}

/** The last case, since the provider's only key is paused for seconds afterwards. */
async function aRateLimitIsPassedOn() {
  const error = await expectError(OpenAI.RateLimitError, () => ask("limited"));
  assert.equal(error.headers.get("retry-after"), "7");
}

run(
  [
    managedCall,
    managedCallStreamed,
    concurrentTurns,
    ownCalls,
    ownCallsStreamed,
    managedThenOwnInTheSdksLoop,
    managedPrefixOwnSuffixInTheSdksLoop,
    textBeforeAHiddenCall,
    wrongOrder,
    textAndFinishReasonAreUnchanged,
    wrongKey,
    modelErrorsArePassedOn,
    noRetryAfterACall,
    aBrokenStreamIsAnError,
    refusedRequests,
    aRateLimitIsPassedOn,
  ],
  `openai for Node at ${client.baseURL}`,
  [
    managedCallStreamed,
    ownCallsStreamed,
    textBeforeAHiddenCall,
    managedThenOwnInTheSdksLoop,
    managedPrefixOwnSuffixInTheSdksLoop,
    textAndFinishReasonAreUnchanged,
    aBrokenStreamIsAnError,
  ],
);
