"""An MCP server on the official SDK, over its standard streams."""

import os

from mcp.server import MCPServer

server = MCPServer("heron", version="3", instructions="Wade.")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def leave() -> str:
    """Ends this process."""
    os._exit(4)


server.run("stdio")
