#!/usr/bin/env python3
"""The client that the protocol's conformance scenarios start, with the address of their server
as the last argument: an agent behind a mediator whose surface that server is. The model that
says which tools are called is the test's, and knows the scenario by its name."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).parent
# Those whose point is what the server lists; the others get a Surface written by hand.
DISCOVERED = ["http-invalid-tool-headers", "json-schema-ref-no-deref"]


def discovered(program, url):
    """The Surface as its reviewer gets it."""
    ask = [program, "surface", "discover", "conformance", "-n", "trading"]
    ask += ["--url", url, "--service", "conformance:80"]
    return subprocess.run(ask, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    # `kubectl toolcrib run` with all but the surface, as arguments before and after it.
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
