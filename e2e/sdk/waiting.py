"""Calls that wait a minute for a person: the official SDKs and MCP's client, unchanged, with their own
timeouts.

Run behind `kubectl toolcrib run --agent executor`. Each client makes another trade, all at the same
time. Prints a line of JSON for each: its name, the seconds that it waited, and what it read.
"""

import asyncio
import json
import os
import sys
import threading
import time

import anthropic
import httpx2
import openai
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

TRADE = "trading-api__execute_trade"
CHAT, RESPONSES, MESSAGES = "scripted/otter-1", "ibis/otter-1", "heron/otter-1"


def messages(prompt):
    return [{"role": "user", "content": prompt}]


def chat(prompt):
    answer = openai.OpenAI().chat.completions.create(model=CHAT, messages=messages(prompt))
    return answer.choices[0].message.content


def chat_streamed(prompt):
    stream = openai.OpenAI().chat.completions.create(
        model=CHAT, messages=messages(prompt), stream=True
    )
    return "".join(it.choices[0].delta.content or "" for it in stream if it.choices)


def responses(prompt):
    return openai.OpenAI().responses.create(model=RESPONSES, input=prompt).output_text


def responses_streamed(prompt):
    with openai.OpenAI().responses.stream(model=RESPONSES, input=prompt) as events:
        return events.get_final_response().output_text


def anthropic_messages(prompt):
    answer = anthropic.Anthropic().messages.create(
        model=MESSAGES, max_tokens=500, messages=messages(prompt)
    )
    return answer.content[0].text


def anthropic_messages_streamed(prompt):
    with anthropic.Anthropic().messages.stream(
        model=MESSAGES, max_tokens=500, messages=messages(prompt)
    ) as stream:
        return stream.get_final_text()


def mcp(prompt):
    """A client that wants to hear of progress."""
    return asyncio.run(mcp_call(prompt))


async def mcp_call(prompt):
    with open(os.path.join(os.environ["TOOLCRIB_CONTEXT"], "mcp.json")) as file:
        url = json.load(file)["mcpServers"]["toolcrib"]["url"]
    headers = {"Authorization": f"Bearer {os.environ['TOOLCRIB_TOKEN']}"}
    heard = []

    async def on_progress(progress, total, message):
        heard.append(message)

    quantity = int(prompt.split()[-1])
    arguments = {"symbol": "OTTR", "side": "buy", "quantity": quantity}
    async with (
        # The SDK's own client has this timeout too, and no header.
        httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300)) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        result = await client.call_tool(TRADE, arguments, progress_callback=on_progress)
    assert heard, "no progress"
    return result.content[0].text


CLIENTS = [
    chat,
    chat_streamed,
    responses,
    responses_streamed,
    anthropic_messages,
    anthropic_messages_streamed,
    mcp,
]


def wait(client, prompt):
    began = time.monotonic()
    try:
        answer = client(prompt)
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    waited = round(time.monotonic() - began, 1)
    line = {"client": client.__name__, "seconds": waited, "answer": answer}
    sys.stdout.write(json.dumps(line) + "\n")


threads = [
    threading.Thread(target=wait, args=(client, f"buy {500 + number}"))
    for number, client in enumerate(CLIENTS, 1)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
