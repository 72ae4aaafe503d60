"""A runner without a model: it calls tools at the mediator's /mcp.

`calls` calls the tool that /tmp/tool names, again and again, and writes a line for each call to
/tmp/calls; `once TOOL` prints the outcome of one; `ask MODEL` prints the status of a model request,
0 if the connection broke; `attack KIND` attacks its own mediator, or the operator, four requests
or a share of the connections at a time, and prints how often each outcome was seen. `calls` and
`attack` end when /tmp/stop is there, and after MOST seconds.
"""
import collections
import json
import os
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request

MOST = 300
THREADS = 4
MEDIATOR = "http://127.0.0.1:4141"


def post(path, body, headers):
    headers = {
        "authorization": "Bearer " + os.environ["TOOLCRIB_TOKEN"],
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **headers,
    }
    request = urllib.request.Request(MEDIATOR + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def call(tool, arguments):
    """Returns `ok`, the error's code, or the unexpected answer."""
    revision = "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    headers = {"mcp-protocol-version": revision, "mcp-method": "tools/call", "mcp-name": tool}
    status, body = post("/mcp", json.dumps(message).encode(), headers)
    lines = [line[5:] for line in body.splitlines() if line.startswith("data:")]
    try:
        result = json.loads(lines[-1] if lines else body)["result"]
        said = json.loads(result["content"][0]["text"])
        return "ok" if said["ok"] else said["error"]["code"]
    except (KeyError, ValueError, TypeError):
        return f"{status} {body[:200]}"


def model(name, content, **more):
    message = {"role": "user", "content": content}
    body = json.dumps({"model": name, "messages": [message], **more}).encode()
    return str(post("/v1/chat/completions", body, {})[0])


def rounds(attempt):
    end = time.time() + MOST
    number = 0
    while not os.path.exists("/tmp/stop") and time.time() < end:
        attempt(number)
        number += 1


def calls():
    with open("/tmp/calls", "a", buffering=1) as lines:

        def attempt(number):
            if not os.path.exists("/tmp/tool"):
                time.sleep(0.02)
                return
            with open("/tmp/tool") as named:
                tool = named.read()
            begun = time.time()
            outcome = call(tool, {})
            lines.write(f"{begun:.3f} {time.time():.3f} {tool} {outcome}\n")
            time.sleep(0.02)

        rounds(attempt)


# Connections of the whole attack, and the beginning of a request whose body never comes.
FLOODS = {
    "webhook": (150, b"POST /inject HTTP/1.1\r\nHost: w\r\nContent-Length: 1000\r\n\r\n"),
    "link": (
        1900,
        b"POST /v1/link HTTP/1.1\r\nHost: l\r\nAuthorization: Bearer x\r\nContent-Length: 60000\r\n\r\n{",
    ),
}


def flood(kind):
    """Opens a share of the connections over TLS, leaves them for a while and closes them."""
    host = f"toolcrib-{kind}.toolcrib-system.svc"
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    most, half = FLOODS[kind]
    held = []
    for _ in range(-(-most // THREADS)):
        if os.path.exists("/tmp/stop"):
            break
        try:
            plain = socket.create_connection((host, 443), timeout=5)
            held.append(context.wrap_socket(plain, server_hostname=host))
            held[-1].sendall(half)
        except OSError:
            # The listener closes strangers over its bound.
            pass
    end = time.time() + 4.5
    while time.time() < end and not os.path.exists("/tmp/stop"):
        time.sleep(0.1)
    for connection in held:
        connection.close()
    return "connected" if held else "refused"


def attack(kind):
    outcomes = collections.Counter()
    # Just under the bound on one body.
    large = "x" * (32 * 1024 * 1024 - 1000) if kind == "bodies" else ""
    # Arguments of a quarter of a MiB.
    values = ["b" * 20 + f"c{number}" for number in range(8000)]

    def attempt(number):
        if kind in FLOODS:
            with open("/tmp/rounds", "a") as begun:
                begun.write(".")
            outcome = flood(kind)
        elif kind == "patterns":
            # The test applies the Surface.
            time.sleep(0.2)
            outcome = "applied"
        elif kind == "bodies":
            outcome = model("sink/m", large)
        elif kind == "backslashes":
            size = 16 * 1024 if number % 2 else 2_000_000
            outcome = call("hostile__shout", {"bytes": size})
        elif number % 3:
            outcome = call("judged__answer", {"count": (2_000, 120_000)[number % 2]})
        else:
            outcome = call("judged__ask", {"count": 1, "values": values})
        outcomes[outcome] += 1
        with open("/tmp/rounds", "a") as done:
            done.write(".")

    threads = [threading.Thread(target=rounds, args=(attempt,)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(outcomes))


match sys.argv[1]:
    case "calls":
        calls()
    case "once":
        print(call(sys.argv[2], {}))
    case "ask":
        print(model(sys.argv[2], "What is my market context?"))
    case "attack":
        attack(sys.argv[2])
