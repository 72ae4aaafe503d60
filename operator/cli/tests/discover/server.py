"""An MCP server with two pages of tools: `server.py stdio|http TOOLS [ADDRESS]`, a JSON file's list.

Over HTTP it prints its port, wants the token `otter-token` (in the header x-otter where another
has taken Authorization), answers with an event stream, and
knows 2026-07-28 alone.
"""

import http.server
import json
import sys

form, file, *address = sys.argv[1:]
with open(file) as opened:
    tools = json.load(opened)


def answer(method, params):
    if method == "initialize" and form == "stdio":
        server = {"name": "otter", "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}}
    if method == "tools/list":
        half = len(tools) // 2
        if "cursor" in params:
            return {"result": {"tools": tools[half:]}}
        return {"result": {"tools": tools[:half], "nextCursor": "more"}}
    return {"error": {"code": -32601, "message": "unknown"}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        tokens = (self.headers["authorization"], self.headers["x-otter"])
        if tokens[0] != "Bearer otter-token" and tokens[1] != "otter-token":
            return self.say(401, "text/plain", b"who are you?")
        said = answer(request["method"], request["params"])
        envelope = request["params"].get("_meta", {})
        version = envelope.get("io.modelcontextprotocol/protocolVersion")
        if request["method"] == "tools/list" and (
            version != "2026-07-28"
            or self.headers["mcp-protocol-version"] != version
            or self.headers["mcp-method"] != "tools/list"
        ):
            said = {"error": {"code": -32020, "message": "headers"}}
        if "error" in said:
            said = json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}).encode()
            return self.say(400, "application/json", said)
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
        said = {"jsonrpc": "2.0", "id": request["id"], **said}
        events = "".join(f"event: message\r\ndata: {json.dumps(it)}\r\n\r\n" for it in (note, said))
        self.say(200, "text/event-stream", events.encode())

    def say(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if form == "http":
    server = http.server.ThreadingHTTPServer((*(address or ["127.0.0.1"]), 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        said = answer(message["method"], message.get("params") or {})
        # A request of its own, before it answers.
        print(json.dumps({"jsonrpc": "2.0", "id": "mine", "method": "roots/list"}), flush=True)
        assert json.loads(sys.stdin.readline())["error"]["code"] == -32601
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
