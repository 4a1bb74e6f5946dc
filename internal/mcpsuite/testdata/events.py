"""The suite's tools that tell of something while they run, or ask for something: Narratoria programs, one for each name."""

import base64
import json
import os
import struct
import sys
import time

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAVE = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8) + struct.pack("<4sI", b"data", 2) + b"\x80\x80"
SILENCE = struct.pack("<4sI4s", b"RIFF", 4 + len(WAVE), b"WAVE") + WAVE


def send(kind, **more):
    print(json.dumps(dict({"version": "0", "type": kind}, **more)), flush=True)


def done(summary="", ok=True):
    send("done", ok=ok, summary=summary)
    sys.exit(0)


def asset(name, kind, content):
    from tempfile import mkdtemp  # only now: it takes longer to import than the rest of a call

    path = os.path.join(mkdtemp(), name)
    with open(path, "wb") as f:
        f.write(content)
    send("asset", assetId=name, mediaType=kind, path=path)


def log(message, wait=0.05):
    send("log", level="info", message=message)
    time.sleep(wait)


def ask(**question):
    """Asks, which ends the program: it is started again with the answers."""
    send("ui_event", event="ask", payload=question)
    done()


def form(key, message, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"key": key, "kind": "form", "message": message, "schema": schema}


def model(key, prompt, tokens=100):
    said = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"key": key, "kind": "model", "params": {"messages": [said], "maxTokens": tokens}}


ROOTS = {"key": "client_roots", "kind": "roots"}
TEXT = {"type": "string"}

DEFAULTS = {
    "name": {"type": "string", "description": "User name", "default": "John Doe"},
    "age": {"type": "integer", "description": "User age", "default": 30},
    "score": {"type": "number", "description": "User score", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "description": "Verified", "default": True},
}


def titled(*words):
    return [{"const": f"value{n}", "title": title} for n, title in enumerate(words, 1)]


ENUMS = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": titled("First Option", "Second Option", "Third Option")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": titled("First Choice", "Second Choice", "Third Choice")}},
}


def test_image_content(args, answers):
    asset("pixel.png", "image/png", PIXEL)
    done()


def test_audio_content(args, answers):
    asset("silence.wav", "audio/wav", SILENCE)
    done()


def test_embedded_resource(args, answers):
    asset("resource.txt", "text/plain", b"This is an embedded resource content.")
    done()


def test_multiple_content_types(args, answers):
    asset("pixel.png", "image/png", PIXEL)
    asset("data.json", "application/json", b'{"test":"data","value":123}')
    done("Multiple content types test:")


def test_tool_with_logging(args, answers):
    log("Tool execution started")
    log("Tool processing data")
    log("Tool execution completed", wait=0)
    done("Logged three times.")


def test_tool_with_progress(args, answers):
    for progress in (0, 50, 100):
        send("log", level="info", message=f"{progress} of 100", fields={"progress": progress, "total": 100})
        time.sleep(0.05)
    done("Came to 100.")


def test_sampling(args, answers):
    if not answers:
        ask(message="a word of the model", needs=[model("said", args["prompt"])])
    done("LLM response: " + answers["said"]["content"]["text"])


def test_missing_capability(args, answers):
    if not answers:
        ask(message="a word of the model", needs=[model("said", "Say something.")])
    done("It was said.")


def test_elicitation(args, answers):
    if not answers:
        ask(
            message=args["message"],
            schema={"type": "object", "properties": {"username": TEXT, "email": TEXT}, "required": ["username", "email"]},
        )
    done("User response: " + json.dumps(answers))


def test_elicitation_sep1034_defaults(args, answers):
    if not answers:
        ask(message="Who are you?", schema={"type": "object", "properties": DEFAULTS})
    done("Elicitation completed: " + json.dumps(answers))


def test_elicitation_sep1330_enums(args, answers):
    if not answers:
        ask(message="What do you choose?", schema={"type": "object", "properties": ENUMS})
    done("Elicitation completed: " + json.dumps(answers))


def test_streaming_elicitation(args, answers):
    if not answers:
        log("about to ask", wait=0)
        ask(message="May I?", schema={"type": "object", "properties": {"ok": {"type": "boolean"}}})
    done("Thank you.")


