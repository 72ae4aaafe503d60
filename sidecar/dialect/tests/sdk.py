"""The official SDKs read what the cases answer: `answer.sse` and `answer.json` say the same.

    pip install anthropic openai && python3 sidecar/dialect/tests/sdk.py

Nothing is sent: each client gets its answer from a transport of its own. Events are read by
the SDKs' accumulators, which is how an agent's author reads them.
"""

import json
import pathlib
import sys

import anthropic
import httpx2
import openai

CASES = pathlib.Path(__file__).parent / "cases"


def client(kind, case, stream):
    name, content_type = ("answer.sse", "text/event-stream") if stream else ("answer.json", "application/json")
    body = (case / name).read_bytes()
    answer = lambda request: httpx2.Response(200, headers={"content-type": content_type}, content=body)
    return kind(api_key="none", max_retries=0, http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))


def anthropic_messages(case):
    ask = {"model": "otter-1", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    with client(anthropic.Anthropic, case, True).messages.stream(**ask) as stream:
        streamed = stream.get_final_message()
    whole = client(anthropic.Anthropic, case, False).messages.create(**ask)
    # The accumulator writes `None` where the whole answer says nothing.
    return streamed.to_dict(exclude_none=True), whole.to_dict(exclude_none=True)


def openai_responses(case):
    api = client(openai.OpenAI, case, True).responses
    with api.stream(model="otter-1", input="hi") as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events))), "numbered"
    whole = client(openai.OpenAI, case, False).responses.create(model="otter-1", input="hi")
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == whole.output_text, "text"
    done = [event.item.to_dict() for event in events if event.type == "response.output_item.done"]
    assert done == [item.to_dict() for item in whole.output], "items"
    last = events[-1].response
    return [last.id, last.status, last.usage], [whole.id, whole.status, whole.usage]


def main():
    failed = 0
    for read in (anthropic_messages, openai_responses):
        for case in sorted((CASES / read.__name__).iterdir()):
            streamed, whole = read(case)
            same = streamed == whole
            failed += not same
            print(f"{'ok  ' if same else 'DIFF'} {read.__name__}/{case.name}")
            if not same:
                print(json.dumps([streamed, whole], default=str, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
