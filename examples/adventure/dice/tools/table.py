"""What is decided at the table: two dice, and whether an answer is one."""

import random
import re


def roll(payload):
    """Two dice and some luck, against what is needed. A seed is for those who do not like surprises, such as tests."""
    chance = random.Random(payload.get("seed"))
    dice = [chance.randint(1, 6), chance.randint(1, 6)]
    luck, need = int(payload.get("luck") or 0), int(payload["need"])
    total = sum(dice) + luck
    words = f"{dice[0]} and {dice[1]}" + (f", and {luck} for luck" if luck else "") + f": {total}. You needed {need}."
    print("The dice say", words)
    return {"dice": dice, "total": total, "outcome": "won" if total >= need else "lost", "words": words}


def judge(payload):
    """A stone face is strict about riddles, but not about articles."""
    words = re.findall(r"[a-z]+", payload["answer"].lower())
    return {"verdict": "right" if "echo" in words or "echoes" in words else "wrong"}
