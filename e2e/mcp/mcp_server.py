"""A tool on the official SDK's server, which speaks both revisions."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("heron")


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
