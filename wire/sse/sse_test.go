package sse

import (
	"errors"
	"strings"
	"testing"
	"time"

	"toolpost/wire/bounded"
)

func TestEventsAreReadAsOtherServersWriteThem(t *testing.T) {
	events := New(strings.NewReader("retry: 1500\r\nid:1\ndata:one\r\ndata: more\n\n:comment\nevent: empty\n\n"+
		"retry: soon\nretry: 99999999\nunknown: x\ndata\n\ndata: "+strings.Repeat("x", 101)+"\n\n"), 100)
	if m, err := events.Next(); err != nil || string(m.Data) != "one\nmore" || events.LastID != "1" ||
		events.Retry != 1500*time.Millisecond {
		t.Errorf("%+v, %v, %+v", m, err, events)
	}
	if m, err := events.Next(); err != nil || m.Name != "" || len(m.Data) != 0 || events.Retry != maxRetry {
		t.Errorf("%+v, %v, %v", m, err, events.Retry)
	}
	if _, err := events.Next(); err == nil {
		t.Error("a message beyond its bound was read")
	} else if _, ok := errors.AsType[*bounded.LimitError](err); !ok {
		t.Error(err)
	}
}
