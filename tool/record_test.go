package tool_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/tool"
)

func TestEveryCallEndsInOneOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		result *tool.Result
		err    error
		want   tool.Outcome
		code   tool.Code
	}{
		"a success":        {&tool.Result{OK: true}, nil, tool.OutcomeOK, ""},
		"a tool's failure": {tool.Failed("ValueError", "no"), nil, tool.OutcomeFailed, tool.CodeToolError},
		"a bare failure":   {&tool.Result{}, nil, tool.OutcomeFailed, tool.CodeToolError},
		"a question":       {&tool.Result{Ask: &tool.Ask{}}, nil, tool.OutcomeAsked, ""},
		"a denial":         {nil, tool.Errorf(tool.CodeAccessDenied, "no"), tool.OutcomeRefused, tool.CodeAccessDenied},
		"no lease":         {nil, tool.Errorf(tool.CodeLeaseRequired, "no"), tool.OutcomeRefused, tool.CodeLeaseRequired},
		"a quota":          {nil, tool.Errorf(tool.CodeQuotaExceeded, "no"), tool.OutcomeRefused, tool.CodeQuotaExceeded},
		"a timeout":        {nil, context.DeadlineExceeded, tool.OutcomeError, tool.CodeTimeout},
		"any error":        {nil, errors.New("x"), tool.OutcomeError, tool.CodeInternal},
		"nothing":          {nil, nil, tool.OutcomeError, tool.CodeInternal},
	} {
		if got, code, _ := tool.OutcomeOf(c.result, c.err); got != c.want || code != c.code {
			t.Errorf("%s: %s, %s", name, got, code)
		}
	}
}

func TestRecordsSurviveJSON(t *testing.T) {
	r := tool.Record{
		Seq: 3, Time: time.Date(2026, 11, 15, 1, 2, 3, 0, time.UTC), Call: "c", Trace: "t", Tool: "readFile", Asked: "file.read", Source: "files",
		Protocol: "builtin", Door: "http", Caller: "ada", Session: "s", Run: "r", Shape: []byte(`{"path":"string"}`), Digest: "ab", Args: []byte(`{}`),
		Touches: tool.Touches{Reads: []string{"/a"}}, Omitted: 1, Decision: "deny", Rule: "x", Lease: "l", Key: "k", Replay: true, DryRun: true,
		Walls: "no_network", Outcome: tool.OutcomeRefused, Code: tool.CodeAccessDenied, Reason: "policy", Duration: 1500 * time.Microsecond, In: 1, Out: 2, Lost: 3,
	}
	text, back := roundTrip(t, r)
	if d := cmp.Diff(r, back); d != "" {
		t.Errorf("%s\n%s", text, d)
	}
	if _, back := roundTrip(t, tool.Record{}); back.Duration != 0 {
		t.Errorf("%+v", back)
	}
}

func TestNobodyTakesNotesWithoutARecord(t *testing.T) {
	var none *tool.Record
	none.Judged(true, "default")
	r := &tool.Record{}
	r.Judged(false, "x")
	if r.Decision != "deny" || r.Rule != "x" {
		t.Errorf("%+v", r)
	}
}
