"""The official `openai` SDK, unchanged, against the mediator: chat completions.

Run behind `kubectl toolcrib run --agent analyst` with the scripted model playing script.yaml;
each case says with the SDK's own types what an agent's author relies on.
"""

import asyncio
import json
import os

import openai

from cases import (
    CLOCK_ARGUMENTS,
    LIVE,
    ODD_TEXT,
    is_market,
    is_resent_only_before_a_call,
    is_wrong_order,
    raised,
    run,
)

CLOCK = {
    "type": "function",
    "function": {
        "name": "local_clock",
        "description": "The agent's own clock",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    },
}

# No retries: a case wants the error itself.
client = openai.OpenAI(max_retries=0, timeout=60)


def ask(prompt, **more):
    messages = more.pop("messages", [{"role": "user", "content": prompt}])
    return client.chat.completions.create(model="otter-1", messages=messages, **more)


def collect(stream):
    """What a streaming client makes of the chunks."""
    got = {"text": "", "calls": {}, "finish": None, "ids": set(), "usage": None}
    for chunk in stream:
        got["ids"].add(chunk.id)
        got["usage"] = chunk.usage or got["usage"]
        for choice in chunk.choices:
            got["text"] += choice.delta.content or ""
            got["finish"] = choice.finish_reason or got["finish"]
            for part in choice.delta.tool_calls or []:
                call = got["calls"].setdefault(part.index, {"id": None, "name": None, "arguments": ""})
                call["id"] = part.id or call["id"]
                call["name"] = part.function.name or call["name"]
                call["arguments"] += part.function.arguments or ""
    return got


def raises(kind, prompt, **more):
    return raised(kind, lambda: ask(prompt, **more))


def managed_call():
    answer = ask("market")
    choice = answer.choices[0]
    assert is_market(choice.message.content)
    assert choice.finish_reason == "stop", choice
    assert choice.message.tool_calls is None, choice
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (250, 50, 300), usage


def managed_call_streamed():
    got = collect(ask("market", stream=True, stream_options={"include_usage": True}))
    assert is_market(got["text"])
    assert got["finish"] == "stop" and not got["calls"], got
    assert len(got["ids"]) == 1, got["ids"]
    assert (got["usage"].prompt_tokens, got["usage"].completion_tokens) == (250, 50), got["usage"]


def managed_call_streamed_without_usage():
    got = collect(ask("market", stream=True))
    assert is_market(got["text"]) and got["usage"] is None, got


def managed_call_async():
    async def run():
        async with openai.AsyncOpenAI(max_retries=0, timeout=60) as other:
            messages = [{"role": "user", "content": "market"}]
            stream = await other.chat.completions.create(
                model="otter-1", messages=messages, stream=True
            )
            return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

    assert is_market(asyncio.run(run()))


def concurrent_turns():
    async def run():
        async with openai.AsyncOpenAI(max_retries=0, timeout=60) as other:
            messages = [{"role": "user", "content": "market"}]
            asked = [
                other.chat.completions.create(model="otter-1", messages=messages) for _ in range(16)
            ]
            return await asyncio.gather(*asked)

    assert all(is_market(answer.choices[0].message.content) for answer in asyncio.run(run()))


def own_calls():
    message = ask("clock", tools=[CLOCK]).choices[0]
    assert message.finish_reason == "tool_calls", message
    calls = message.message.tool_calls
    assert [call.id for call in calls] == ["call_a", "call_b"], calls
    assert [call.function.name for call in calls] == ["local_clock"] * 2, calls
    arguments = json.loads(calls[0].function.arguments)
    assert arguments == CLOCK_ARGUMENTS, arguments
    assert message.message.content == "I will look.", message


def own_calls_streamed():
    got = collect(ask("clock", tools=[CLOCK], stream=True))
    assert got["finish"] == "tool_calls" and got["text"] == "I will look.", got
    assert [call["id"] for call in got["calls"].values()] == ["call_a", "call_b"], got
    assert json.loads(got["calls"][1]["arguments"]) == {"zone": "UTC"}, got


def follow_up(prompt, first):
    """Sends the calls of `first` back with results, as every agent loop does."""
    message = first.choices[0].message
    messages = [{"role": "user", "content": prompt}, message.to_dict()]
    for call in message.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "half past nine"})
    return ask(prompt, messages=messages, tools=[CLOCK]).choices[0]


def managed_then_own(prompt="both"):
    first = ask(prompt, tools=[CLOCK])
    calls = first.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["local_clock"], calls
    last = follow_up(prompt, first)
    market, clock = last.message.content.split("\n")
    assert is_market(market) and clock == "half past nine", last


def managed_prefix_own_suffix():
    managed_then_own("prefix")


