"""The official `openai` SDK, unchanged, against the mediator: chat completions.

Run behind `kubectl toolcrib run --agent analyst` with the scripted model playing script.yaml;
each case checks, with the SDK's own types, a behaviour that agents rely on.
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
    assert_resent_only_before_a_call,
    assert_wrong_order,
    expect_error,
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

# No retries: the cases check the error.
client = openai.OpenAI(max_retries=0, timeout=60)


def ask(prompt, **more):
    messages = more.pop("messages", [{"role": "user", "content": prompt}])
    return client.chat.completions.create(model="otter-1", messages=messages, **more)


def collect(stream):
    """Accumulates the chunks as a streaming client does."""
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
    return expect_error(kind, lambda: ask(prompt, **more))


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
    """Sends the calls of `first` with their results, as every agent loop does."""
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


def text_before_a_hidden_call():
    """With Live streaming this text begins the answer; otherwise it is left out.

    The next turn works either way.
    """
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
    assert_wrong_order(choice.message.content)


def odd_text_is_unchanged():
    assert ask("odd text").choices[0].message.content == ODD_TEXT
    assert collect(ask("odd text", stream=True))["text"] == ODD_TEXT


def finish_reason_is_unchanged():
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


def a_model_error_is_passed_on():
    assert "it broke" in raises(openai.InternalServerError, "broken").message


def a_rate_limit_is_passed_on_and_pauses_the_key():
    """The last case, since the provider's only key is paused for seconds afterwards."""
    error = raises(openai.RateLimitError, "limited")
    assert error.response.headers["retry-after"] == "7", error.response.headers
    assert "slow down" in error.message, error.message
    error = raises(openai.InternalServerError, "market")
    assert (error.status_code, error.code) == (503, "no_usable_key"), error
    assert 1 <= int(error.response.headers["retry-after"]) <= 7, error.response.headers


def an_unanswered_request_is_a_502():
    for prompt in ["reset", "truncated", "hangs up later"]:
        error = raises(openai.InternalServerError, prompt)
        assert error.status_code == 502, (prompt, error)


def no_retry_after_a_call():
    def connect(hooks):
        http_client = openai.DefaultHttpxClient(event_hooks=hooks)
        return openai.OpenAI(max_retries=2, timeout=60, http_client=http_client)

    def ask_of(client, prompt):
        return client.chat.completions.create(
            model="otter-1", messages=[{"role": "user", "content": prompt}]
        )

    assert_resent_only_before_a_call(openai.InternalServerError, connect, ask_of)


def a_broken_stream_is_an_error():
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
        raise AssertionError("a field that redirects the provider was accepted")


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
    text_before_a_hidden_call,
    wrong_order,
    odd_text_is_unchanged,
    finish_reason_is_unchanged,
    wrong_key,
    a_model_error_is_passed_on,
    an_unanswered_request_is_a_502,
    no_retry_after_a_call,
    a_broken_stream_is_an_error,
    refused_requests,
    models_are_listed,
    a_rate_limit_is_passed_on_and_pauses_the_key,
]

STREAMED = [
    managed_call_streamed,
    managed_call_streamed_without_usage,
    managed_call_async,
    own_calls_streamed,
    text_before_a_hidden_call,
    odd_text_is_unchanged,
    finish_reason_is_unchanged,
    a_broken_stream_is_an_error,
]

if __name__ == "__main__":
    run(CASES, f"openai {openai.__version__} at {os.environ['OPENAI_BASE_URL']}", STREAMED)
