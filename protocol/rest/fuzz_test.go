package rest_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/iotest"

	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Whatever a server sends, a call has one outcome, and every forwarded event is valid.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "data", ":\n\n", anEvent, anEvent + anEvent + "event: result\ndata: {\"ok\":true,\"output\":{\"a\":1.50}}\n\n",
		"event: result\ndata: {\"ok\":false,\"error\":{\"code\":\"tool_error\",\"message\":\"m\"},\"call\":\"c\"}\n\n",
		"event: no_outcome\r\ndata: {\"ok\":false,\r\ndata: \"error\":{\"code\":\"timeout\",\"message\":\"\"}}\r\n\r\n",
		"event: result\ndata: {\"ok\":true,\"trace\":{\"duration_ms\":1e400}}\n\n",
		"event: log\ndata: {\"seq\":-1,\"kind\":\"log\",\"data\":{}}\n\n", strings.Repeat("data: x\n", 100),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		sink := tool.SinkFunc(func(e tool.Event) error {
			if e.Kind == "" || strictjson.CheckObject(e.Data) != nil {
				t.Errorf("an event that is none: %+v", e)
			}
			return nil
		})
		r, err := rest.Follow(bytes.NewReader(body), sink)
		if (r == nil) == (err == nil) {
			t.Fatalf("%+v and %v", r, err)
		}
		slow, slowErr := rest.Follow(iotest.OneByteReader(bytes.NewReader(body)), tool.Discard)
		if (r == nil) != (slow == nil) || tool.CodeOf(err) != tool.CodeOf(slowErr) {
			t.Errorf("byte by byte it is %+v, %v and not %+v, %v", slow, slowErr, r, err)
		}
	})
}
