"""The official `openai` SDK, unchanged, against the mediator: responses.

Run behind `kubectl toolcrib run --agent analyst` with the scripted model playing script.yaml
and the provider `ibis` of providers.yaml.
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
    "name": "local_clock",
    "description": "The agent's own clock",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    "strict": False,
}
MODEL = "ibis/otter-1"

# No retries: the cases check the error.
client = openai.OpenAI(max_retries=0, timeout=60)


def ask(prompt, **more):
    return client.responses.create(model=MODEL, input=prompt, **more)


def stream(prompt, **more):
    """Returns the streamed text, and the response that the SDK accumulates."""
    with client.responses.stream(model=MODEL, input=prompt, **more) as events:
        deltas = [it.delta for it in events if it.type == "response.output_text.delta"]
        return "".join(deltas), events.get_final_response()


def managed_call():
    response = ask("market")
    assert is_market(response.output_text)
    assert response.status == "completed", response
    assert [item.type for item in response.output] == ["message"], response
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (250, 50, 300), usage


def managed_call_streamed():
    text, response = stream("market")
    assert is_market(text) and response.output_text == text, response
    assert response.status == "completed", response
    assert (response.usage.input_tokens, response.usage.output_tokens) == (250, 50), response


def managed_call_as_raw_events():
    events = list(ask("market", stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    assert kinds.count("response.output_item.added") == 1, kinds
    assert [event.sequence_number for event in events] == list(range(len(events))), events
    assert is_market(events[-1].response.output_text)


def managed_call_async():
    async def asked():
        async with openai.AsyncOpenAI(max_retries=0, timeout=60) as other:
            turns = [other.responses.create(model=MODEL, input="market") for _ in range(8)]
            return await asyncio.gather(*turns)

    assert all(is_market(response.output_text) for response in asyncio.run(asked()))


def check_own_calls(response):
    message, *calls = response.output
    assert message.type == "message" and response.output_text == "I will look.", response
    assert [call.type for call in calls] == ["function_call"] * 2, calls
    assert [call.call_id for call in calls] == ["call_a", "call_b"], calls
    assert [call.name for call in calls] == ["local_clock"] * 2, calls
    arguments = [json.loads(call.arguments) for call in calls]
    assert arguments == [CLOCK_ARGUMENTS, {"zone": "UTC"}], arguments


def own_calls():
    check_own_calls(ask("clock", tools=[CLOCK]))


def own_calls_streamed():
    check_own_calls(stream("clock", tools=[CLOCK])[1])


def managed_then_own(prompt="both"):
    first = ask(prompt, tools=[CLOCK])
    calls = [item for item in first.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["local_clock"], first
    history = [{"role": "user", "content": prompt}, *first.output]
    for call in calls:
        output = "half past nine"
        history.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    last = ask(history, tools=[CLOCK])
    market, clock = last.output_text.split("\n")
    assert is_market(market) and clock == "half past nine", last


def managed_prefix_own_suffix():
    managed_then_own("prefix")


def text_before_a_hidden_call():
    """With Live streaming this text begins the answer; otherwise it is left out.

    The next turn works either way.
    """
    text, first = stream("aloud", tools=[CLOCK])
    assert text == ("Let me look." if LIVE else "") + "And the time.", first
    *messages, call = first.output
    assert [item.type for item in messages] == ["message"] * (2 if LIVE else 1), first
    assert call.name == "local_clock", first
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "half past nine"}
    history = [{"role": "user", "content": "aloud"}, *first.output, output]
    last = stream(history, tools=[CLOCK])[0]
    market, clock = last.split("\n")
    assert is_market(market) and clock == "half past nine", last


def continued_by_id():
    """The provider has the conversation: the agent sends only what is new, and names the response.

    The hidden rounds are in the provider's conversation, whatever id the agent got: a streamed answer
    of several rounds has the id of the first one.
    """
    own = {"type": "function_call_output", "output": "half past nine"}
    for ask_for in [ask, lambda prompt, **more: stream(prompt, **more)[1]]:
        for prompt in ["both", "prefix", "aloud"]:
            first = ask_for(prompt, tools=[CLOCK])
            call = first.output[-1]
            assert (call.type, call.name) == ("function_call", "local_clock"), first
            more = [{**own, "call_id": call.call_id}]
            second = ask_for(more, tools=[CLOCK], previous_response_id=first.id)
            market, clock = second.output_text.split("\n")
            assert is_market(market) and clock == "half past nine", second
            assert second.previous_response_id == first.id, second
            # A turn with hidden rounds after a response that is continued itself.
            third = ask_for("market", previous_response_id=second.id)
            assert is_market(third.output_text), third
            fourth = ask_for("market", previous_response_id=third.id)
            assert is_market(fourth.output_text), fourth
    error = expect_error(
        openai.BadRequestError, lambda: ask("market", previous_response_id="resp_unknown")
    )
    assert "resp_unknown" in error.message, error


def wrong_order():
    assert_wrong_order(ask("wrong order", tools=[CLOCK]).output_text)


def reasoning_is_unchanged():
    for ask_for in [ask, lambda prompt: stream(prompt)[1]]:
        response = ask_for("think")
        *hidden, reasoning, message = response.output
        hidden_thoughts = [item.summary[0].text for item in hidden]
        assert hidden_thoughts == (["Which market?"] if LIVE and ask_for is not ask else []), response
        assert reasoning.summary[0].text == "Deep and green.", response
        assert message.type == "message" and is_market(response.output_text), response


def odd_text_is_unchanged():
    assert ask("odd text").output_text == ODD_TEXT
    assert stream("odd text")[0] == ODD_TEXT


def incomplete_status_is_unchanged():
    events = list(ask("cut by ibis", stream=True))
    assert events[-1].type == "response.incomplete", events[-1]
    for response in [ask("cut by ibis"), events[-1].response]:
        assert response.status == "incomplete", response
        assert response.incomplete_details.reason == "max_output_tokens", response


def wrong_key():
    for key in ["analyst:0000", "nonsense", "x" * 4096]:
        other = openai.OpenAI(api_key=key, max_retries=0)
        error = expect_error(
            openai.AuthenticationError,
            lambda: other.responses.create(model=MODEL, input="market"),
        )
        assert error.code == "unauthorized", error.body


def a_model_error_is_passed_on():
    assert "it broke" in expect_error(openai.InternalServerError, lambda: ask("broken")).message


def an_unanswered_request_is_a_502():
    for prompt in ["reset", "truncated", "hangs up later"]:
        error = expect_error(openai.InternalServerError, lambda: ask(prompt))
        assert error.status_code == 502, (prompt, error)


def no_retry_after_a_call():
    def connect(hooks):
        http_client = openai.DefaultHttpxClient(event_hooks=hooks)
        return openai.OpenAI(max_retries=2, timeout=60, http_client=http_client)

    def ask_of(client, prompt):
        return client.responses.create(model=MODEL, input=prompt)

    assert_resent_only_before_a_call(openai.InternalServerError, connect, ask_of)


def a_broken_stream_is_an_error():
    """A stream that has not begun fails with the SDK's API error.

    Later the error is an event, as providers send it. The SDK then raises that there is no response.
    """
    for prompt, later in [("reset", False), ("hangs up later", LIVE)]:
        expect_error(RuntimeError if later else openai.APIError, lambda: stream(prompt))
    if LIVE:
        events = list(ask("hangs up later", stream=True))
        assert (events[-1].type, events[-1].code) == ("error", "upstream_unreachable"), events


def refused_requests():
    choice = {"type": "function", "name": "no_such_tool"}
    error = expect_error(
        openai.BadRequestError, lambda: ask("market", tools=[CLOCK], tool_choice=choice)
    )
    assert error.code == "unknown_tool_choice", error.body
    # Each response adds its calls to the provider's conversation.
    error = expect_error(openai.BadRequestError, lambda: ask("market", conversation="conv_1"))
    assert error.code == "field_refused", error.body
    # An OpenAI provider whose ModelProvider does not enable the responses resource.
    error = expect_error(
        openai.BadRequestError,
        lambda: client.responses.create(model="scripted/otter-1", input="market"),
    )
    assert error.code == "dialect_unsupported", error.body


def a_rate_limit_is_passed_on_and_pauses_the_key():
    """The last case, since the provider's only key is paused for seconds afterwards."""
    error = expect_error(openai.RateLimitError, lambda: ask("limited"))
    assert error.response.headers["retry-after"] == "7", error.response.headers
    error = expect_error(openai.InternalServerError, lambda: ask("market"))
    assert (error.status_code, error.code) == (503, "no_usable_key"), error


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
    continued_by_id,
    wrong_order,
    reasoning_is_unchanged,
    odd_text_is_unchanged,
    incomplete_status_is_unchanged,
    wrong_key,
    a_model_error_is_passed_on,
    an_unanswered_request_is_a_502,
    no_retry_after_a_call,
    a_broken_stream_is_an_error,
    refused_requests,
    a_rate_limit_is_passed_on_and_pauses_the_key,
]

STREAMED = [
    managed_call_streamed,
    managed_call_as_raw_events,
    own_calls_streamed,
    text_before_a_hidden_call,
    continued_by_id,
    reasoning_is_unchanged,
    odd_text_is_unchanged,
    incomplete_status_is_unchanged,
    a_broken_stream_is_an_error,
]

if __name__ == "__main__":
    run(CASES, f"openai {openai.__version__} at {os.environ['OPENAI_BASE_URL']}", STREAMED)
