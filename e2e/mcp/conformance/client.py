#!/usr/bin/env python3
"""The client of the protocol's conformance scenarios: an agent behind a mediator.

The last argument is the address of the scenario's server, which is the agent's surface. The test's
scripted model chooses the tool calls by the scenario's name."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).parent
# Scenarios that test the listing of tools. All others use a Surface that is written by hand.
DISCOVERED = ["http-invalid-tool-headers", "json-schema-ref-no-deref"]


def discovered(program, url):
    """Returns the Surface that `surface discover` prints."""
    ask = [program, "surface", "discover", "conformance", "-n", "trading"]
    ask += ["--url", url, "--service", "conformance:80"]
    return subprocess.run(ask, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    # The command line of `kubectl toolcrib run`: all arguments before and after the surface.
    run = json.loads(os.environ["CONFORMANCE_RUN"])
    url = sys.argv[-1]
    address = urlsplit(url).netloc
    with tempfile.TemporaryDirectory() as folder:
        surface = Path(folder, "surface.yaml")
        if scenario in DISCOVERED:
            surface.write_text(discovered(run["program"], url))
        else:
            surface.write_text((HERE / "surface.yaml").read_text())
        command = [run["program"], *run["arguments"], "-f", surface, "-f", HERE / "objects.yaml"]
        command += ["--at", f"conformance=http://{address}"]
        sys.exit(subprocess.run([*command, "--", *run["agent"], scenario]).returncode)


main()
