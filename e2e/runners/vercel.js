// An agent on the Vercel AI SDK with one tool of its own. `vercel.js KIND` streams one turn; KIND is responses,
// chat, messages or native. Addresses and keys come from the environment.

const { isStepCount, streamText, tool } = require("ai");
const { anthropic } = require("@ai-sdk/anthropic");
const { openai } = require("@ai-sdk/openai");
const { createMCPClient } = require("@ai-sdk/mcp");
const { z } = require("zod");

const models = {
  responses: () => openai("gpt-5"),
  chat: () => openai.chat("gpt-5"),
  messages: () => anthropic("claude-sonnet-4-5"),
  native: () => openai("gpt-5"),
};

async function main(kind) {
  const tools = {
    local_clock: tool({
      description: "The agent's own clock",
      inputSchema: z.object({}),
      execute: async () => "heron-42",
    }),
  };
  let client;
  if (kind === "native") {
    const url = process.env.OPENAI_BASE_URL.replace(/\/v1$/, "/mcp");
    const headers = { Authorization: `Bearer ${process.env.TOOLCRIB_TOKEN}` };
    client = await createMCPClient({ transport: { type: "http", url, headers } });
    Object.assign(tools, await client.tools());
  }
  const onError = ({ error }) => {
    console.error(error.statusCode, error.url, error.responseBody ?? error);
    process.exitCode = 1;
  };
  const stopWhen = isStepCount(5);
  const turn = streamText({ model: models[kind](), prompt: "please", tools, stopWhen, maxRetries: 0, onError });
  for await (const text of turn.textStream) process.stdout.write(text);
  console.log();
  await client?.close();
}

main(process.argv[2]);
