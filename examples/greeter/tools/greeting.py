"""A tool is a function: it takes the payload, and what it returns is the result."""


def greet(payload):
    name = payload["name"].strip()
    if not name:
        raise ValueError("the name is empty")
    print("greeting", name)  # prints go to the log, never into the result
    times = int(payload.get("times", 1))
    return {"message": " ".join([f"Hello {name}!"] * times)}
