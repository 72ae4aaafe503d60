"""Third-party MCP clients, unchanged, at the mediator's `/mcp`.

`native.py legacy` and `native.py auto` run the official SDK's client: in a session, and in the
newest revision that both sides speak. It lists and calls tools, is notified that the list has
changed, lists again, and calls a removed tool. `native.py agent` runs an agent of openai-agents: the
mediator serves its model and its tools. Each step prints one line of JSON.

MCP_URL and TOOLCRIB_TOKEN hold the server's address and token. The model's address and key are in
the variables of its SDK.
"""

import asyncio
import json
import os
import sys

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import httpx2
from agents import Agent, OpenAIChatCompletionsModel, Runner
from agents.mcp import MCPServerStreamableHttp
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from openai import AsyncOpenAI

URL = os.environ["MCP_URL"]
HEADERS = {"Authorization": f"Bearer {os.environ['TOOLCRIB_TOKEN']}"}
TOOL = "trading-api__get_market_context"


def report(**step):
    print(json.dumps(step), flush=True)


async def names(client):
    return [tool.name for tool in (await client.list_tools()).tools]


async def call(client):
    result = await client.call_tool(TOOL, {"claw_id": "somebody-else"})
    return {"error": result.is_error, "result": json.loads(result.content[0].text)}


async def client(mode):
    changed = asyncio.Event()

    async def on_message(message):
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            changed.set()

    async with (
        httpx2.AsyncClient(headers=HEADERS, timeout=60) as http,
        Client(
            streamable_http_client(URL, http_client=http), mode=mode, message_handler=on_message
        ) as client,
    ):
        report(revision=client.protocol_version, tools=await names(client), **await call(client))
        if mode == "legacy":
            await changed.wait()
        else:
            async with client.listen(tools_list_changed=True) as changes:
                report(listening=True)
                await anext(aiter(changes))
        report(tools=await names(client), **await call(client))


async def agent():
    params = {"url": URL, "headers": HEADERS, "timeout": 60}
    server = MCPServerStreamableHttp(params, client_session_timeout_seconds=60)
    async with server:
        model = OpenAIChatCompletionsModel("scripted/otter-1", AsyncOpenAI())
        otter = Agent(name="otter", instructions="", model=model, mcp_servers=[server])
        result = await Runner.run(otter, "market")
        calls = [it.raw_item.name for it in result.new_items if it.type == "tool_call_item"]
        report(calls=calls, answer=result.final_output)


match sys.argv[1]:
    case "agent":
        asyncio.run(agent())
    case mode:
        asyncio.run(client(mode))
