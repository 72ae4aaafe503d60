"""A server with one tool on FastMCP, on the given port or on standard streams."""

import sys

from fastmcp import FastMCP

server = FastMCP("ibis")


@server.tool
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


if sys.argv[1] == "stdio":
    server.run(transport="stdio", show_banner=False)
else:
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
