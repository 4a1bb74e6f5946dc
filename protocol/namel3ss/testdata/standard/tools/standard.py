"""The standard tools of the conformance suite."""

import os
import subprocess
import time


def echo(payload):
    return payload


def fail(payload):
    raise RuntimeError(payload["message"])


def hang(payload):
    print("hanging")
    while True:
        time.sleep(60)


def events(payload):
    for n in range(1, payload["count"] + 1):
        print(f"event {n}")
    return {}


def flood(payload):
    while True:
        print("x" * 1024)


def spawn(payload):
    for _ in range(payload["children"]):
        subprocess.Popen(["sleep", payload["sleep"]], start_new_session=payload.get("setsid", False))
    if payload.get("hang"):
        hang(payload)
    return {"started": payload["children"]}


def crash(payload):
    os.abort()
