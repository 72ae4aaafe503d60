"""A service with answers that are expensive to read, a model that reads any request, and a proxy.

The proxy writes each CONNECT request to a file. The model `held` never answers.
"""
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hostile(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        what, _, size = self.path.strip("/").partition("/")
        body = b"\\" * int(size) if what == "backslashes" else b"{}"
        self.answer(200, body, "text/plain")

    def do_CONNECT(self):
        with open("/tmp/heard", "ab", buffering=0) as heard:
            heard.write(f"{self.requestline}\n{self.headers}\n".encode())
        self.answer(502, b"")
        self.close_connection = True

    def do_POST(self):
        left, body = int(self.headers["content-length"]), b""
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            left -= len(piece)
            # The beginning of a long message is enough to recognize it as MCP.
            body = (body + piece)[: 1 << 20]
        if self.path != "/mcp" and b'"held"' in body:
            open("/tmp/held", "w").close()
            self.close_connection = True
            return time.sleep(60)
        if self.path != "/mcp":
            message = {"role": "assistant", "content": "done"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}
            return self.answer(200, json.dumps(whole).encode())
        message = json.loads(body)
        if "id" not in message:
            return self.answer(202, b"")
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "initialize":
            answer["result"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "0"},
            }
        elif message["method"] == "tools/call":
            count = message["params"]["arguments"]["count"]
            values = ["b" * 20 + f"c{number}" for number in range(count)]
            answer["result"] = {"content": [], "structuredContent": {"values": values}}
        else:
            answer["error"] = {"code": -32601, "message": "no such method"}
        self.answer(200, json.dumps(answer).encode())


ThreadingHTTPServer(("", int(sys.argv[1])), Hostile).serve_forever()
