"""Agents on three third-party frameworks, unchanged, behind the mediator.

Each agent has a tool of its own (`local_clock`), and its prompts need the governed tool too. It must
run its own tool, get the result of the governed tool in its answer, and never see a call of a tool
that it did not define. Run it behind `kubectl toolcrib run --agent analyst` with the scripted model
playing script.yaml and the providers of providers.yaml.

No address or key is set here: the frameworks read both from the environment.
"""

import asyncio
import os

# The frameworks would send traces to their vendors; a test must not use the internet.
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
os.environ["LANGSMITH_TRACING"] = "false"

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel as PydanticResponses

from cases import is_market, run

TIME = "half past nine"
INSTRUCTIONS = "You answer about markets and the time."
# One model name per dialect, as a user would configure it.
CHAT, RESPONSES, MESSAGES = "scripted/otter-1", "ibis/otter-1", "heron/otter-1"


class Clock:
    """The agent's own tool, which counts its runs."""

    def __init__(self):
        self.runs = 0

    def read(self):
        self.runs += 1
        return TIME


def check(text, clock, runs=1):
    """Checks that the answer holds both results, and that the agent's own tool ran once per call."""
    market, time = text.split("\n")
    assert is_market(market), text
    assert time == TIME, text
    assert clock.runs == runs, clock.runs


def openai_agents(model):
    clock = Clock()

    @function_tool
    def local_clock(zone: str = "UTC") -> str:
        """The agent's own clock"""
        return clock.read()

    return clock, Agent(name="otter", instructions=INSTRUCTIONS, model=model, tools=[local_clock])


def own_calls_of_run(result):
    """Returns the calls that openai-agents has seen."""
    return [item.raw_item.name for item in result.new_items if item.type == "tool_call_item"]


def check_openai_agents(model):
    async def turns():
        for prompt in ["both", "prefix"]:
            clock, agent = openai_agents(model)
            result = await Runner.run(agent, prompt)
            check(result.final_output, clock)
            assert own_calls_of_run(result) == ["local_clock"], result.new_items

        clock, agent = openai_agents(model)
        result = Runner.run_streamed(agent, "both")
        async for _ in result.stream_events():
            pass
        check(result.final_output, clock)
        assert own_calls_of_run(result) == ["local_clock"], result.new_items
        # The next turn of the conversation works with the hidden rounds before it.
        following = result.to_input_list() + [{"role": "user", "content": "market"}]
        assert is_market((await Runner.run(agent, following)).final_output)

    asyncio.run(turns())


def openai_agents_on_responses():
    check_openai_agents(OpenAIResponsesModel(model=RESPONSES, openai_client=AsyncOpenAI()))


def openai_agents_continues_by_id():
    """openai-agents sends only what is new, and names the response before it."""

    async def turns():
        model = OpenAIResponsesModel(model=RESPONSES, openai_client=AsyncOpenAI())
        clock, agent = openai_agents(model)
        first = await Runner.run(agent, "both", auto_previous_response_id=True)
        check(first.final_output, clock)
        before = first.last_response_id
        second = await Runner.run(agent, "market", previous_response_id=before)
        assert is_market(second.final_output), second
        streamed = Runner.run_streamed(
            agent, "prefix", previous_response_id=second.last_response_id
        )
        async for _ in streamed.stream_events():
            pass
        check(streamed.final_output, clock, runs=2)
        before = streamed.last_response_id
        last = await Runner.run(agent, "market", previous_response_id=before)
        assert is_market(last.final_output), last

    asyncio.run(turns())


def openai_agents_on_chat_completions():
    check_openai_agents(OpenAIChatCompletionsModel(model=CHAT, openai_client=AsyncOpenAI()))


def check_pydantic_ai(model):
    async def turns():
        clock = Clock()
        agent = PydanticAgent(model, instructions=INSTRUCTIONS)

        @agent.tool_plain
        def local_clock(zone: str = "UTC") -> str:
            """The agent's own clock"""
            return clock.read()

        first = await agent.run("both")
        check(first.output, clock)
        parts = [part for message in first.all_messages() for part in message.parts]
        called = [part.tool_name for part in parts if part.part_kind == "tool-call"]
        assert called == ["local_clock"], parts
        following = await agent.run("market", message_history=first.all_messages())
        assert is_market(following.output), following
        async with agent.run_stream("market") as streamed:
            assert is_market(await streamed.get_output())
        check((await agent.run("prefix")).output, clock, runs=2)

    asyncio.run(turns())


def pydantic_ai_on_chat_completions():
    check_pydantic_ai(OpenAIChatModel(CHAT))


def pydantic_ai_on_responses():
    check_pydantic_ai(PydanticResponses(RESPONSES))


def pydantic_ai_on_messages():
    check_pydantic_ai(AnthropicModel(MESSAGES))


def check_langchain(model):
    clock = Clock()

    def local_clock(zone: str = "UTC") -> str:
        """The agent's own clock"""
        return clock.read()

    agent = create_agent(model, tools=[local_clock], system_prompt=INSTRUCTIONS)
    for runs, prompt in enumerate(["both", "prefix"], start=1):
        state = agent.invoke({"messages": [{"role": "user", "content": prompt}]})
        check(state["messages"][-1].text, clock, runs)
        called = [call["name"] for it in state["messages"] for call in getattr(it, "tool_calls", [])]
        assert called == ["local_clock"], state

    following = state["messages"] + [{"role": "user", "content": "market"}]
    assert is_market(agent.invoke({"messages": following})["messages"][-1].text)

    chunks = agent.stream({"messages": [{"role": "user", "content": "market"}]}, stream_mode="messages")
    assert is_market("".join(chunk.text for chunk, _ in chunks))


def langchain_on_chat_completions():
    check_langchain(ChatOpenAI(model=CHAT))


def langchain_on_responses():
    check_langchain(ChatOpenAI(model=RESPONSES, use_responses_api=True))


def langchain_on_messages():
    check_langchain(ChatAnthropic(model=MESSAGES, max_tokens=500))


CASES = [
    openai_agents_on_responses,
    openai_agents_continues_by_id,
    openai_agents_on_chat_completions,
    pydantic_ai_on_chat_completions,
    pydantic_ai_on_responses,
    pydantic_ai_on_messages,
    langchain_on_chat_completions,
    langchain_on_responses,
    langchain_on_messages,
]

# Every framework and every dialect occurs once.
STREAMED = [
    openai_agents_on_responses,
    openai_agents_continues_by_id,
    pydantic_ai_on_messages,
    langchain_on_chat_completions,
]

if __name__ == "__main__":
    run(CASES, f"frameworks at {os.environ['OPENAI_BASE_URL']}", STREAMED)
