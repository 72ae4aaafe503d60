"""The part that the cases of all SDKs share: texts of the scripted model, checks, and the runner."""

import json
import os
import sys
import traceback

# True with Live streaming: the agent gets the model's text as it is written, hidden rounds included.
# Otherwise it gets the last reply once it is complete.
LIVE = os.environ.get("STREAMING") == "Live"

ODD_TEXT = 'data: [DONE]\n\nevent: error\n"quoted" \\ \U0001f9a6 \u00e9 \u2028\u0007 {{not a placeholder}}'
# Arguments of the first call of `clock`. The integer does not fit in a double.
CLOCK_ARGUMENTS = {"zone": "\u00c6r\u00f8", "n": 12345678901234567}


def is_market(text):
    """Checks that the text is the desk's answer for this agent, whatever id the model sent."""
    result = json.loads(text)
    assert result["ok"] is True and result["status_code"] == 200, result
    assert result["data"]["claw_id"] == "analyst", result
    assert result["data"]["principal"] == "reader", result
    return True


def assert_wrong_order(text):
    """Checks for two results with the error of a wrong order: nothing was executed."""
    codes = [json.loads(line)["error"]["code"] for line in text.split("\n")]
    assert codes == ["mixed_tool_order"] * 2, codes


def expect_error(kind, ask):
    """Returns the error of this kind that `ask` raises."""
    try:
        ask()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def assert_resent_only_before_a_call(kind, connect, ask):
    """Checks that a retry of the SDK after a 5xx never runs a tool twice.

    `connect` returns a client with two retries and these hooks for its requests.
    """
    for prompt, sent in [("broken", 3), ("hangs up later", 1)]:
        requests = []
        client = connect({"request": [requests.append]})
        error = expect_error(kind, lambda: ask(client, prompt))
        assert len(requests) == sent, (prompt, len(requests))
    assert "would call them again" in str(error.body), error.body


def run(cases, suite, streamed):
    """Runs all cases, or with Live streaming the cases that depend on it."""
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
    print(f"{suite}: {len(cases)} cases")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
