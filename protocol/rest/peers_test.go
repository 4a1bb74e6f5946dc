package rest_test

import (
	"context"
	"encoding/json"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// numbered numbers events as the engine does.
var numbered = tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	var mu sync.Mutex
	var seq uint64
	return strict(ctx, c, tool.SinkFunc(func(e tool.Event) error {
		mu.Lock()
		defer mu.Unlock()
		seq++
		e.Seq = seq
		return out.Emit(e)
	}))
})

func TestACallerWrittenFromTheDescriptionIsServed(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{handler: numbered})
	out, err := exec.CommandContext(kit.Context(t), "python3", "testdata/caller.py", "127.0.0.1", h.port(), token).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "all held\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAServerWrittenFromTheDescriptionIsCalled(t *testing.T) {
	tooltest.NoLeaks(t)
	port := kit.Start(t, exec.Command("python3", "testdata/server.py", token)).Line()
	c := kit.Must(rest.Dial("http://127.0.0.1:"+port, token, ""))(t)
	defer c.Close(kit.Context(t))
	specs, err := c.Tools(kit.Context(t))
	if err != nil || len(specs) != 1 || specs[0].Name != "echo" {
		t.Errorf("%v %v", specs, err)
	}
	var got tooltest.Collect
	r, err := c.Invoke(kit.Context(t), &tool.Call{Tool: "echo", Args: json.RawMessage(`{"a": "ä"}`)}, &got)
	if err != nil || !r.OK || string(r.Output) != `{"a": "\u00e4"}` || len(got.Logs()) != 1 {
		t.Errorf("%+v %v %v", r, err, got.Logs())
	}
	kit.Refused(t, kit.Err(c.Invoke(kit.Context(t), &tool.Call{Tool: "nope"}, tool.Discard)), tool.CodeNotFound, "")
	ctx, cancel := context.WithCancel(kit.Context(t))
	defer cancel()
	_, err = c.Invoke(ctx, &tool.Call{Tool: "hang"}, tool.SinkFunc(func(tool.Event) error { cancel(); return nil }))
	kit.Refused(t, err, tool.CodeCancelled, "")
}

func TestCurlIsEnough(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl here")
	}
	tooltest.NoLeaks(t)
	h := open(t, setup{handler: numbered})
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a call":     {[]string{"-d", `{"a":1}`, "-H", "Content-Type: application/json", h.url("/v1/tools/echo/call")}, `{"ok":true,"output":{"a":1},"call":"`},
		"a stream":   {[]string{"-N", "-H", "Accept: text/event-stream", "-X", "POST", h.url("/v1/tools/events/call"), "-d", `{"count":2}`, "-H", "Content-Type: application/json"}, "event: result\n"},
		"the tools":  {[]string{h.url("/v1/tools")}, `{"tools":[`},
		"readiness":  {[]string{h.url("/readyz")}, `{"ok":true}`},
		"a mistake":  {[]string{"-d", `a=1`, h.url("/v1/tools/echo/call")}, "send application/json"},
		"by a name":  {[]string{"--resolve", "localhost:" + h.port() + ":127.0.0.1", "http://localhost:" + h.port() + "/v1/tools"}, `{"tools":[`},
		"a big body": {[]string{"-d", `{"a":"` + strings.Repeat("x", 100<<10) + `"}`, "-H", "Content-Type: application/json", h.url("/v1/tools/echo/call")}, "xxx"},
	} {
		args := append([]string{"-sS", "--noproxy", "*", "-H", "Authorization: Bearer " + token}, c.args...)
		out, err := exec.CommandContext(kit.Context(t), "curl", args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%.500s", name, err, out)
		}
	}
}

func (h *house) port() string {
	_, port, _ := net.SplitHostPort(h.addr)
	return port
}
