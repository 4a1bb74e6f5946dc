package alphahuman

import (
	"testing"

	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// An accepted result or call is written as strict JSON again.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","arguments":{"b":[1.50]},"callId":3}`, `{"name":"a","arguments":null,"sessionId":"s"}`, `[]`, `null`, `{"code":-32601,"message":"x"}`,
		`{"content":[{"type":"text","text":"a"}],"isError":true,"structuredContent":null}`, `{"content":"` + "\xff" + `"}`, `{"content":"x","summary":7}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeResult(b); err == nil && r.OK {
			if b, err := encodeResult(r, true); err != nil || strictjson.Check(b) != nil {
				t.Fatalf("%s: %v", b, err)
			}
		}
		if c, err := decodeCall(b); err == nil {
			if p := callParams(c.Name, c.Arguments, c.Session); strictjson.CheckObject(p) != nil {
				t.Fatalf("%s", p)
			}
		}
		_, _ = outcome((&jsonrpc.Message{Err: b}).Failure(), "t")
	})
}

func FuzzSkillFile(f *testing.F) {
	for _, seed := range []string{
		"---\nname: x\ndescription: >\n  a\n  b\nmetadata:\n  a: b\nallowed-tools: a b\n---\nbody", "---\n---\n", "---\n- a\n---\n", "---\na: [b, {c: d}]\n---\n",
		"---\n? a\n: b\n---\n", "---\nname: &a x\nb: *a\n---\n", "---\nname: !!str x\n---\n", "---\n\t\n---\n", "---\na: |\n  x\n---\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := parseDoc("SKILL.md", data); (d == nil) == (err == nil) {
			t.Fatalf("got %v and %v", d, err)
		}
	})
}

func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		`{"runtime":{"type":"subprocess","command":"python3","args":["skill.py"]}}`, `{"runtime":"python","entry":"x","tick_interval":1e3,"env":["A"]}`,
		`{"runtime":"node","entry":"x","tick_interval":-0}`, `{"runtime":null}`, `[]`, `{"runtime":"python","entry":"x","concurrency":1e400}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest("manifest.json", data)
		if err != nil {
			return
		}
		if m.Tick < 0 || m.Tick > 0 && m.Tick < minTick {
			t.Fatalf("ticks every %v", m.Tick)
		}
		if l, err := m.launch(t.TempDir()); err != nil || len(l.argv) == 0 {
			t.Fatalf("%v, %v", l, err)
		}
	})
}
