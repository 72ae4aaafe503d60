"""Asks the model for each of its steps, again and again."""
import json, os, urllib.error, urllib.request

while True:
    for question in ["trade", "large trade", "nothing", "no answer"]:
        request = urllib.request.Request(
            os.environ["OPENAI_BASE_URL"] + "/chat/completions",
            json.dumps({"messages": [{"role": "user", "content": question}]}).encode(),
            {
                "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
                "Content-Type": "application/json",
            },
        )
        try:
            urllib.request.urlopen(request).read()
        except urllib.error.HTTPError as error:
            print(question, error.code, flush=True)
