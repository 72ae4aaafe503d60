// Calls that wait a minute for a person: the official SDKs for Node and MCP's client, unchanged, with
// their own timeouts.
//
// Run behind `kubectl toolcrib run --agent executor`. Each client makes another trade, all at the same
// time. Prints a line of JSON for each: its name, the seconds that it waited, and what it read.

"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");

const Anthropic = require("@anthropic-ai/sdk").default;
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const OpenAI = require("openai").default;

const TRADE = "trading-api__execute_trade";
const CHAT = "scripted/otter-1";
const RESPONSES = "ibis/otter-1";
const MESSAGES = "heron/otter-1";

function messages(prompt) {
  return [{ role: "user", content: prompt }];
}

async function chat(prompt) {
  const answer = await new OpenAI().chat.completions.create({ model: CHAT, messages: messages(prompt) });
  return answer.choices[0].message.content;
}

async function chatStreamed(prompt) {
  const stream = new OpenAI().chat.completions.stream({ model: CHAT, messages: messages(prompt) });
  return stream.finalContent();
}

async function responses(prompt) {
  return (await new OpenAI().responses.create({ model: RESPONSES, input: prompt })).output_text;
}

async function responsesStreamed(prompt) {
  const stream = new OpenAI().responses.stream({ model: RESPONSES, input: prompt });
  return (await stream.finalResponse()).output_text;
}

function anthropicRequest(prompt) {
  return { model: MESSAGES, max_tokens: 500, messages: messages(prompt) };
}

async function anthropicMessages(prompt) {
  return (await new Anthropic().messages.create(anthropicRequest(prompt))).content[0].text;
}

async function anthropicMessagesStreamed(prompt) {
  return new Anthropic().messages.stream(anthropicRequest(prompt)).finalText();
}

async function mcpClient() {
  const file = path.join(process.env.TOOLCRIB_CONTEXT, "mcp.json");
  const { url } = JSON.parse(fs.readFileSync(file, "utf8")).mcpServers.toolcrib;
  const headers = { Authorization: `Bearer ${process.env.TOOLCRIB_TOKEN}` };
  const client = new Client({ name: "waiting", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  return client;
}

function trade(prompt) {
  const quantity = Number(prompt.split(" ").at(-1));
  return { name: TRADE, arguments: { symbol: "OTTR", side: "buy", quantity } };
}

/** A client that wants to hear of progress, and waits as long as it hears of it. */
async function mcpWithProgress(prompt) {
  const client = await mcpClient();
  const heard = [];
  const options = { onprogress: (progress) => heard.push(progress), resetTimeoutOnProgress: true };
  const result = await client.callTool(trade(prompt), undefined, options);
  assert.ok(heard.length > 0, "no progress");
  await client.close();
  return result.content[0].text;
}

/** A client that gives up after a minute, and so is told to ask again. */
async function mcpWithoutProgress(prompt) {
  const client = await mcpClient();
  const first = (await client.callTool(trade(prompt))).content[0].text;
  assert.match(first, /approval_pending/);
  const second = (await client.callTool(trade(prompt))).content[0].text;
  await client.close();
  return second;
}

const CLIENTS = [
  chat,
  chatStreamed,
  responses,
  responsesStreamed,
  anthropicMessages,
  anthropicMessagesStreamed,
  mcpWithProgress,
  mcpWithoutProgress,
];

async function wait(client, number) {
  const began = performance.now();
  const answer = await client(`buy ${501 + number}`).catch((error) => String(error));
  const seconds = Math.round((performance.now() - began) / 100) / 10;
  console.log(JSON.stringify({ client: client.name, seconds, answer }));
}

Promise.all(CLIENTS.map(wait));
