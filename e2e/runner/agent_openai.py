"""A small agent on the official `openai` SDK, used unchanged.

It has no code for Toolcrib: it reads OPENAI_BASE_URL and OPENAI_API_KEY as every program on this
SDK does, has one tool of its own (`local_clock`), and runs the usual tool loop. It prints the
final text, and the tool calls that reached the agent. Calls of governed tools never do.
"""

import argparse
import json
import sys
from datetime import datetime, timezone

import openai

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


def run_tool(name: str) -> str:
    if name == "local_clock":
        return json.dumps({"utc": datetime.now(timezone.utc).isoformat(timespec="seconds")})
    return json.dumps({"error": f"this agent has no tool {name}"})


def complete(client: openai.OpenAI, model: str, messages: list, stream: bool):
    """Sends one request; returns the text, and the calls as (id, name, arguments)."""
    request = {"model": model, "messages": messages, "tools": TOOLS}
    if not stream:
        message = client.chat.completions.create(**request).choices[0].message
        calls = [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]
        return message.content, calls
    text, calls = [], {}
    for chunk in client.chat.completions.create(**request, stream=True):
        for choice in chunk.choices:
            if choice.delta.content:
                text.append(choice.delta.content)
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, ["", "", ""])
                call[0] = part.id or call[0]
                call[1] = part.function.name or call[1]
                call[2] += part.function.arguments or ""
    return "".join(text) or None, [tuple(calls[index]) for index in sorted(calls)]


def converse(client: openai.OpenAI, model: str, prompt: str, stream: bool):
    """Runs a whole turn; returns the final text and the names of the calls that reached this agent."""
    messages = [{"role": "user", "content": prompt}]
    seen = []
    for _ in range(MAX_ROUNDS):
        text, calls = complete(client, model, messages, stream)
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
        text, seen = converse(openai.OpenAI(), args.model, args.prompt, args.stream)
    except openai.APIError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise SystemExit(1) from error
    if args.json:
        print(json.dumps({"answer": text, "tool_calls": seen}))
    else:
        print(f"answer: {text}")
        print(f"tool calls that reached the agent: {', '.join(seen) or 'none'}")


if __name__ == "__main__":
    main()
