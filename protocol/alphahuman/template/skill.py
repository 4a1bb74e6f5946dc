"""The skill my-skill: one JSON-RPC message a line on stdin, one answer a line on stdout.

Whatever else it has to say goes to stderr, which is its log.
"""

import json
import sys

TOOLS = [
    {
        "name": "greet",
        "description": "Greets somebody by name.",
        "parameters": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    }
]


def greet(arguments):
    if not arguments["name"]:
        raise ValueError("name is missing")
    return "Hello " + arguments["name"]


HANDLERS = {"greet": greet}


def call(params):
    handler = HANDLERS.get(params.get("name"))
    if handler is None:
        return {"content": "there is no such tool", "isError": True}
    try:
        return {"content": handler(params.get("arguments", {}))}
    except Exception as problem:
        return {"content": str(problem), "isError": True}


def answer(method, params):
    if method == "initialize":
        return {
            "name": "my-skill",
            "description": "Greets people by name.",
            "version": "1.0.0",
            "tools": TOOLS,
        }
    if method == "tools/call":
        return call(params)
    if method.startswith("lifecycle/") or method == "shutdown":
        return {"ok": True}
    return None


def main():
    for line in sys.stdin:
        if not line.strip():
            continue
        request = json.loads(line)
        method = request.get("method", "")
        reply = {"jsonrpc": "2.0", "id": request.get("id")}
        result = answer(method, request.get("params") or {})
        if result is None:
            reply["error"] = {"code": -32601, "message": "Method not found: " + method}
        else:
            reply["result"] = result
        if "id" in request:
            print(json.dumps(reply), flush=True)
        if method == "shutdown":
            break


if __name__ == "__main__":
    main()
