package cassette_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	tape "toolpost/engine/cassette"
	"toolpost/internal/kit"
	"toolpost/protocol/cassette"
	"toolpost/tool"
)

const recorded = `{"cassette":{"version":1,"made":"2026-11-16T00:00:00Z"}}
{"tool":{"name":"look","source":"s","protocol":"p","tier":0}}
{"call":{"source":"s","tool":"look","args":{"a":1,"when":"now"},"at":"2026-11-16T00:00:00Z","ms":1,"result":{"ok":true,"output":1}}}
{"call":{"source":"s","tool":"look","args":{"when":"now","a":1.0},"at":"2026-11-16T00:00:00Z","ms":1,"result":{"ok":true,"output":2}}}
{"call":{"source":"s","tool":"look","args":{"a":2,"token":"[redacted]"},"at":"2026-11-16T00:00:00Z","ms":1,"error":{"code":"access_denied","reason":"no","message":"not that"}}}
{"call":{"source":"s","tool":"look","args":{},"at":"2026-11-16T00:00:00Z","ms":1,"result":{"ok":false,"ask":{"id":"x","message":"Which?"}}}}
{"call":{"source":"s","tool":"look","args":{},"resumed":true,"answers":{"which":"b","password":"[redacted]"},"at":"2026-11-16T00:00:00Z","ms":1,"result":{"ok":true,"output":"b"}}}
`

func open(t *testing.T, o cassette.Options) *cassette.Runner {
	t.Helper()
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "run.jsonl"), []byte(recorded), 0o600))
	o.File, o.Source = "run.jsonl", "s"
	return kit.Must(cassette.New(dir, o))(t)
}

// look makes a call, and returns its output or its error.
func look(t *testing.T, r *cassette.Runner, c tool.Call) string {
	t.Helper()
	c.Tool = "look"
	res, err := r.Invoke(t.Context(), &c, tool.Discard)
	switch {
	case err != nil:
		e := tool.AsError(err)
		return string(e.Code) + " " + e.Reason
	case res.Ask != nil:
		return res.Ask.Message
	}
	return string(res.Output)
}

func args(text string) tool.Call { return tool.Call{Args: json.RawMessage(text)} }

func TestRecordedCallsArePlayedOnceAndInOrder(t *testing.T) {
	r := open(t, cassette.Options{})
	again := args(`{}`)
	again.Resume, again.Answers = "sealed", json.RawMessage(`{"which":"b","password":"another each time"}`)
	wrong := args(`{}`)
	wrong.Resume, wrong.Answers = "sealed", json.RawMessage(`{"which":"c","password":"x"}`)
	for _, c := range []struct {
		call tool.Call
		want string
	}{
		{args(`{"when":"now","a":1}`), "1"},
		{args(`{"a":1e0,"when":"now"}`), "2"},
		{args(`{"a":1,"when":"now"}`), "not_found not_recorded"},
		{args(`{"a":1,"when":"later"}`), "not_found not_recorded"},
		{args(`{"a":2,"token":"a secret that is another each time"}`), "access_denied no"},
		{args(``), "Which?"},
		{wrong, "not_found not_recorded"},
		{again, `"b"`},
	} {
		kit.Equal(t, look(t, r, c.call), c.want, c.call.Args)
	}
}

func TestPlayedLooselyTheLastOutcomeIsRepeated(t *testing.T) {
	r := open(t, cassette.Options{Loose: true, Ignore: []string{"when"}})
	for _, want := range []string{"1", "2", "2", "2"} {
		kit.Equal(t, look(t, r, args(`{"a":1,"when":"whenever"}`)), want)
	}
	kit.Equal(t, look(t, r, args(`{"a":3}`)), "not_found not_recorded")
}

func TestConcurrentCallsPlayEachRecordingOnce(t *testing.T) {
	r := open(t, cassette.Options{})
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			c := args(`{"a":1,"when":"now"}`)
			c.Tool = "look"
			if _, err := r.Invoke(t.Context(), &c, tool.Discard); err == nil {
				answered.Add(1)
			} else if tool.AsError(err).Reason != tape.NotRecorded {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	kit.Equal(t, answered.Load(), 2)
}

func TestTheErrorNamesTheNearestCall(t *testing.T) {
	c := args(`{"a":1,"when":"then"}`)
	c.Tool = "look"
	_, err := open(t, cassette.Options{}).Invoke(t.Context(), &c, tool.Discard)
	kit.Fails(t, err, `nearest that was is {"a":1,"when":"now"}`)
}

func TestASourceThatIsNotOnTheCassetteIsNamed(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "run.jsonl"), []byte(recorded), 0o600))
	for want, o := range map[string]cassette.Options{
		"names one of: s": {File: "run.jsonl", Source: "other"}, "no such file": {File: "none", Source: "s"},
	} {
		kit.Fails(t, kit.Err(cassette.New(dir, o)), want, o)
	}
}
