package alphahuman

import (
	"bytes"
	"encoding/json"
	"testing"

	"toolpost/wire/strictjson"
)

// What the decoder takes for a message is one object to the standard library too, and what we make of it is
// one line of strict JSON.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`, `{"id":null,"result":null,"error":null}`,
		`{"id":"7","error":"x"}`, `[]`, `{"id":1,"id":2}`, `{"jsonrpc":"2.0","id":12,"result":{"content":"` + "\xff" + `"}}`, `{"method":5}`,
		`{"id":1,"method":"tools/call","params":{"name":"a","arguments":{"b":[1.50]},"callId":3}}`, "{\"a\":\n1}",
		`{"id":1,"result":{"content":[{"type":"text","text":"a"}],"isError":true,"structuredContent":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		_, _ = brokenReply(line)
		var scan strictjson.Scanner
		m, err := decodeMessage(&scan, line)
		if err != nil {
			return
		}
		var std map[string]json.RawMessage
		if err := json.Unmarshal(line, &std); err != nil {
			t.Fatalf("accepted, but: %v", err)
		}
		_, _ = m.number()
		lines := [][]byte{encodeRequest(1, methodToolsCall, m.params), encodeReply(m.validID(), okResult)}
		if m.err != nil {
			lines = append(lines, encodeError(m.validID(), m.failure()))
			_, _ = m.failure().outcome("t")
		}
		if m.result != nil {
			if r, err := decodeResult(m.result); err == nil && r.OK {
				if b, err := encodeResult(r, true); err != nil || strictjson.Check(b) != nil {
					t.Fatalf("%s: %v", b, err)
				}
			}
		}
		if c, err := decodeCall(m.params); err == nil {
			if p := callParams(c.Name, c.Arguments, c.Session); strictjson.CheckObject(p) != nil {
				t.Fatalf("%s", p)
			}
		}
		_ = m.checkRequest()
		for _, l := range lines {
			if bytes.Count(l, []byte("\n")) != 1 || strictjson.CheckObject(l) != nil {
				t.Fatalf("not one line of JSON: %q: %v", l, strictjson.CheckObject(l))
			}
		}
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
