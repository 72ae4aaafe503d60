"""One case at a time behind the mediator: cases.py CASE. Each checks with the SDKs' own types.

The server's answers are in script.yaml or aimock.json.
"""

import os
import sys

import anthropic
import openai

TEXTS = {"hello": "Plain: hello", "market": "The market was read."}
SCHEMA = {"type": "object", "properties": {}}
CLOCK = {"type": "function", "function": {"name": "local_clock", "parameters": SCHEMA}}
RESULT = "half past nine"

# No retries: the cases check the first answer.
client = openai.OpenAI(max_retries=0, timeout=60)
claude = anthropic.Anthropic(
    max_retries=0,
    timeout=60,
    base_url=os.environ["OPENAI_BASE_URL"].removesuffix("/v1"),
    auth_token=os.environ["OPENAI_API_KEY"],
    api_key=None,
)


def chat(messages, stream=False, model="server/otter-1"):
    return client.chat.completions.create(model=model, messages=messages, tools=[CLOCK], stream=stream)


def chat_text(prompt, stream):
    answer = chat([{"role": "user", "content": prompt}], stream)
    if not stream:
        return answer.choices[0].message.content
    return "".join(it.choices[0].delta.content or "" for it in answer if it.choices)


def responses_text(prompt, stream):
    answer = client.responses.create(model="server/otter-1", input=prompt, stream=stream)
    if not stream:
        return answer.output_text
    (last,) = [it for it in answer if it.type == "response.completed"]
    return last.response.output_text


def messages_text(prompt, stream):
    ask = {
        "model": "server/heron-1",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": prompt}],
    }
    if not stream:
        return claude.messages.create(**ask).content[0].text
    with claude.messages.stream(**ask) as events:
        return events.get_final_text()


def texts():
    for ask in [chat_text, responses_text, messages_text]:
        for prompt, text in TEXTS.items():
            for stream in [False, True]:
                got = ask(prompt, stream)
                assert got == text, (ask.__name__, prompt, stream, got)


def own_chat():
    said = [{"role": "user", "content": "both"}]
    message = chat(said).choices[0].message
    (call,) = message.tool_calls
    assert call.function.name == "local_clock", call
    said += [message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    assert chat(said).choices[0].message.content == "Both were read."


def own_responses():
    tool = {"type": "function", "name": "local_clock", "parameters": SCHEMA}
    said = [{"role": "user", "content": "both"}]
    ask = {"model": "server/otter-1", "tools": [tool]}
    (call,) = client.responses.create(input=said, **ask).output
    assert call.name == "local_clock", call
    said += [
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": RESULT},
    ]
    assert client.responses.create(input=said, **ask).output_text == "Both were read."


def own_messages():
    tool = {"name": "local_clock", "input_schema": SCHEMA}
    said = [{"role": "user", "content": "both"}]
    ask = {"model": "server/heron-1", "max_tokens": 100, "tools": [tool]}
    (call,) = claude.messages.create(messages=said, **ask).content
    assert call.name == "local_clock", call
    said += [
        {"role": "assistant", "content": [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT}]},
    ]
    assert claude.messages.create(messages=said, **ask).content[0].text == "Both were read."


def own():
    own_chat()
    own_responses()
    own_messages()


def error(kind, ask):
    try:
        ask()
    except kind as raised:
        return raised
    raise AssertionError(f"no {kind.__name__}")


def ask_hello(model="server/otter-1"):
    return chat([{"role": "user", "content": "hello"}], model=model)


def errors():
    """LiteLLM's own errors."""
    unknown = error(openai.BadRequestError, lambda: ask_hello("server/unknown"))
    assert "Invalid model name" in str(unknown), unknown
    # Streamed Live, the error is an event; otherwise it is the status.
    error(openai.APIError, lambda: chat_text("truncated", True))
    canned = chat([{"role": "user", "content": "hello"}], True, "server/canned")
    assert "".join(it.choices[0].delta.content or "" for it in canned) == "This is a canned answer."
    error(openai.RateLimitError, lambda: ask_hello("server/limited"))
    # The limit of one model rests the key, so the other models wait too.
    rests = error(openai.InternalServerError, ask_hello)
    assert rests.status_code == 503 and rests.code == "no_usable_key", rests


def wrong_key():
    """Without a database LiteLLM answers 400 to a wrong key, not 401."""
    refused = error(openai.BadRequestError, ask_hello)
    assert "No connected db" in str(refused), refused


def unreachable():
    refused = error(openai.InternalServerError, ask_hello)
    assert refused.status_code == 502 and refused.code == "upstream_unreachable", refused


def broken_off():
    """The test kills the server after the first text."""
    stream = chat([{"role": "user", "content": "slowly"}], True)

    def read():
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                print("begun", flush=True)

    assert error(openai.APIError, read).code == "upstream_unreachable"
    unreachable()


globals()[sys.argv[1]]()
print("ok", sys.argv[1])
