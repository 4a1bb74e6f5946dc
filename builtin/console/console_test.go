package console_test

import (
	"strings"
	"testing"
	"time"

	"toolpost/builtin/console"
	"toolpost/engine/audit"
	"toolpost/tool"
)

type links struct{}

func (links) Link(tool.Principal) (string, time.Time, error) { return "c0de", time.Now(), nil }

func TestConsoleLinkIsNotStored(t *testing.T) {
	made := console.New(links{}, func() string { return "" })
	r, err := made.Invoke(t.Context(), &tool.Call{Tool: "console.link"}, tool.Discard)
	if err != nil || !strings.Contains(string(r.Output), "c0de") {
		t.Fatal(r, err)
	}
	// This is how a call's output is kept for views of calls.
	if kept := string(audit.Redacted(r.Output, nil)); strings.Contains(kept, "c0de") || !strings.Contains(kept, "expires") {
		t.Errorf("it is kept: %s", kept)
	}
	for name, c := range map[string]tool.Call{"for a key": {Key: "k"}, "in a plan": {Parent: "p"}} {
		c.Tool = "console.link"
		if r, err := made.Invoke(t.Context(), &c, tool.Discard); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("it is kept %s: %v, %v", name, r, err)
		}
	}
}
