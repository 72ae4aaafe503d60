"""Clients of the tools themselves, which others wrote, unchanged, at the mediator's `/mcp`.

`native.py legacy` and `native.py auto` are the official SDK's client, in a session and in the
newest revision that both sides speak: it lists and calls, hears that its list changed, lists
again and calls what is gone. `native.py agent` is an agent of openai-agents whose model is behind
the same mediator and whose tools are this server's. Each step is one line of JSON.

MCP_URL and TOOLCRIB_TOKEN say where; the model's address and key are where its SDK looks.
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


def say(**step):
    print(json.dumps(step), flush=True)


async def names(client):
    return [tool.name for tool in (await client.list_tools()).tools]


async def called(client):
    result = await client.call_tool(TOOL, {"claw_id": "somebody-else"})
    return {"error": result.is_error, "result": json.loads(result.content[0].text)}


async def client(mode):
    changed = asyncio.Event()

    async def heard(message):
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            changed.set()

    async with (
        httpx2.AsyncClient(headers=HEADERS, timeout=60) as http,
        Client(
            streamable_http_client(URL, http_client=http), mode=mode, message_handler=heard
        ) as client,
    ):
        say(revision=client.protocol_version, tools=await names(client), **await called(client))
        if mode == "legacy":
            await changed.wait()
        else:
            async with client.listen(tools_list_changed=True) as changes:
                say(listening=True)
                await anext(aiter(changes))
        say(tools=await names(client), **await called(client))


async def agent():
    params = {"url": URL, "headers": HEADERS, "timeout": 60}
    server = MCPServerStreamableHttp(params, client_session_timeout_seconds=60)
    async with server:
        model = OpenAIChatCompletionsModel("scripted/otter-1", AsyncOpenAI())
        otter = Agent(name="otter", instructions="", model=model, mcp_servers=[server])
        result = await Runner.run(otter, "market")
        calls = [it.raw_item.name for it in result.new_items if it.type == "tool_call_item"]
        say(calls=calls, answer=result.final_output)


match sys.argv[1]:
    case "agent":
        asyncio.run(agent())
    case mode:
        asyncio.run(client(mode))
