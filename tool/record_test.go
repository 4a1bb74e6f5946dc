package tool_test

import (
	"context"
	"errors"
	"testing"

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

func TestNilRecordIsUsable(t *testing.T) {
	var none *tool.Record
	none.Judged("allow", "default")
	none.Approved(tool.Approval{ID: "a"})
	r := &tool.Record{}
	r.Judged("deny", "x")
	r.Approved(tool.Approval{ID: "a"})
	if r.Decision != "deny" || r.Rule != "x" || r.Approval.ID != "a" {
		t.Errorf("%+v", r)
	}
}
