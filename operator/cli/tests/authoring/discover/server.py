"""An MCP server with two pages of tools: `server.py stdio|http TOOLS [ADDRESS]`, a JSON file's list.

Over HTTP it prints its port, wants the token `otter-token` (in the header x-otter where another
has taken Authorization), speaks TLS where the folder has `tls.crt`, answers with an event stream, and
knows 2026-07-28 alone; but at /session 2025-11-25 alone, in a session whose end is a file `ended`.
"""

import http.server
import json
import os
import ssl
import sys

form, file, *address = sys.argv[1:]
with open(file) as opened:
    tools = json.load(opened)


def answer(method, params, older):
    if method == "initialize" and older:
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
        if self.path == "/session":
            return self.in_session(request)
        said = answer(request["method"], request["params"], False)
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

    def in_session(self, request):
        is_first = request["method"] == "initialize"
        if not is_first and self.headers["mcp-session-id"] != "otter-1":
            return self.say(404, "text/plain", b"which session?")
        if "id" not in request:
            return self.say(202, "text/plain", b"")
        said = answer(request["method"], request["params"], True)
        said = json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}).encode()
        self.say(200, "application/json", said, {"mcp-session-id": "otter-1"} if is_first else {})

    def do_DELETE(self):
        with open("ended", "w") as ended:
            ended.write(self.headers["mcp-session-id"])
        self.say(200, "text/plain", b"")

    def say(self, status, kind, body, headers={}):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if form == "http":
    server = http.server.ThreadingHTTPServer((*(address or ["127.0.0.1"]), 0), Handler)
    if os.path.exists("tls.crt"):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain("tls.crt", "tls.key")
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    print(server.server_port, flush=True)
    server.serve_forever()
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        said = answer(message["method"], message.get("params") or {}, True)
        # A request of its own, before it answers.
        print(json.dumps({"jsonrpc": "2.0", "id": "mine", "method": "roots/list"}), flush=True)
        assert json.loads(sys.stdin.readline())["error"]["code"] == -32601
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
