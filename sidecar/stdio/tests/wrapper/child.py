"""An MCP server on its standard streams that does what a test asks for, and nothing well."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

STUBBORN = "--stubborn" in sys.argv
if STUBBORN:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

lock = threading.Lock()
cancelled = []
held = []


def say(message):
    with lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def result(id, value):
    say({"jsonrpc": "2.0", "id": id, "result": value})


def text(id, value):
    result(id, {"content": [{"type": "text", "text": value}]})


def wait_for_file(id, path):
    while not os.path.exists(path):
        time.sleep(0.01)
    text(id, "the file is there")


def call(id, name, arguments):
    if name == "echo":
        text(id, json.dumps(arguments))
    elif name == "hold":
        held.append(id)
        print("holding", file=sys.stderr, flush=True)
    elif name == "release":
        text(id, "released")
        for other in held:
            text(other, "held")
        held.clear()
    elif name == "die":
        os._exit(3)
    elif name == "deaf":
        os.close(0)
        text(id, "deaf")
        while True:
            time.sleep(1)
    elif name == "leave":
        # Its parent, the shell, ends at once; it itself when the test says so.
        command = "sleep 600 </dev/null >/dev/null 2>&1 & echo $!"
        text(id, subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True).stdout.strip())
    elif name == "pid":
        text(id, str(os.getpid()))
    elif name == "environment":
        text(id, os.environ.get(arguments["name"], ""))
    elif name == "cancelled":
        text(id, json.dumps(cancelled))
    elif name == "long":
        text(id, "x" * (9 * 1024 * 1024))
    elif name == "noise":
        print("this is no message", flush=True)
        print("a\x1b[2Jb\x85c", file=sys.stderr, flush=True)
        text(id, "noisy")
    elif name == "wait_for_file":
        print("waiting", file=sys.stderr, flush=True)
        threading.Thread(target=wait_for_file, args=(id, arguments["path"]), daemon=True).start()
    else:
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "no such tool", "data": name}})


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        result(
            message["id"],
            {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                "serverInfo": {"name": "otter", "version": "7"},
            },
        )
    elif method == "tools/list":
        result(message["id"], {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}], "seen": params})
    elif method == "tools/call":
        call(message["id"], params["name"], params.get("arguments", {}))
    elif method == "notifications/cancelled":
        cancelled.append(params["requestId"])
        print("cancelled", params["requestId"], file=sys.stderr, flush=True)

while STUBBORN:
    time.sleep(1)
