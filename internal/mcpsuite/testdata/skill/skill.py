"""The suite's tools whose schemas matter, and one that has little time, as a skill of the second generation."""

import json
import sys

ADDRESS = {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}

TOOLS = {
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": ADDRESS},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
    "test_x_mcp_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "description": "Where to ask.", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
    "test_logging_tool": {"type": "object"},
    "test_prompt_with_arguments": {
        "type": "object",
        "properties": {
            "arg1": {"type": "string", "description": "First test argument", "examples": ["testing", "paris"]},
            "arg2": {"type": "string", "description": "Second test argument"},
        },
        "required": ["arg1", "arg2"],
    },
}


def call(name, args):
    if name == "test_prompt_with_arguments":
        return "Prompt with arguments: arg1='%(arg1)s', arg2='%(arg2)s'" % args
    if name == "test_logging_tool":
        said = {"eventType": "log", "data": {"level": "info", "message": "Somebody called."}}
        print(json.dumps({"jsonrpc": "2.0", "id": "log", "method": "intelligence/emitEvent", "params": said}), flush=True)
        sys.stdin.readline()
    return json.dumps(args)


def handle(method, params):
    if method == "tools/list":
        tools = [{"name": n, "description": "Repeats its arguments.", "inputSchema": s} for n, s in TOOLS.items()]
        return {"result": {"tools": tools}}
    if method == "tools/call":
        return {"result": {"content": [{"type": "text", "text": call(params["name"], params["arguments"])}]}}
    if method.startswith("skill/"):
        return {"result": {"ok": True}}
    return {"error": {"code": -32601, "message": "Unknown: " + method}}


for line in iter(sys.stdin.readline, ""):
    request = json.loads(line)
    if "id" in request and "method" in request:
        answer = dict(handle(request["method"], request.get("params", {})), jsonrpc="2.0", id=request["id"])
        print(json.dumps(answer), flush=True)
