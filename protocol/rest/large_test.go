package rest_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestALargeOutputArrivesAsItIs(t *testing.T) {
	tooltest.NoLeaks(t)
	text := strings.Repeat("a line\n", 2<<20)
	whole := kit.Must(json.Marshal(text))(t)
	for name, r := range map[string]*tool.Result{
		"a text":               {OK: true, Output: whole, Summary: "read"},
		"of a tool that fails": {Output: whole, Failure: tool.Errorf(tool.CodeInternal, "no")},
	} {
		h := open(t, setup{handler: tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return r, nil
		})})
		a := h.do(h.request("POST", "/v1/tools/echo/call", `{}`))
		var said struct {
			OK      bool        `json:"ok"`
			Output  string      `json:"output"`
			Summary string      `json:"summary"`
			Error   *tool.Error `json:"error"`
			Call    string      `json:"call"`
		}
		err := json.Unmarshal(a.body, &said)
		if err != nil || a.status != 200 || said.Output != text || said.OK != r.OK ||
			said.Summary != r.Summary || (said.Error == nil) != r.OK || said.Call == "" {
			t.Errorf("%s: %d, %v: %.100s", name, a.status, err, a.body)
		}
		if n := a.header.Get("Content-Length"); n != strconv.Itoa(len(a.body)) {
			t.Errorf("%s: the header says %s bytes, and there are %d", name, n, len(a.body))
		}
	}
}

func TestALargeOutputThatIsNotJSONIsRefused(t *testing.T) {
	tooltest.NoLeaks(t)
	bad := json.RawMessage(`"` + strings.Repeat("x", 1<<20))
	h := open(t, setup{handler: tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: bad}, nil
	})})
	h.do(h.request("POST", "/v1/tools/echo/call", `{}`)).refused(t, 502, tool.CodeProtocol)
}
