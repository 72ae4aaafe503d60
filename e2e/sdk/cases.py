"""What the cases of all SDKs share: what the scripted model says, and how cases are run."""

import json
import os
import sys
import traceback

# What streams reach the agent: what the model writes while it writes it, hidden rounds
# included, or the last reply once it is whole.
LIVE = os.environ.get("STREAMING") == "Live"

ODD_TEXT = 'data: [DONE]\n\nevent: error\n"quoted" \\ \U0001f9a6 \u00e9 \u2028\u0007 {{not a placeholder}}'
# The arguments of the first call of `clock`, with an integer that a double cannot hold.
CLOCK_ARGUMENTS = {"zone": "\u00c6r\u00f8", "n": 12345678901234567}


def is_market(text):
    """The desk's answer for this very agent, whoever the model asked for."""
    result = json.loads(text)
    assert result["ok"] is True and result["status_code"] == 200, result
    assert result["data"]["claw_id"] == "analyst", result
    assert result["data"]["principal"] == "reader", result
    return True


def is_wrong_order(text):
    """Two results that say that nothing was executed."""
    codes = [json.loads(line)["error"]["code"] for line in text.split("\n")]
    assert codes == ["mixed_tool_order"] * 2, codes


def raised(kind, ask):
    """The error of this kind that asking ends with."""
    try:
        ask()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def is_resent_only_before_a_call(kind, connect, ask):
    """An SDK that sends a request again after a 5xx does not run a tool again that way.

    `connect` gives a client with these hooks for its requests and two retries.
    """
    for prompt, sent in [("broken", 3), ("hangs up later", 1)]:
        requests = []
        client = connect({"request": [requests.append]})
        error = raised(kind, lambda: ask(client, prompt))
        assert len(requests) == sent, (prompt, len(requests))
    assert "would call them again" in str(error.body), error.body


def run(cases, what, streamed):
    """All cases, or with Live streaming those that it makes a difference to."""
    cases = streamed if LIVE else cases
    failed = []
    for case in cases:
        try:
            case()
            print("ok", case.__name__)
        except Exception:
            failed.append(case.__name__)
            print("FAILED", case.__name__)
            traceback.print_exc(file=sys.stdout)
    print(f"{what}: {len(cases)} cases")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
