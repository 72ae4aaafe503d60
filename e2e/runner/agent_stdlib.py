"""The same agent as agent_openai.py on Python's standard library alone.

For images without the SDK, and for trying Toolcrib on a machine with nothing installed.
It reads OPENAI_BASE_URL and OPENAI_API_KEY, has one tool of its own (`local_clock`), and prints
the final text and the tool calls that reached the agent.
"""

import argparse
import json
import os
import urllib.error
import urllib.request
from datetime import datetime, timezone

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "local_clock",
            "description": "The agent's own clock: the time now, UTC",
            "parameters": {"type": "object", "properties": {}},
        },
    }
]
# Limit on the loop, which a confused model could continue for ever.
MAX_ROUNDS = 8
# Longer than a mediated turn may take by default.
TIMEOUT_SECONDS = 150


def run_tool(name: str) -> str:
    if name == "local_clock":
        return json.dumps({"utc": datetime.now(timezone.utc).isoformat(timespec="seconds")})
    return json.dumps({"error": f"this agent has no tool {name}"})


def post(body: dict):
    """Sends one request and returns the open response; ignores proxy variables."""
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json",
        },
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(request, timeout=TIMEOUT_SECONDS)


def stream_events(response):
    """Yields the data of each server-sent event until `[DONE]`."""
    for line in response:
        line = line.decode().rstrip("\r\n")
        if not line.startswith("data:"):
            continue
        data = line[len("data:") :].strip()
        if data == "[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise SystemExit(f"error in the stream: {json.dumps(event['error'])}")
        yield event
    raise SystemExit("the stream ended without its terminator")


def complete(model: str, messages: list, stream: bool):
    """Sends one request; returns the text, and the calls as (id, name, arguments)."""
    with post({"model": model, "messages": messages, "tools": TOOLS, "stream": stream}) as response:
        if not stream:
            message = json.load(response)["choices"][0]["message"]
            calls = [
                (c["id"], c["function"]["name"], c["function"]["arguments"])
                for c in message.get("tool_calls") or []
            ]
            return message.get("content"), calls
        text, calls = [], {}
        for event in stream_events(response):
            for choice in event["choices"]:
                delta = choice["delta"]
                text.append(delta.get("content") or "")
                for part in delta.get("tool_calls") or []:
                    call = calls.setdefault(part["index"], ["", "", ""])
                    function = part.get("function") or {}
                    call[0] = part.get("id") or call[0]
                    call[1] = function.get("name") or call[1]
                    call[2] += function.get("arguments") or ""
        return "".join(text) or None, [tuple(calls[index]) for index in sorted(calls)]


def converse(model: str, prompt: str, stream: bool):
    """Runs a whole turn; returns the final text and the names of the calls that reached this agent."""
    messages = [{"role": "user", "content": prompt}]
    seen = []
    for _ in range(MAX_ROUNDS):
        text, calls = complete(model, messages, stream)
        if not calls:
            return text, seen
        messages.append(
            {
                "role": "assistant",
                "content": text,
                "tool_calls": [
                    {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
                    for i, n, a in calls
                ],
            }
        )
        for call_id, name, _ in calls:
            seen.append(name)
            messages.append({"role": "tool", "tool_call_id": call_id, "content": run_tool(name)})
    raise SystemExit(f"no final answer after {MAX_ROUNDS} rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt", nargs="?", default="What is my market context?")
    parser.add_argument("--model", default="scripted")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    args = parser.parse_args()
    try:
        text, seen = converse(args.model, args.prompt, args.stream)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"HTTP {error.code}: {error.read().decode(errors='replace')}") from error
    except urllib.error.URLError as error:
        raise SystemExit(f"{os.environ['OPENAI_BASE_URL']}: {error.reason}") from error
    if args.json:
        print(json.dumps({"answer": text, "tool_calls": seen}))
    else:
        print(f"answer: {text}")
        print(f"tool calls that reached the agent: {', '.join(seen) or 'none'}")


if __name__ == "__main__":
    main()
