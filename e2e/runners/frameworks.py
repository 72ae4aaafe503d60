"""An agent with one tool of its own, on one of the Python frameworks: `frameworks.py KIND` streams one turn.

KIND is a function of this file. Addresses and keys come from the environment.
"""

import asyncio
import os
import sys

# The frameworks would send traces to their vendors.
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
os.environ["LANGSMITH_TRACING"] = "false"

PROMPT = "please"
MODEL = "otter-1"


def local_clock() -> str:
    """The agent's own clock"""
    return "heron-42"


def show(text):
    print(text, end="", flush=True)


async def agents(model, **settings):
    from agents import Agent, Runner, function_tool

    agent = Agent(name="otter", model=model, tools=[function_tool(local_clock)])
    result = Runner.run_streamed(agent, PROMPT, **settings)
    async for event in result.stream_events():
        if getattr(getattr(event, "data", None), "type", None) == "response.output_text.delta":
            show(event.data.delta)


async def agents_responses(**settings):
    from agents import OpenAIResponsesModel
    from openai import AsyncOpenAI

    await agents(OpenAIResponsesModel(model=MODEL, openai_client=AsyncOpenAI()), **settings)


async def agents_chat():
    from agents import OpenAIChatCompletionsModel
    from openai import AsyncOpenAI

    await agents(OpenAIChatCompletionsModel(model=MODEL, openai_client=AsyncOpenAI()))


async def agents_state():
    """Each request names the response before it, and has the new items alone."""
    await agents_responses(auto_previous_response_id=True)


async def pydantic(model):
    from pydantic_ai import Agent

    async with Agent(model, tools=[local_clock]).run_stream(PROMPT) as streamed:
        async for text in streamed.stream_text(delta=True):
            show(text)


async def pydantic_responses():
    from pydantic_ai.models.openai import OpenAIResponsesModel

    await pydantic(OpenAIResponsesModel(MODEL))


async def pydantic_messages():
    from pydantic_ai.models.anthropic import AnthropicModel

    await pydantic(AnthropicModel(MODEL))


async def langgraph(model):
    from langchain_core.messages import AIMessageChunk, HumanMessage
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    tools = [tool(local_clock)]
    bound = model.bind_tools(tools)

    async def ask(state):
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    state = {"messages": [HumanMessage(PROMPT)]}
    async for message, _ in graph.compile().astream(state, stream_mode="messages"):
        if isinstance(message, AIMessageChunk):
            show(message.text)


async def langgraph_chat():
    from langchain_openai import ChatOpenAI

    await langgraph(ChatOpenAI(model=MODEL))


async def langgraph_messages():
    from langchain_anthropic import ChatAnthropic

    await langgraph(ChatAnthropic(model=MODEL, max_tokens=500))


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]]())
    print()
