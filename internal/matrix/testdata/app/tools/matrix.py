"""The tools of the matrix as Python functions. A state patch and an asset have no place in this protocol."""

import time


class NoTorch(Exception):
    pass


def echo(payload):
    return payload


def fail(payload):
    raise NoTorch(payload["message"])


def hang(payload):
    time.sleep(600)


def wait(payload):
    time.sleep(600)


def report(payload):
    print("half way")
    return {"done": True}


def large(payload):
    return {"text": "x" * (1 << 20)}


def danger(payload):
    raise AssertionError("nobody has a lease for this")
