"""The SDK of a host: it answers the requests of the second generation, and any other with -32603."""

import asyncio
import json
import sys

from dev.types.skill_types import SkillDefinition


class SkillServer:
    def __init__(self, skill: SkillDefinition) -> None:
        self.tools = {t.name: t for t in skill.tools}

    def start(self) -> None:
        asyncio.run(self.serve())

    async def serve(self) -> None:
        reader, loop = asyncio.StreamReader(), asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            message = json.loads(line)
            reply = {"jsonrpc": "2.0", "id": message.get("id")}
            try:
                reply["result"] = self.answer(message["method"], message["params"])
            except Exception as problem:
                reply["error"] = {"code": -32603, "message": str(problem)}
            print(json.dumps(reply), flush=True)
            if message["method"] == "skill/shutdown":
                return

    def answer(self, method: str, params: dict) -> dict:
        if method == "tools/list":
            schema = {"type": "object", "properties": {}, "required": None}
            return {"tools": [{"name": n, "description": n, "inputSchema": schema} for n in self.tools]}
        if method == "tools/call":
            text = self.tools[params["name"]].run(params["arguments"])
            return {"content": [{"type": "text", "text": text}], "isError": False}
        if method.startswith("skill/"):
            return {"ok": True}
        raise ValueError("Unknown method: " + method)


def look(args: dict) -> str:
    try:
        with open(args["path"], encoding="utf-8") as f:
            text = f.read().strip('"')
    except OSError:
        return "unseen"
    return text[:20] or "unseen"
