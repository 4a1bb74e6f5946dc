"""Sets the scene: what is true from now on, and what can be done next.

It speaks Narratoria. Where something was decided on the way here, by dice or by a door, `case` says how, and `cases`
has what follows from each.
"""

import json
import sys

HEALTHY = 3
# The choices are kept too: whoever says something that leads nowhere is offered them again.
KEPT = ("place", "roll", "ended", "inventory", "flags", "choices")


def emit(event_type, **fields):
    print(json.dumps({"version": "0", "type": event_type, **fields}), flush=True)


def main():
    request = json.load(sys.stdin)["input"]
    scene = dict(request)
    if "case" in request:
        scene.update(request["cases"][request["case"]])
    if scene.get("fresh"):  # a story that begins again keeps nothing of the one before
        emit("state_patch", patch=dict.fromkeys(KEPT))
    patch = {name: scene[name] for name in KEPT if name in scene}
    health = scene.get("health") or HEALTHY
    patch["health"] = max(1, min(HEALTHY, health - scene.get("hurt", 0) + scene.get("heal", 0)))
    if scene.get("hurt"):
        emit("log", level="warn", message="That hurt.")
    emit("state_patch", patch=patch)
    if scene.get("choices"):
        emit("ui_event", event="narrative_choice", payload={"choices": scene["choices"]})
    emit("done", ok=True, summary=scene.get("summary", "The scene is set."), output={"place": scene.get("place", "")})


main()
