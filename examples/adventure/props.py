"""Things to be found under the hill: a book to borrow, which is text, and a bell to ring, which is sound.

It speaks Narratoria, and is two tools: the request says which one is meant.
"""

import array
import json
import math
import os
import sys
import tempfile
import wave

BOOK = """DRAGONS: THEIR CARE AND FEEDING
Third edition, slightly singed

  1. A dragon that sleeps does not mind visitors. A dragon that
     is woken by a light in its face minds a great deal.
  2. Dragons collect. Do not say "hoard". Say "collection".
  3. Asked politely, a dragon will lend almost anything. Nobody
     has ever asked.

     (In another hand:)
  4. The DOOR likes riddles, and knows only one. It shouts it
     into the gorge every evening, and every evening it is
     annoyed that something shouts back. That is the answer.

Please return by Tuesday.
"""

RATE = 22050
# The partials of a church bell: how high, how loud, how soon gone.
PARTIALS = ((0.5, 0.5, 0.7), (1.0, 1.0, 1.1), (1.19, 0.6, 1.5), (1.56, 0.35, 2.1), (2.0, 0.5, 1.9), (2.66, 0.22, 3.2), (3.76, 0.12, 4.6))


def emit(event_type, **fields):
    print(json.dumps({"version": "0", "type": event_type, **fields}), flush=True)


def made(suffix):
    handle, path = tempfile.mkstemp(prefix="prop-", suffix=suffix)
    return os.fdopen(handle, "wb"), path


def borrow():
    file, path = made(".txt")
    with file:
        file.write(BOOK.encode())
    emit("state_patch", patch={"inventory": {"book": "Dragons: Their Care and Feeding"}})
    emit("asset", assetId="book", kind="text", mediaType="text/plain; charset=utf-8", path=path,
         metadata={"title": "Dragons: Their Care and Feeding"})
    emit("done", ok=True, summary="It is due back on Tuesday.")


def strike(seconds=2.6, note=174.6):
    samples = array.array("h")
    loudest = sum(loud for _, loud, _ in PARTIALS)
    for i in range(int(seconds * RATE)):
        t = i / RATE
        value = sum(loud * math.exp(-fade * t) * math.sin(2 * math.pi * note * high * t) for high, loud, fade in PARTIALS)
        samples.append(int(30000 * min(1, t * 400) * value / loudest))
    return samples


def ring():
    emit("log", level="info", message="You take the rope in both hands")
    file, path = made(".wav")
    with file, wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(RATE)
        samples = strike()
        if sys.byteorder == "big":
            samples.byteswap()
        sound.writeframes(samples.tobytes())
    emit("asset", assetId="bell", kind="audio", mediaType="audio/wav", path=path, metadata={"title": "The bell of Nether Wick"})
    emit("done", ok=True, summary="BONG.")


{"borrow_book": borrow, "ring_bell": ring}[json.load(sys.stdin)["tool"]]()
