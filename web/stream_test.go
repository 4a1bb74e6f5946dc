package web

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"toolpost/host/sse"
	"toolpost/internal/kit"
)

func TestAStreamIsReadAsItWasWritten(t *testing.T) {
	front := &Server{}
	front.o.Times.Write = time.Minute
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := front.NewStream(w)
		stop := out.KeepAlive(time.Millisecond)
		_ = out.Send("7", "news", []byte(`{"a":1}`))
		_ = out.Send("", "", []byte(`two`))
		time.Sleep(10 * time.Millisecond)
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
	events := sse.New(resp.Body, 100)
	for _, want := range []string{`news {"a":1}`, " two", "end {}"} {
		if m, err := events.Next(); err != nil || m.Name+" "+string(m.Data) != want {
			t.Errorf("%+v, %v; want %s", m, err, want)
		}
	}
	if _, err := events.Next(); !errors.Is(err, io.ErrUnexpectedEOF) || events.LastID != "7" {
		t.Errorf("%v; the last id is %q", err, events.LastID)
	}
}
