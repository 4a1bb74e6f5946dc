package web

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/wire/sse"
)

// keepAlives looks for a comment in a stream, which keeps it alive.
type keepAlives struct {
	text []byte
	seen func()
}

func (k *keepAlives) Write(b []byte) (int, error) {
	if k.text = append(k.text, b...); bytes.Contains(k.text, []byte("\n:")) {
		k.seen()
	}
	return len(b), nil
}

func TestAStreamIsReadAsItWasWritten(t *testing.T) {
	front := &Server{}
	front.o.Times.Write = time.Minute
	kept := make(chan struct{}) // closed when the client has read a line that keeps the stream alive
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := front.NewStream(w)
		stop := out.KeepAlive(time.Millisecond)
		_ = out.Send("7", "news", []byte(`{"a":1}`))
		_ = out.Send("", "", []byte(`two`))
		kit.Receive(t, "a line that keeps the stream alive", kept)
		stop()
		out.Finish("end", []byte(`{}`))
		if out.Send("", "late", nil) == nil {
			t.Error("something was sent after the end")
		}
	}))
	defer srv.Close()
	resp := kit.Must(srv.Client().Get(srv.URL))(t)
	defer resp.Body.Close()
	kit.Equal(t, resp.Header.Get("Content-Type"), TypeStream)
	events := sse.New(io.TeeReader(resp.Body, &keepAlives{seen: sync.OnceFunc(func() { close(kept) })}), 100)
	for _, want := range []string{`news {"a":1}`, " two", "end {}"} {
		if m, err := events.Next(); err != nil || m.Name+" "+string(m.Data) != want {
			t.Errorf("%+v, %v; want %s", m, err, want)
		}
	}
	if _, err := events.Next(); !errors.Is(err, io.ErrUnexpectedEOF) || events.LastID != "7" {
		t.Errorf("%v; the last id is %q", err, events.LastID)
	}
}
