package tool_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// schema has what a careless encoder changes: the order of names, digits, and HTML characters.
const schema = `{"z":1.50,"a":12345678901234567890,"pattern":"^<b>&</b>$"}`

func fullSpec() tool.Spec {
	return tool.Spec{
		Name: "greet", Title: "Greet", Description: "Says <hello> & more.", Source: "app", Protocol: "namel3ss",
		Aliases: []string{"hello"}, Input: json.RawMessage(schema), Output: json.RawMessage(`{}`),
		Effects: tool.Effects{Reads: true, Idempotent: true}, Tier: 2, Timeout: 1500 * time.Microsecond,
		Guarantees: tool.Guarantees{NoNetwork: true, SecretsAllowed: []string{}},
	}
}

func fullResult() tool.Result {
	return tool.Result{
		OK: false, Output: json.RawMessage(schema), Summary: "it did not work",
		Failure: &tool.Error{Code: tool.CodeToolError, Reason: "ValueError", Message: "no", Details: json.RawMessage(`[1]`)},
		Ask:     &tool.Ask{ID: "a1", Message: "really?", Schema: json.RawMessage(`{"type":"boolean"}`)},
		Trace: tool.Trace{
			ID: "t", Call: "c", Tool: "greet", Source: "app", Protocol: "namel3ss",
			Start: time.Date(2026, 11, 15, 1, 2, 3, 4, time.UTC), Duration: 1234567 * time.Nanosecond,
			Details: map[string]any{"mode": "warm"},
		},
	}
}

// roundTrip writes v with the encoder of the doors and reads it back with the decoder of the clients.
func roundTrip[T any](t testing.TB, v T) (text string, back T) {
	t.Helper()
	b := kit.Must(strictjson.Marshal(v))(t)
	if err := strictjson.Unmarshal(b, &back); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return string(b), back
}

func TestSpecSurvivesJSON(t *testing.T) {
	for name, spec := range map[string]tool.Spec{"full": fullSpec(), "empty": {}, "named": {Name: "x", Source: "s", Protocol: "p"}} {
		t.Run(name, func(t *testing.T) {
			text, back := roundTrip(t, spec)
			kit.Equal(t, cmp.Diff(spec, back), "", text)
		})
	}
}

func TestResultSurvivesJSON(t *testing.T) {
	for name, result := range map[string]tool.Result{"full": fullResult(), "empty": {}, "ok": {OK: true, Output: json.RawMessage(schema)}} {
		t.Run(name, func(t *testing.T) {
			text, back := roundTrip(t, result)
			kit.Equal(t, cmp.Diff(result, back), "", text)
		})
	}
}

func TestAbsentThingsAreAbsentInJSON(t *testing.T) {
	for want, v := range map[string]any{
		`{"name":"x","source":"s","protocol":"p","tier":0}`: tool.Spec{Name: "x", Source: "s", Protocol: "p"},
		`{"ok":true}`:       tool.Result{OK: true},
		`{"duration_ms":0}`: tool.Trace{},
		`{"ok":false,"error":{"code":"tool_error","message":"no"}}`: *tool.Failed("", "no"),
	} {
		kit.Equal(t, string(kit.Must(strictjson.Marshal(v))(t)), want)
	}
}

func TestDurationsAreMilliseconds(t *testing.T) {
	for want, d := range map[string]time.Duration{
		`{"duration_ms":1500}`:     1500 * time.Millisecond,
		`{"duration_ms":0.25}`:     250 * time.Microsecond,
		`{"duration_ms":1.100001}`: 1100001 * time.Nanosecond,
	} {
		text, back := roundTrip(t, tool.Trace{Duration: d})
		if text != want || back.Duration != d {
			t.Errorf("%v became %s, which became %v; want %s", d, text, back.Duration, want)
		}
	}
}

func TestDurationsSurviveJSONToTheNanosecond(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(7*24*time.Hour)).Draw(rt, "d"))
		if _, back := roundTrip(t, tool.Trace{Duration: d}); back.Duration != d {
			rt.Fatalf("%d came back as %d", d, back.Duration)
		}
		if _, back := roundTrip(t, tool.Spec{Timeout: d}); back.Timeout != d {
			rt.Fatalf("%d came back as %d", d, back.Timeout)
		}
	})
}

