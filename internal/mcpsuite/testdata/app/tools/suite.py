"""The suite's tools that are plain functions."""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def simple_text(payload):
    return "This is a simple text response for testing."


def error_handling(payload):
    raise RuntimeError("This tool intentionally returns an error for testing")


def simple_prompt(payload):
    return "This is a simple prompt for testing."


def static_text(payload):
    return "This is the content of the static text resource."


def static_binary(payload):
    return {"mediaType": "image/png", "content": PIXEL}


def watched(payload):
    return "Nothing has happened yet."


def template(payload):
    number = payload["id"]
    return {"id": number, "templateTest": True, "data": "Data for ID: " + number}


def greet(payload):
    return "Hello, " + payload["name"] + "!"
