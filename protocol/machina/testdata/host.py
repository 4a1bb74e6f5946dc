"""A host, written from the contract alone: it calls the toolhost given as its arguments and checks every answer."""
import json
import os
import subprocess
import sys

COMMAND = sys.argv[1:]


def once(*args, stdin=b"", **env):
    p = subprocess.run(COMMAND + list(args), input=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60,
                       env=dict(os.environ, **env))
    return p.returncode, p.stdout


class Session:
    """--serve: one line for each line."""

    def __init__(self, **env):
        self.p = subprocess.Popen(COMMAND + ["--serve", "tooltest"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, env=dict(os.environ, **env))

    def raw(self, line):
        self.p.stdin.write(line + b"\n")
        self.p.stdin.flush()
        answer = self.p.stdout.readline()
        assert answer.endswith(b"\n"), answer
        return json.loads(answer)

    def ask(self, aid, inputs=None, **more):
        return self.raw(json.dumps(dict(aid=aid, input_json=json.dumps(inputs or {}), **more)).encode())

    def close(self, line=b""):
        self.p.stdin.write(line)
        self.p.stdin.close()
        assert self.p.wait(60) == 0
        self.p.stdout.close()


def artifact(text):
    return {"type": "note", "provenance": "host.py", "content_json": text, "size_bytes": len(text)}


def check_list():
    code, out = once("--list", "tooltest")
    doc = json.loads(out)
    assert code == 0 and doc["ok"] is True
    for t in doc["tools"]:
        assert set(t) == {"aid", "name", "deterministic", "tags", "side_effects", "replay_inputs"}, t
        assert t["aid"].startswith("AID.") and isinstance(t["deterministic"], bool)
    assert "AID.TOOLTEST.ECHO.v1" in {t["aid"] for t in doc["tools"]}


def check_run():
    request = {"input_json": json.dumps({"query": "test", "ü": "日本"}), "ds_state": {"slots": {"1": artifact("1")}}}
    code, out = once("--run", "tooltest", "AID.TOOLTEST.ECHO.v1", stdin=json.dumps(request).encode())
    doc = json.loads(out)
    assert code == 0 and set(doc) == {"ok", "status", "output_json", "error", "ds_state"}, doc
    assert doc["ok"] is True and doc["status"] == "OK" and doc["error"] == "", doc
    assert json.loads(doc["output_json"]) == {"query": "test", "ü": "日本"}, doc
    assert doc["ds_state"] == {"slots": {"1": artifact("1")}}, doc
    assert once("--run", "tooltest", "AID.XX.YY.v1", stdin=b"{}")[0] == 4
    assert once("--run", "tooltest", "AID.TOOLTEST.ECHO.v1", stdin=b"{")[0] == 5
    assert once("--run", "nope", "AID.XX.YY.v1")[0] == 3
    assert once("--jump", "tooltest")[0] == 2
    # A tool that failed is answered whole too.
    code, out = once("--run", "tooltest", "AID.TOOLTEST.FAIL.v1", stdin=json.dumps({"input_json": '{"message":"no"}'}).encode())
    assert code == 0 and json.loads(out) == \
        {"ok": False, "status": "TOOL_ERROR", "output_json": "{}", "error": "no", "ds_state": {"slots": {}}}, out
    # What its stdin is not: one JSON object, of at most 10 MB.
    for stdin in b"[]", b"5", b"", b"{} {}":
        code, out = once("--run", "tooltest", "AID.TOOLTEST.ECHO.v1", stdin=stdin)
        assert (code, json.loads(out)) == (5, {"ok": False, "error": "invalid JSON"}), (stdin, code, out)
    code, out = once("--run", "tooltest", "AID.TOOLTEST.ECHO.v1", stdin=b'{"input_json":"' + b"x" * (10 << 20) + b'"}')
    assert code == 5 and "10485760 bytes" in json.loads(out)["error"], (code, out)
    # Leases are of the serve mode: its request has a place for a token, this one has none.
    code, out = once("--run", "tooltest", "AID.TOOLTEST.SHELL.v1", stdin=b"{}", MACHINA_LEASE_ENFORCE="1")
    assert code == 0 and json.loads(out)["status"] == "OK", (code, out)


def dispatch(aid, inputs):
    """Section 5: what the dispatcher makes of its one call, which it leaves to `tool_exec`: a toolhost in single-shot mode."""
    code, out = once("--run", "tooltest", aid, stdin=json.dumps({"input_json": json.dumps(inputs)}).encode())
    if code != 0:
        return {"error": True, "aid": aid, "type": "crash", "detail": out.decode()}
    doc = json.loads(out)
    if doc["status"] != "OK":
        return {"error": True, "aid": aid, "type": "tool_error", "detail": doc["error"]}
    return doc["output_json"]


def check_dispatch():
    assert dispatch("AID.TOOLTEST.ECHO.v1", {"a": 1}) == '{"a": 1}'
    assert dispatch("AID.TOOLTEST.FAIL.v1", {"message": "no"}) == \
        {"error": True, "aid": "AID.TOOLTEST.FAIL.v1", "type": "tool_error", "detail": "no"}
    failed = dispatch("AID.TOOLTEST.CRASH.v1", {})
    assert failed["type"] == "crash" and "died without an answer" in failed["detail"], failed


def check_serve():
    s = Session()
    for i in range(50):
        doc = s.ask("AID.TOOLTEST.ECHO.v1", {"i": i})
        assert doc["ok"] is True and json.loads(doc["output_json"]) == {"i": i}, doc
    assert s.raw(b"garbage") == {"ok": False, "error": "invalid JSON"}
    for line in b"{}", b"[]", b"5", b" [1] ", b'"AID.TOOLTEST.ECHO.v1"', b"true", b'{"aid":""}':
        assert s.raw(line) == {"ok": False, "error": "missing aid"}, line
    for line in b"[", b"5 5", b"nul", b"null", b" ", b"\r", b'[{"a":1,"a":2}]':
        assert s.raw(line) == {"ok": False, "error": "invalid JSON"}, line
    request = b'{"aid":"AID.TOOLTEST.ECHO.v1","input_json":"{\\"a\\":\\"%s\\"}"}'
    room = (10 << 20) - len(request) + 2
    assert s.raw(request % (b"x" * room))["ok"] is True
    doc = s.raw(request % (b"x" * (room + 1)))
    assert set(doc) == {"ok", "error"} and doc["ok"] is False and "longer than 10485760 bytes" in doc["error"], doc
    for member, values in ("input_json", (7, None, {}, [])), ("inputs", ("{}", 7, None, [])):
        for value in values:
            assert s.raw(json.dumps({"aid": "AID.TOOLTEST.ECHO.v1", member: value}).encode()) == \
                {"ok": False, "error": "invalid " + member}, (member, value)
    assert s.ask("AID.XX") == {"ok": False, "error": "tool not found: AID.XX"}
    doc = s.ask("AID.TOOLTEST.FAIL.v1", {"message": "no"})
    assert doc["ok"] is False and doc["status"] == "TOOL_ERROR" and doc["error"] == "no" and "ds_state" in doc, doc
    assert s.ask("AID.TOOLTEST.COUNT.v1", {}, idempotency_key="k").get("idempotent_hit") is None
    doc = s.ask("AID.TOOLTEST.COUNT.v1", {}, idempotency_key="k")
    assert doc["idempotent_hit"] is True and doc["output_json"] == '{"runs":1}', doc
    assert doc["ds_state"] == {"delta": True, "slots": {}, "removed_slots": []}, doc
    assert s.ask("AID.TOOLTEST.COUNT.v1", {"other": 1}, idempotency_key="k") == {"ok": False, "error": "idempotency_conflict"}
    s.close(b"\n")  # an empty line
    Session().close()  # EOF


def check_state():
    s, known = Session(), {}

    def call(patch, change=None):
        doc = s.ask("AID.TOOLTEST.NOTE.v1", patch, ds_state=change)
        assert doc["ok"] is True, doc
        told = doc["ds_state"]
        assert told["delta"] is True, told
        known.update(told["slots"])
        for n in told["removed_slots"]:
            known.pop(str(n))
        return json.loads(doc["output_json"])["slots"]

    known.update({"1": artifact("1"), "2": artifact("2")})
    assert call({}, {"slots": known}) == known
    known["3"] = artifact("3")
    del known["1"]
    assert call({"slots": {"4": artifact("4"), "3": None}}, {"delta": True, "slots": {"3": known["3"]}, "removed_slots": [1]}) == \
        {"2": artifact("2"), "3": artifact("3")}
    assert known == {"2": artifact("2"), "4": artifact("4")}, known
    assert call({}) == known
    s.close()


def check_leases():
    s = Session(MACHINA_LEASE_ENFORCE="1")
    aid = "AID.TOOLTEST.SHELL.v1"
    assert s.ask("AID.TOOLTEST.ECHO.v1")["ok"] is True
    assert s.ask(aid) == {"ok": False, "error": "lease_required", "tier": 2, "aid": aid}
    issued = s.ask("_lease.issue", {"tool_aid": aid, "tier": 2, "ttl_ms": 10000})
    assert set(issued) == {"ok", "token_id", "tool_aid", "tier"} and issued["ok"] is True, issued
    other = Session(MACHINA_LEASE_ENFORCE="1")  # a lease works in every process, once
    assert other.ask(aid, _lease_token=issued["token_id"])["ok"] is True
    assert s.ask(aid, _lease_token=issued["token_id"]) == {"ok": False, "error": "lease_rejected", "reason": "already_consumed"}
    counts = s.ask("_lease.gc")
    assert counts == {"ok": True, "active": 0, "issued": 1, "consumed": 0, "rejected": 1}, counts
    other.close()
    s.close()
    s = Session()
    assert s.ask(aid)["ok"] is True  # nothing is enforced unless it is asked for
    s.close()


for check in (check_list, check_run, check_dispatch, check_serve, check_state, check_leases):
    check()
print("all of it holds")
