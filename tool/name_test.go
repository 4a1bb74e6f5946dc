package tool_test

import (
	"testing"

	"toolpost/tool"
)

func TestCallWithoutATraceStartsOne(t *testing.T) {
	var fresh tool.Call
	fresh.Name()
	if fresh.ID == "" || fresh.Trace != fresh.ID {
		t.Errorf("%q, %q", fresh.ID, fresh.Trace)
	}
	chosen := tool.Call{ID: "mine"}
	chosen.Name()
	if chosen.ID != "mine" || len(chosen.Trace) != 36 {
		t.Errorf("a trace is a UUID, whatever the call is named: %q, %q", chosen.ID, chosen.Trace)
	}
	part := tool.Call{Trace: fresh.ID}
	part.Name()
	if part.Trace != fresh.ID || part.ID == "" || part.ID == fresh.ID {
		t.Errorf("%q, %q", part.ID, part.Trace)
	}
}