def words_before_a_hidden_call():
    """They are the beginning of what is streamed, or not said; the next turn goes on either way."""
    got = collect(ask("aloud", tools=[CLOCK], stream=True))
    assert got["text"] == ("Let me look.\n\n" if LIVE else "") + "And the time.", got
    (call,) = got["calls"].values()
    assert call["name"] == "local_clock" and got["finish"] == "tool_calls", got
    function = {"name": call["name"], "arguments": call["arguments"]}
    stored = {"id": call["id"], "type": "function", "function": function}
    messages = [
        {"role": "user", "content": "aloud"},
        {"role": "assistant", "content": got["text"], "tool_calls": [stored]},
        {"role": "tool", "tool_call_id": call["id"], "content": "half past nine"},
    ]
    last = collect(ask("aloud", messages=messages, tools=[CLOCK], stream=True))
    market, clock = last["text"].split("\n")
    assert is_market(market) and clock == "half past nine", last


def wrong_order():
    choice = ask("wrong order", tools=[CLOCK]).choices[0]
    assert choice.message.tool_calls is None, choice
    is_wrong_order(choice.message.content)


def text_survives():
    assert ask("odd text").choices[0].message.content == ODD_TEXT
    assert collect(ask("odd text", stream=True))["text"] == ODD_TEXT


def finish_reason_survives():
    assert ask("cut short").choices[0].finish_reason == "length"
    assert collect(ask("cut short", stream=True))["finish"] == "length"


def wrong_key():
    for key in ["analyst:0000", "nonsense", "x" * 4096]:
        other = openai.OpenAI(api_key=key, max_retries=0)
        try:
            other.chat.completions.create(model="otter-1", messages=[])
        except openai.AuthenticationError as error:
            assert error.code == "unauthorized", error.body
        else:
            raise AssertionError(f"{key[:12]} let in")


def an_error_of_the_model_passes():
    assert "it broke" in raises(openai.InternalServerError, "broken").message


def a_limit_passes_and_cools_the_key_down():
    """Last, since the provider's only key rests for seconds afterwards."""
    error = raises(openai.RateLimitError, "limited")
    assert error.response.headers["retry-after"] == "7", error.response.headers
    assert "slow down" in error.message, error.message
    error = raises(openai.InternalServerError, "market")
    assert (error.status_code, error.code) == (503, "no_usable_key"), error
    assert 1 <= int(error.response.headers["retry-after"]) <= 7, error.response.headers


def a_model_that_does_not_answer_is_a_502():
    for prompt in ["reset", "truncated", "hangs up later"]:
        error = raises(openai.InternalServerError, prompt)
        assert error.status_code == 502, (prompt, error)


def an_error_after_a_call_is_not_resent():
    def connect(hooks):
        http_client = openai.DefaultHttpxClient(event_hooks=hooks)
        return openai.OpenAI(max_retries=2, timeout=60, http_client=http_client)

    def ask_of(client, prompt):
        return client.chat.completions.create(
            model="otter-1", messages=[{"role": "user", "content": prompt}]
        )

    is_resent_only_before_a_call(openai.InternalServerError, connect, ask_of)


def an_error_in_a_stream_is_an_error():
    for prompt in ["reset", "hangs up later"]:
        try:
            collect(ask(prompt, stream=True))
        except openai.APIError:
            continue
        raise AssertionError(f"{prompt}: the stream ended as if all were well")


def refused_requests():
    assert raises(openai.BadRequestError, "market", n=2).code == "n_not_supported"
    choice = {"type": "function", "function": {"name": "no_such_tool"}}
    error = raises(openai.BadRequestError, "market", tool_choice=choice, tools=[CLOCK])
    assert error.code == "unknown_tool_choice", error.body
    try:
        client.chat.completions.create(model="elsewhere/x", messages=[], extra_body={"api_base": "http://x"})
    except openai.APIStatusError as error:
        assert error.status_code in (400, 403), error
    else:
        raise AssertionError("a field that steers the provider was let through")


def models_are_listed():
    assert isinstance(client.models.list().data, list)


CASES = [
    managed_call,
    managed_call_streamed,
    managed_call_streamed_without_usage,
    managed_call_async,
    concurrent_turns,
    own_calls,
    own_calls_streamed,
    managed_then_own,
    managed_prefix_own_suffix,
    words_before_a_hidden_call,
    wrong_order,
    text_survives,
    finish_reason_survives,
    wrong_key,
    an_error_of_the_model_passes,
    a_model_that_does_not_answer_is_a_502,
    an_error_after_a_call_is_not_resent,
    an_error_in_a_stream_is_an_error,
    refused_requests,
    models_are_listed,
    a_limit_passes_and_cools_the_key_down,
]

STREAMED = [
    managed_call_streamed,
    managed_call_streamed_without_usage,
    managed_call_async,
    own_calls_streamed,
    words_before_a_hidden_call,
    text_survives,
    finish_reason_survives,
    an_error_in_a_stream_is_an_error,
]

if __name__ == "__main__":
    run(CASES, f"openai {openai.__version__} at {os.environ['OPENAI_BASE_URL']}", STREAMED)
