"""The standard tools of the conformance suite as one Narratoria tool, chosen by the request's tool."""

import json
import os
import subprocess
import sys
import time


def send(kind, **more):
    print(json.dumps({"version": "0", "type": kind, **more}), flush=True)


def log(message):
    send("log", level="info", message=message)


def raw_member(text, name):
    """The member of an object as it was written: digits and all."""
    decoder, at = json.JSONDecoder(), 1
    while True:
        while text[at] in " ,\t":
            at += 1
        key, at = decoder.raw_decode(text, at)
        while text[at] in " :\t":
            at += 1
        _, end = decoder.raw_decode(text, at)
        if key == name:
            return text[at:end]
        at = end


def hang():
    log("hanging")
    while True:
        time.sleep(60)


def main():
    text = sys.stdin.read().strip()
    request = json.loads(text)
    name, args = request["tool"], request["input"]
    if name == "echo":
        print('{"version":"0","type":"done","ok":true,"output":%s}' % raw_member(text, "input"))
    elif name == "fail":
        send("error", errorCode="told_to", errorMessage=args["message"])
        send("done", ok=False, summary=args["message"])
    elif name == "hang":
        hang()
    elif name == "events":
        for n in range(1, args["count"] + 1):
            log("event %d" % n)
        send("done", ok=True, output={})
    elif name == "flood":
        while True:
            log("x" * 1024)
    elif name == "spawn":
        for _ in range(args["children"]):
            subprocess.Popen(["sleep", args["sleep"]], start_new_session=args.get("setsid", False))
        if args.get("hang"):
            hang()
        send("done", ok=True, output={"started": args["children"]})
    elif name == "crash":
        os.abort()


main()
