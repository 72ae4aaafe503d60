"""The official `anthropic` SDK, unchanged, against the mediator: messages.

Run behind `kubectl toolcrib run --agent analyst` with the scripted model playing script.yaml
and the provider `heron` of providers.yaml.
"""

import asyncio
import os

import anthropic

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
    "name": "local_clock",
    "description": "The agent's own clock",
    "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}},
}
MODEL = "heron/otter-1"

# No retries: the cases check the error.
client = anthropic.Anthropic(max_retries=0, timeout=60)


def request(prompt, **more):
    messages = more.pop("messages", [{"role": "user", "content": prompt}])
    return {"model": MODEL, "max_tokens": 500, "messages": messages, **more}


def ask(prompt, **more):
    return client.messages.create(**request(prompt, **more))


def stream(prompt, **more):
    """Returns the streamed text, and the message that the SDK accumulates."""
    with client.messages.stream(**request(prompt, **more)) as events:
        text = "".join(events.text_stream)
        return text, events.get_final_message()


def text_of(message):
    assert [block.type for block in message.content] == ["text"], message
    return message.content[0].text


def managed_call():
    message = ask("market")
    assert is_market(text_of(message))
    assert message.stop_reason == "end_turn", message
    assert (message.usage.input_tokens, message.usage.output_tokens) == (250, 50), message.usage


def managed_call_streamed():
    text, message = stream("market")
    assert is_market(text) and text_of(message) == text
    assert message.stop_reason == "end_turn", message
    assert (message.usage.input_tokens, message.usage.output_tokens) == (250, 50), message.usage


def managed_call_as_raw_events():
    kinds = [event.type for event in ask("market", stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"], kinds
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds
    assert kinds.count("content_block_start") == 1, kinds


def managed_call_async():
    async def asked():
        async with anthropic.AsyncAnthropic(max_retries=0, timeout=60) as other:
            turns = [other.messages.create(**request("market")) for _ in range(8)]
            return await asyncio.gather(*turns)

    assert all(is_market(text_of(message)) for message in asyncio.run(asked()))


def check_own_calls(message):
    assert message.stop_reason == "tool_use", message
    text, *calls = message.content
    assert text.text == "I will look.", message
    assert [call.id for call in calls] == ["call_a", "call_b"], calls
    assert [call.name for call in calls] == ["local_clock"] * 2, calls
    assert [call.input for call in calls] == [CLOCK_ARGUMENTS, {"zone": "UTC"}], calls


def own_calls():
    check_own_calls(ask("clock", tools=[CLOCK]))


def own_calls_streamed():
    check_own_calls(stream("clock", tools=[CLOCK])[1])


def managed_then_own(prompt="both"):
    first = ask(prompt, tools=[CLOCK])
    calls = [block for block in first.content if block.type == "tool_use"]
    assert [call.name for call in calls] == ["local_clock"], first
    messages = [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call.id, "content": "half past nine"}
            for call in calls
        ]},
    ]
    last = ask(prompt, messages=messages, tools=[CLOCK])
    market, clock = text_of(last).split("\n")
    assert is_market(market) and clock == "half past nine", last


def managed_prefix_own_suffix():
    managed_then_own("prefix")


