package machina

import (
	"encoding/json"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/wire/strictjson"
)

// Any line is accepted or refused, and an accepted request is within bounds.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"aid":"AID.MEMORY.QUERY.v1","input_json":"{\"query\": \"test\", \"k\": \"3\"}","ds_state":{"delta":true},"idempotency_key":"req-abc-123","_lease_token":"tok_..."}`,
		`{"aid":"AID.XX.YY.v1","inputs":{"key":"value"}}`, `{}`, `[]`, `{"aid":null}`, `{"aid":"\ud800"}`, `{"input_json":"\\"}`,
		`{"aid":"_lease.issue","tool_aid":"*","tier":1,"ttl_ms":1000}`, `{"ds_state":{"slots":{"1":{"type":"a"}},"removed_slots":[1,"2"]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := newRequestReader().read(line)
		if err != nil {
			return
		}
		if strictjson.CheckObject(line) != nil {
			t.Error("understood what is no object")
		}
		if len(r.args) == 0 || len(r.args) > len(line)+2 {
			t.Errorf("%d bytes of input from %d", len(r.args), len(line))
		}
	})
}

func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"ok":true,"status":"OK","output_json":"{\"result\": \"...\"}","error":"","ds_state":{"slots":{}}}`,
		`{"ok":false,"error":"tool not found: AID.XX"}`, `{"ok":false,"error":"lease_required","tier":2,"aid":"AID.XX"}`,
		`{"ok":false,"error":"lease_rejected","reason":"expired"}`, `{"status":"TOOL_ERROR"}`, `{"ok":true,"idempotent_hit":true,"ds_state":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := decodeAnswer(line)
		if err != nil {
			return
		}
		r, err := a.outcome("AID.XX")
		if (r == nil) == (err == nil) {
			t.Fatalf("%v and %v", r, err)
		}
		if r != nil && len(r.Output) > 0 && strictjson.Check(r.Output) != nil {
			t.Errorf("the output is not JSON: %s", r.Output)
		}
	})
}

func FuzzState(f *testing.F) {
	for _, seed := range []string{
		`{"slots":{"1":{"type":"a","provenance":"b","content_json":"{}","size_bytes":2}}}`, `{"delta":true,"slots":{},"removed_slots":[1]}`,
		`{"slots":{"255":{"type":"toolpost.state","content_json":"{\"slots\":{\"x\":1},\"a\":null}"}}}`, `null`, `{"slots":{"1":{"a":null}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := decodeChange(raw)
		if err != nil || c == nil {
			return
		}
		b := kit.Must(strictjson.Marshal(c))(t)
		again, err := decodeChange(b)
		kit.OK(t, err, b)
		if b2, _ := strictjson.Marshal(again); string(b2) != string(b) {
			t.Errorf("%s is written as %s", b, b2)
		}
		doc := kit.Must(slots{}.apply(c).document())(t)
		back := kit.Must(slotsOf(doc))(t)
		if doc2, err := back.document(); err != nil || !same(doc, doc2) {
			t.Errorf("%v became %v, %v", doc, doc2, err)
		}
	})
}

func FuzzSelection(f *testing.F) {
	for _, seed := range []string{
		"<PICK><SID0007><END>", `<PICK><SID0007><INP>{"a":1}</INP><END>`, "<PICK><SID0007><INP64>e30=</INP64><END>", "<ASK_SUP><END>", "<NOOP><END>",
		"", "<PICK>", `<PICK><SID0007><INP>{"a":"</INP><END>"}</INP><END>`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		s := ParseSelection(raw)
		switch s.Kind {
		case Pick:
			if len(s.SID) != 7 || !strings.HasPrefix(s.SID, "SID") {
				t.Errorf("%q: %+v", raw, s)
			}
			if s.InputPatchJSON != "" && strictjson.CheckObject([]byte(s.InputPatchJSON)) != nil {
				t.Errorf("%q: %+v", raw, s)
			}
			if in, err := s.Inputs(json.RawMessage(`{"x":1}`)); err != nil || strictjson.CheckObject(in) != nil {
				t.Errorf("%q: %s, %v", raw, in, err)
			}
		case AskSup, Noop, Invalid:
			if s.SID != "" || s.InputPatchJSON != "" {
				t.Errorf("%q: %+v", raw, s)
			}
		default:
			t.Errorf("%q: %+v", raw, s)
		}
	})
}
