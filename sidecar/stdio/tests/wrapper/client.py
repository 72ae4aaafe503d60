"""The official SDK's client: `client.py URL MODE TOOL ARGUMENTS…`, one call per pair."""

import asyncio
import json
import sys

from mcp import Client, MCPError

url, mode, *calls = sys.argv[1:]


async def main():
    said = []
    async with Client(url, mode=mode) as client:
        tools = (await client.list_tools()).tools
        for tool, arguments in zip(calls[::2], calls[1::2]):
            try:
                result = await client.call_tool(tool, json.loads(arguments))
                said.append([block.text for block in result.content])
            except MCPError as error:
                said.append(error.error.model_dump())
        answer = {
            "version": client.protocol_version,
            "server": client.server_info.name,
            "instructions": client.instructions,
            "tools": sorted(tool.name for tool in tools),
            "said": said,
        }
    print(json.dumps(answer))


asyncio.run(main())
