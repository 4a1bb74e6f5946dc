package rest

import (
	"context"
	"io"
	"net/http"
	"time"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/sse"
)

// Access to internals for the tests: shorter waits, and the readers of streams.

// SetSilence shortens how long a client waits for a message or keep-alive.
func (c *Client) SetSilence(d time.Duration) { c.silence = d }

// Follow reads a stream as Invoke does, with a bound on its messages.
func Follow(body io.Reader, out tool.Sink) (*tool.Result, error) {
	timer := time.AfterFunc(time.Hour, func() {})
	defer timer.Stop()
	f := &following{out: out, body: &watched{body, timer, time.Hour}}
	return f.run(http.Header{"Content-Type": {web.TypeStream}})
}

// DeadlineWriter is the writer that an asset is sent with.
func DeadlineWriter(w http.ResponseWriter, ctx context.Context, d time.Duration) io.Writer {
	return &deadlineWriter{w, ctx, d}
}

// Messages reads a stream to its end, with messages of at most that many bytes.
func Messages(r io.Reader, most int) (events []string, datas [][]byte, err error) {
	in := sse.New(r, most)
	for {
		m, err := in.Next()
		if err != nil {
			return events, datas, err
		}
		events, datas = append(events, m.Name), append(datas, m.Data)
	}
}

// EncodeAnswer returns the body of a call.
func EncodeAnswer(r *tool.Result, call string) ([]byte, error) {
	body, _, err := encodeAnswer(r, call)
	return body, err
}
