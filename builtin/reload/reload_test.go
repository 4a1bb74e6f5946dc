package reload_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"toolpost/builtin/reload"
	"toolpost/internal/kit"
	"toolpost/tool"
)

var operator = tool.Principal{ID: "owner", Door: "http", Operates: true}

// call calls the tool with a reload function that returns r and failed, and returns how often it was called.
func call(t *testing.T, who tool.Principal, args string, r reload.Report, failed error) (*tool.Result, int, error) {
	t.Helper()
	reloads := 0
	set := reload.New(func(context.Context) (reload.Report, error) { reloads++; return r, failed })
	c := tool.Call{Tool: "reloadConfig", Args: json.RawMessage(args), Caller: who}
	result, err := set.Invoke(t.Context(), &c, tool.Discard)
	return result, reloads, err
}

func TestAReloadSaysWhatChanged(t *testing.T) {
	report := reload.Report{
		Config: "toolpost.yaml", Changes: []tool.Change{{Source: "files", Added: []string{"writeFile"}}},
		Failed:  []reload.Failed{{Source: "gone", Error: "no such file", Stays: true}, {Source: "far", Error: "it is down"}},
		Restart: []string{"doors"},
	}
	r, n, err := call(t, operator, `{}`, report, nil)
	if err != nil || n != 1 || !r.OK || r.Summary != "reloaded; the tools of 1 sources changed, 2 sources failed" {
		t.Fatalf("%d reloads: %+v, %v", n, r, err)
	}
	want := `{"config":"toolpost.yaml","changes":[{"source":"files","added":["writeFile"]}],"failed":[{"source":"gone",` +
		`"error":"no such file","stays":true},{"source":"far","error":"it is down"}],"restart":["doors"]}`
	kit.Equal(t, string(r.Output), want)
}

// A config that is refused changes nothing; the caller reads so with the reason, under the code of the reason.
func TestARefusedConfigIsToldWithItsReason(t *testing.T) {
	for _, failed := range []error{
		tool.Errorf(tool.CodeInvalidInput, "line 3: unknown field").Because("config"), errors.New("line 3: unknown field"),
	} {
		r, _, err := call(t, operator, `{}`, reload.Report{}, failed)
		e := tool.AsError(err)
		if r != nil || e == nil || e.Code != tool.CodeOf(failed) || e.Reason != tool.AsError(failed).Reason ||
			e.Message != "the config was not reloaded; the one before it stays: line 3: unknown field" {
			t.Errorf("%+v, %+v", r, e)
		}
		kit.Equal(t, tool.AsError(failed).Message, "line 3: unknown field", "the error itself was changed: %v", failed)
	}
}

func TestOnlyOperatorsReload(t *testing.T) {
	for name, c := range map[string]struct {
		who  tool.Principal
		args string
		want tool.Code
	}{
		"no operator":   {tool.Principal{ID: "ada", Door: "http"}, `{}`, tool.CodeAccessDenied},
		"unknown field": {operator, `{"config":"/etc/passwd"}`, tool.CodeInvalidInput},
	} {
		if r, n, err := call(t, c.who, c.args, reload.Report{}, nil); n != 0 || r != nil || tool.CodeOf(err) != c.want {
			t.Errorf("%s: %d reloads, %+v, %v", name, n, r, err)
		}
	}
}
