"""Runs a program and writes down every HTTP request that it sends.

    watch.py LOG COMMAND...

Requests to the mediator go through a proxy in this process, so the log also has the requests that
the mediator does not record: unknown paths, probes, WebSocket handshakes. The proxy changes nothing
but the Host header. All other requests reach a second port, which refuses them: a runner under test
must not use the internet. LOG gets one line of JSON per request, at the end of its answer.

WATCH_SECONDS ends the program after this time. WATCH_BODIES=1 adds the bodies of requests to the log.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

# Headers of one connection, which a proxy does not pass on. `Upgrade` and `Connection` pass, so that
# the mediator answers a WebSocket handshake itself.
OF_ONE_CONNECTION = {"host", "keep-alive", "proxy-connection", "transfer-encoding"}
SECONDS = int(os.environ.get("WATCH_SECONDS", 300))
# The exit code of `timeout`.
TIMED_OUT = 124


class Log:
    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")
        self.lock = threading.Lock()

    def write(self, **entry):
        with self.lock:
            print(json.dumps(entry), file=self.file, flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Both are set by `serve`.
    log = None
    mediator = None

    def log_message(self, *_):
        pass

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


class ToMediator(Handler):
    def forward(self):
        body = self.body()
        headers = {n: v for n, v in self.headers.items() if n.lower() not in OF_ONE_CONNECTION}
        headers["Content-Length"] = str(len(body))
        entry = {"method": self.command, "path": self.path, **described(self.headers, body)}
        connection = http.client.HTTPConnection(self.mediator, timeout=SECONDS)
        try:
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            entry["status"] = answer.status
            begin = self.answer(answer)
            if answer.status >= 400:
                entry["answer"] = begin.decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            # The runner or the mediator has hung up.
            entry["broken"] = str(error)
            self.close_connection = True
        finally:
            connection.close()
            self.log.write(**entry)

    def answer(self, answer):
        """Passes an answer on as it comes; returns its first bytes, for the log."""
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in OF_ONE_CONNECTION | {"content-length", "connection"}:
                self.send_header(name, value)
        has_body = self.command != "HEAD" and answer.status not in (204, 304)
        if has_body:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        begin = b""
        if has_body:
            while data := answer.read1(1 << 16):
                begin = (begin + data)[:4096]
                self.chunk(data)
            self.chunk(b"")
        return begin

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = forward


class ToInternet(Handler):
    def refuse(self):
        # A CONNECT names the host alone, so the path inside of TLS stays unknown.
        self.log.write(outside=self.path, method=self.command)
        self.close_connection = True
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_CONNECT = do_GET = do_HEAD = do_POST = do_PUT = refuse


def described(headers, body):
    """The facts of a request that a table needs: its fields, and the types of its tools."""
    found = {}
    if headers.get("Upgrade"):
        found["upgrade"] = headers["Upgrade"]
    if headers.get("Content-Encoding"):
        found["encoding"] = headers["Content-Encoding"]
    try:
        request = json.loads(body)
    except ValueError:
        return found
    if not isinstance(request, dict):
        return found
    found["fields"] = sorted(request)
    for name in ("model", "stream", "store", "previous_response_id", "background"):
        if name in request:
            found[name] = request[name]
    if request.get("jsonrpc"):
        found["rpc"] = request.get("method")
    tools = [tool for tool in request.get("tools") or [] if isinstance(tool, dict)]
    names = [tool.get("name") or (tool.get("function") or {}).get("name") for tool in tools]
    found["tools"] = [f"{tool.get('type', 'custom')}:{name}" for tool, name in zip(tools, names)]
    if os.environ.get("WATCH_BODIES"):
        found["headers"] = dict(headers.items())
        found["body"] = request
    return found


def serve(kind, log, mediator):
    """Starts a server of this kind on a free port of loopback; returns its origin."""
    handler = type(kind.__name__, (kind,), {"log": log, "mediator": mediator})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def through(origin, mediator, folder):
    """The runner's environment with this process in the mediator's place, also in mcp.json."""
    variables = dict(os.environ)
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        if name in variables:
            variables[name] = variables[name].replace(mediator, origin)
    for file in Path(variables["TOOLCRIB_CONTEXT"]).iterdir():
        text = file.read_text(encoding="utf-8").replace(mediator, origin)
        (Path(folder) / file.name).write_text(text, encoding="utf-8")
    variables["TOOLCRIB_CONTEXT"] = str(folder)
    return variables


def main(log, *command):
    mediator = "http://" + urlsplit(os.environ["OPENAI_BASE_URL"]).netloc
    log = Log(log)
    with tempfile.TemporaryDirectory() as folder:
        origin = serve(ToMediator, log, urlsplit(mediator).netloc)
        variables = through(origin, mediator, folder)
        outside = serve(ToInternet, log, None)
        for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
            variables[name] = variables[name.lower()] = outside
        variables["NO_PROXY"] = variables["no_proxy"] = "127.0.0.1,localhost"
        # A session of its own: the runner's children end with it.
        child = subprocess.Popen(command, env=variables, start_new_session=True)
        # Without a handler, SIGTERM would end this process before it ends the runner.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            return child.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
