package web

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"toolpost/host/process"
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
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); kind != TypeStream {
		t.Errorf("it is %s", kind)
	}
	events := NewEvents(resp.Body, 100)
	for _, want := range []string{`news {"a":1}`, " two", "end {}"} {
		if m, err := events.Next(); err != nil || m.Event+" "+string(m.Data) != want {
			t.Errorf("%+v, %v; want %s", m, err, want)
		}
	}
	if _, err := events.Next(); !errors.Is(err, io.ErrUnexpectedEOF) || events.LastID != "7" {
		t.Errorf("%v; the last id is %q", err, events.LastID)
	}
}

func TestEventsAreReadAsOtherServersWriteThem(t *testing.T) {
	events := NewEvents(strings.NewReader("retry: 1500\r\nid:1\ndata:one\r\ndata: more\n\n:comment\nevent: empty\n\n"+
		"retry: soon\nretry: 99999999\nunknown: x\ndata\n\ndata: "+strings.Repeat("x", 101)+"\n\n"), 100)
	if m, err := events.Next(); err != nil || string(m.Data) != "one\nmore" || events.LastID != "1" || events.Retry != 1500*time.Millisecond {
		t.Errorf("%+v, %v, %+v", m, err, events)
	}
	if m, err := events.Next(); err != nil || m.Event != "" || len(m.Data) != 0 || events.Retry != maxRetry {
		t.Errorf("%+v, %v, %v", m, err, events.Retry)
	}
	if _, err := events.Next(); err == nil {
		t.Error("a message beyond its bound was read")
	} else if _, ok := errors.AsType[*process.LimitError](err); !ok {
		t.Error(err)
	}
}
