package health_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"toolpost/builtin/health"
	"toolpost/tool"
)

func TestOnlyOperatorsLearnHowTheProgramIs(t *testing.T) {
	var fails error
	tools := health.New(health.Options{
		Sources: func(_ context.Context, p tool.Principal) []health.Source {
			return []health.Source{{Name: "of " + p.ID, Protocol: "rest", State: health.StateFailed, Since: time.Unix(0, 0).UTC(), Error: "no answer"}}
		},
		Metrics: func(w io.Writer) error {
			_, _ = io.WriteString(w, "calls 1\n")
			return fails
		},
	})
	for name, want := range map[string]string{
		"listSources": `{"sources":[{"name":"of owner","protocol":"rest","state":"failed","since":"1970-01-01T00:00:00Z","tools":0,"error":"no answer"}]}`,
		"readMetrics": `{"text":"calls 1\n"}`,
	} {
		r, err := tools.Invoke(t.Context(), &tool.Call{Tool: name, Caller: tool.Principal{ID: "owner", Operates: true}}, tool.Discard)
		if err != nil || string(r.Output) != want {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		// Neither a name nor a door makes an operator.
		_, err = tools.Invoke(t.Context(), &tool.Call{Tool: name, Caller: tool.Principal{ID: "owner", Door: "cli"}}, tool.Discard)
		if tool.CodeOf(err) != tool.CodeAccessDenied || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fails = errors.New("no metrics")
	if _, err := tools.Invoke(t.Context(), &tool.Call{Tool: "readMetrics", Caller: tool.Principal{Operates: true}}, tool.Discard); err == nil {
		t.Error("half a text was given for the whole")
	}
}
