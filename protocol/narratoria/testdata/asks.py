"""A tool that asks before it goes on: a peer of the tests, with the standard library alone.

Its input says what: {"ask": "choice" | "form" | "needs" | "twice" | "bad" | "rounds" | "refuse"}.
"""
import json
import sys

request = json.load(sys.stdin)
what, answers = request["input"]["ask"], request.get("answers")


def say(kind, **fields):
    print(json.dumps({"version": "0", "type": kind, "requestId": request["requestId"], **fields}), flush=True)


def ask(**payload):
    say("ui_event", event="ask", payload=payload)


def form(name, kind="string"):
    return {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}


if what == "refuse":
    ask(message="Who is there?", schema=form("name"))
    say("done", ok=False, summary="nobody may know")
elif what == "rounds" and answers and request["resume"].startswith("colour:"):
    name = request["resume"].removeprefix("colour:")
    say("done", ok=True, output={"name": name, "colour": answers["colour"]})
elif what == "rounds" and answers:
    ask(id="colour:" + answers["name"], message="Which colour?", schema=form("colour"))
    say("done", ok=True)
elif answers is not None:
    say("done", ok=True, output={"answers": answers, "resume": request["resume"], "repeated": "answers" in request})
elif what == "choice":
    say("ui_event", event="narrative_choice", payload={"choices": ["north", {"id": "s", "label": "south", "hint": "cold"}]})
    say("done", ok=True, summary="Where to?")
elif what == "needs":
    ask(message="", needs=[
        {"key": "who", "message": "Who?", "schema": form("name")},
        {"key": "folders", "kind": "roots", "optional": True},
    ])
    say("done", ok=True)
elif what == "twice":
    ask(message="first?")
    ask(message="second?")
    say("done", ok=True)
elif what == "bad":
    say("ui_event", event="ask", payload={"schema": 7})
    say("done", ok=True)
else:
    ask(message="What is your name?", schema=form("name"))
    say("done", ok=True)
