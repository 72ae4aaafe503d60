"""A server with one tool on the official SDK, which speaks both revisions.

It serves on the given port, or on standard streams."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("heron")


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


if sys.argv[1] == "stdio":
    server.run(transport="stdio")
else:
    server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
