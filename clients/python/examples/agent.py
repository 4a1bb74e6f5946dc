"""An agent in forty lines: a model that speaks OpenAI's chat completions, and the tools of a Toolpost.

    TOOLPOST_TOKEN=... MODEL_URL=http://127.0.0.1:9000/v1 MODEL=demo python3 agent.py "What is in the README?"
"""

import json
import os
import re
import sys
import urllib.request
from typing import Any

from toolpost import Client, ToolpostError

client = Client()
tools = {re.sub("[^a-zA-Z0-9_-]", "_", t.name)[:64]: t for t in client.tools() if t.available and not t.unlisted}
offered = [{"type": "function", "function": {"name": name, "description": t.description,
                                             "parameters": t.input or {"type": "object"}}} for name, t in tools.items()]


def think(messages: "list[dict[str, Any]]") -> "dict[str, Any]":
    body = json.dumps({"model": os.environ["MODEL"], "messages": messages, "tools": offered}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('MODEL_KEY', '')}"}
    request = urllib.request.Request(os.environ["MODEL_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["message"]


def use(name: str, arguments: str) -> str:
    if name not in tools:
        return f"error: there is no tool {name}"
    try:
        return json.dumps(client.call(tools[name].name, json.loads(arguments or "{}"), timeout=300).unwrap())
    except (ToolpostError, ValueError) as e:  # the model reads what went wrong, and what to do
        return f"error: {e}"


messages: "list[dict[str, Any]]" = [{"role": "user", "content": " ".join(sys.argv[1:])}]
for _ in range(20):
    messages.append(think(messages))
    if not messages[-1].get("tool_calls"):
        sys.exit(print(messages[-1]["content"]))
    for call in messages[-1]["tool_calls"]:
        said = use(call["function"]["name"], call["function"]["arguments"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
sys.exit("the model still wants tools after 20 rounds")