def text_before_a_hidden_call():
    """With Live streaming this text begins the answer; otherwise it is left out.

    The next turn works either way.
    """
    text, first = stream("aloud", tools=[CLOCK])
    assert text == ("Let me look." if LIVE else "") + "And the time.", first
    *texts, call = first.content
    assert [block.type for block in texts] == ["text"] * (2 if LIVE else 1), first
    assert call.name == "local_clock" and first.stop_reason == "tool_use", first
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "half past nine"}
    messages = [
        {"role": "user", "content": "aloud"},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    last = stream("aloud", messages=messages, tools=[CLOCK])[0]
    market, clock = last.split("\n")
    assert is_market(market) and clock == "half past nine", last


def wrong_order():
    assert_wrong_order(text_of(ask("wrong order", tools=[CLOCK])))


def thinking_is_unchanged():
    for ask_for in [ask, lambda prompt: stream(prompt)[1]]:
        message = ask_for("think")
        *hidden, thinking, text = message.content
        hidden_thoughts = [block.thinking for block in hidden]
        assert hidden_thoughts == (["Which market?"] if LIVE and ask_for is not ask else []), message
        assert (thinking.type, thinking.thinking) == ("thinking", "Deep and green."), message
        assert thinking.signature and is_market(text.text), message


def odd_text_is_unchanged():
    assert text_of(ask("odd text")) == ODD_TEXT
    assert stream("odd text")[0] == ODD_TEXT


def stop_reason_is_unchanged():
    assert ask("cut by heron").stop_reason == "max_tokens"
    assert stream("cut by heron")[1].stop_reason == "max_tokens"


def wrong_key():
    for key in ["analyst:0000", "nonsense", "x" * 4096]:
        other = anthropic.Anthropic(api_key=key, max_retries=0)
        error = expect_error(
            anthropic.AuthenticationError, lambda: other.messages.create(**request("market"))
        )
        assert error.status_code == 401, error
        assert error.body["type"] == "error", error.body
        assert error.body["error"]["type"] == "authentication_error", error.body
        assert error.body["error"]["code"] == "unauthorized", error.body


def a_bearer_token_is_accepted():
    token = os.environ["ANTHROPIC_API_KEY"]
    other = anthropic.Anthropic(api_key=None, auth_token=token, max_retries=0)
    assert is_market(text_of(other.messages.create(**request("market"))))


def a_model_error_is_passed_on():
    error = expect_error(anthropic.InternalServerError, lambda: ask("broken"))
    assert "it broke" in str(error.body), error.body


def an_unanswered_request_is_a_502():
    for prompt in ["reset", "truncated", "hangs up later"]:
        error = expect_error(anthropic.InternalServerError, lambda: ask(prompt))
        assert error.status_code == 502, (prompt, error)


def no_retry_after_a_call():
    def connect(hooks):
        http_client = anthropic.DefaultHttpxClient(event_hooks=hooks)
        return anthropic.Anthropic(max_retries=2, timeout=60, http_client=http_client)

    def ask_of(client, prompt):
        return client.messages.create(**request(prompt))

    assert_resent_only_before_a_call(anthropic.InternalServerError, connect, ask_of)


def a_broken_stream_is_an_error():
    for prompt in ["reset", "hangs up later"]:
        expect_error(anthropic.APIError, lambda: stream(prompt))


def refused_requests():
    choice = {"type": "tool", "name": "no_such_tool"}
    error = expect_error(
        anthropic.BadRequestError, lambda: ask("market", tools=[CLOCK], tool_choice=choice)
    )
    assert error.body["error"]["code"] == "unknown_tool_choice", error.body
    error = expect_error(anthropic.BadRequestError, lambda: client.messages.create(
        model="scripted/otter-1", max_tokens=9, messages=[{"role": "user", "content": "market"}]
    ))
    assert error.body["error"]["code"] == "dialect_unsupported", error.body


def models_are_listed():
    assert isinstance(client.models.list().data, list)


def tokens_are_counted_with_the_granted_tools():
    """The scripted model counts a token for each tool and each message."""
    messages = [{"role": "user", "content": "market"}]
    own = [CLOCK, {**CLOCK, "name": "second_clock"}]
    counts = [
        client.messages.count_tokens(model=MODEL, messages=messages, tools=tools).input_tokens
        for tools in [[CLOCK], own]
    ]
    assert counts[1] == counts[0] + 1, counts
    # One token each for the program's clock, its message, and at least one granted tool.
    assert counts[0] > 2, counts


def a_rate_limit_is_passed_on_and_pauses_the_key():
    """The last case, since the provider's only key is paused for seconds afterwards."""
    error = expect_error(anthropic.RateLimitError, lambda: ask("limited"))
    assert error.response.headers["retry-after"] == "7", error.response.headers
    error = expect_error(anthropic.APIStatusError, lambda: ask("market"))
    assert error.status_code == 503, error
    assert error.body["error"]["code"] == "no_usable_key", error.body
    assert 1 <= int(error.response.headers["retry-after"]) <= 7, error.response.headers


CASES = [
    managed_call,
    managed_call_streamed,
    managed_call_as_raw_events,
    managed_call_async,
    own_calls,
    own_calls_streamed,
    managed_then_own,
    managed_prefix_own_suffix,
    text_before_a_hidden_call,
    wrong_order,
    thinking_is_unchanged,
    odd_text_is_unchanged,
    stop_reason_is_unchanged,
    wrong_key,
    a_bearer_token_is_accepted,
    a_model_error_is_passed_on,
    an_unanswered_request_is_a_502,
    no_retry_after_a_call,
    a_broken_stream_is_an_error,
    refused_requests,
    models_are_listed,
    tokens_are_counted_with_the_granted_tools,
    a_rate_limit_is_passed_on_and_pauses_the_key,
]

STREAMED = [
    managed_call_streamed,
    managed_call_as_raw_events,
    own_calls_streamed,
    text_before_a_hidden_call,
    thinking_is_unchanged,
    odd_text_is_unchanged,
    stop_reason_is_unchanged,
    a_broken_stream_is_an_error,
]

if __name__ == "__main__":
    where = os.environ["ANTHROPIC_BASE_URL"]
    run(CASES, f"anthropic {anthropic.__version__} at {where}", STREAMED)