func TestDurationsThatDoNotFitAreCut(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`{"timeout_ms":1e300}`:  1<<63 - 1,
		`{"timeout_ms":-1e300}`: -1 << 63,
		`{"timeout_ms":1e13}`:   1<<63 - 1,
	} {
		var s tool.Spec
		if err := strictjson.Unmarshal([]byte(text), &s); err != nil || s.Timeout != want {
			t.Errorf("%s became %d, %v; want %d", text, s.Timeout, err, want)
		}
	}
}

func TestBadSpecsAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"name is a number":    `{"name":1}`,
		"timeout is a string": `{"timeout_ms":"10"}`,
		"tier is a fraction":  `{"tier":1.5}`,
		"not an object":       `[]`,
		"half":                `{"name":"x"`,
		"twice":               `{"name":"x","name":"y"}`,
	} {
		t.Run(name, func(t *testing.T) {
			var s tool.Spec
			kit.Fails(t, strictjson.Unmarshal([]byte(text), &s), "", "%s became %+v", text, s)
		})
	}
}

func TestNewEventWithBadDataIsAnErrorEvent(t *testing.T) {
	e := tool.NewEvent(tool.KindLog, tool.Log{Level: "info", Message: "x", Fields: json.RawMessage(`{"half":`)})
	var data tool.ErrorEvent
	if err := strictjson.Unmarshal(e.Data, &data); err != nil || e.Kind != tool.KindError || data.Code != "protocol" {
		t.Errorf("got %s %s, %v", e.Kind, e.Data, err)
	}
}

func TestReadOnlyToolsOnlyRead(t *testing.T) {
	for name, e := range map[string]tool.Effects{
		"nothing declared": {}, "writes": {Reads: true, Writes: true}, "network": {Reads: true, Network: true},
		"exec": {Reads: true, Exec: true}, "destructive": {Reads: true, Destructive: true}, "only idempotent": {Idempotent: true},
		"pure and writes": {Pure: true, Writes: true}, "pure and network": {Pure: true, Network: true},
	} {
		if e.ReadOnly() {
			t.Errorf("%s counts as read-only", name)
		}
	}
	if !(tool.Effects{Reads: true, Idempotent: true}).ReadOnly() || !(tool.Effects{Pure: true}).ReadOnly() {
		t.Error("a tool that only reads does not count as read-only")
	}
}

func TestOnlyWhatChangesNothingElseMayRunAgain(t *testing.T) {
	for name, c := range map[string]struct {
		effects tool.Effects
		again   bool
	}{
		"nothing declared": {tool.Effects{}, false}, "reads": {tool.Effects{Reads: true}, true}, "writes": {tool.Effects{Reads: true, Writes: true}, false},
		"reads over the network": {tool.Effects{Reads: true, Network: true}, true}, "network alone": {tool.Effects{Network: true}, false},
		"idempotent": {tool.Effects{Writes: true, Idempotent: true}, true}, "exec": {tool.Effects{Reads: true, Exec: true}, false},
		"destructive": {tool.Effects{Destructive: true}, false}, "pure": {tool.Effects{Pure: true}, true},
	} {
		kit.Equal(t, c.effects.Repeatable(), c.again, name)
	}
}

// A decoded spec can be encoded and decoded again as the same one.
func FuzzSpecJSON(f *testing.F) {
	b := kit.Must(strictjson.Marshal(fullSpec()))(f)
	for _, seed := range []string{string(b), `{}`, `{"timeout_ms":1e300}`, `{"timeout_ms":-0.5}`, `{"input":null}`, `{"NAME":"x","Timeout_MS":1}`, `{"guarantees":{"secrets_allowed":null}}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s tool.Spec
		if strictjson.Unmarshal(b, &s) != nil {
			return
		}
		_, once := roundTrip(t, s)
		if _, twice := roundTrip(t, once); !cmp.Equal(once, twice) {
			t.Errorf("%s", cmp.Diff(once, twice))
		}
	})
}

func FuzzResultJSON(f *testing.F) {
	b := kit.Must(strictjson.Marshal(fullResult()))(f)
	for _, seed := range []string{string(b), `{}`, `{"ok":true,"trace":{"duration_ms":-1e300}}`, `{"trace":{"start":"x"}}`, `{"error":null,"ask":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r tool.Result
		if strictjson.Unmarshal(b, &r) != nil {
			return
		}
		_, once := roundTrip(t, r)
		if _, twice := roundTrip(t, once); !cmp.Equal(once, twice) {
			t.Errorf("%s", cmp.Diff(once, twice))
		}
	})
}