def test_input_required_result_elicitation(args, answers):
    if not answers:
        ask(message="your name", needs=[form("user_name", "What is your name?", name=TEXT)])
    done("Hello, " + answers["user_name"]["content"]["name"] + "!")


def test_input_required_result_sampling(args, answers):
    if not answers:
        ask(message="the capital", needs=[model("capital_question", "What is the capital of France?")])
    done(answers["capital_question"]["content"]["text"])


def test_input_required_result_list_roots(args, answers):
    if not answers:
        ask(message="your folders", needs=[ROOTS])
    done(", ".join(root["uri"] for root in answers["client_roots"]["roots"]))


def test_input_required_result_request_state(args, answers):
    if not answers:
        ask(message="a word", needs=[form("confirm", "Please confirm", ok={"type": "boolean"})])
    done("state-ok")


test_input_required_result_tampered_state = test_input_required_result_request_state


def test_input_required_result_multiple_inputs(args, answers):
    if not answers:
        ask(
            message="several things",
            needs=[form("user_name", "What is your name?", name=TEXT), model("greeting", "Generate a greeting", 50), ROOTS],
        )
    name, roots = answers["user_name"]["content"]["name"], answers["client_roots"]["roots"]
    done(answers["greeting"]["content"]["text"] + " " + name + ", " + json.dumps(roots))


def test_input_required_result_multi_round(args, answers):
    if not answers:
        ask(message="your name", needs=[form("step1", "Step 1: What is your name?", name=TEXT)])
    if "step1" in answers:
        ask(message="your colour", needs=[form("step2", "Step 2: What is your favorite color?", color=TEXT)])
    done("It is " + answers["step2"]["content"]["color"] + ".")


def test_input_required_result_capabilities(args, answers):
    if not answers:
        yes = dict(form("ok", "All right?", ok={"type": "boolean"}), optional=True)
        ask(message="what you can", needs=[yes, model("said", "Hello")])
    done("Heard: " + ", ".join(answers))


def test_input_required_result_prompt(args, answers):
    if not answers:
        ask(message="the context", needs=[form("user_context", "What context should the prompt use?", context=TEXT)])
    done("Use this: " + answers["user_context"]["content"]["context"])


def test_prompt_with_embedded_resource(args, answers):
    asset("resource.txt", "text/plain", b"Embedded resource content of " + args["resourceUri"].encode())
    done("Please process the embedded resource above.")


def test_prompt_with_image(args, answers):
    asset("pixel.png", "image/png", PIXEL)
    done("Please look at the image above.")


def slow_compute(args, answers):
    time.sleep(args.get("seconds", 0))
    done("computed " + args.get("label", ""))


def failing_job(args, answers):
    time.sleep(1)
    done("It did not work.", ok=False)


def protocol_error_job(args, answers):
    os.abort()


def confirm_delete(args, answers):
    if not answers:
        ask(message="Delete " + args["filename"] + "?", schema={
            "type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"],
        })
    done("deleted" if answers["confirm"] else "kept")


def multi_input(args, answers):
    if not answers:
        ask(message="two things", needs=[form("first", "First name?", name=TEXT), form("second", "Second name?", name=TEXT)])
    done(" and ".join(a["content"]["name"] for a in answers.values()))


def test_tool_with_task(args, answers):
    if not answers:
        ask(message="your name", needs=[form("user_name", "What is your name?", name=TEXT)])
    time.sleep(0.5)
    done("Hello, " + answers["user_name"]["content"]["name"] + "!")


def large_file(args, answers):
    asset("large.bin", "application/octet-stream", bytes(3 << 19))
    done("It is large.")


def remember(args, answers):
    send("state_patch", patch={"word": args["word"]})
    done("It is remembered.")


def change(what):
    """Leaves a note for whoever keeps the config."""
    with open(os.path.join(os.environ["NOTES"], what), "a") as f:
        f.write("again\n")
    done("It will change.")


def test_trigger_tool_change(args, answers):
    change("tools")


def test_trigger_prompt_change(args, answers):
    change("prompts")


request = json.load(sys.stdin)
globals()[request["tool"]](request["input"], request.get("answers"))
