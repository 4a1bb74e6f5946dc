package redact

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A plain sink redacts each event by itself.
type plain struct {
	r   *secret.Redactor
	out tool.Sink
}

// Emit implements tool.Sink.
func (s plain) Emit(ev tool.Event) error {
	ev.Kind, ev.Data = tool.Kind(s.r.String(string(ev.Kind))), s.r.JSON(ev.Data)
	return s.out.Emit(ev)
}

func (plain) flush(context.Context) error { return nil }

// A joined sink redacts output events as one continuous text for each stream, and log events as the lines of one log.
type joined struct {
	plain

	mu      sync.Mutex
	streams []*stream
	lines   secret.Stream
	err     error // of the sink behind, after which there is no listener
	ended   bool
}

// maxStreams is how many streams of a call are tracked. Events of further streams are redacted one by one.
const maxStreams = 16

type stream struct {
	name string
	secret.Stream
}

// Emit implements tool.Sink.
func (s *joined) Emit(ev tool.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded
	}
	if s.err == nil {
		s.err = s.pass(ev)
	}
	return s.err
}

var errEnded = errors.New("the call has ended; its events are no longer delivered")

func (s *joined) pass(ev tool.Event) error {
	switch ev.Kind {
	case tool.KindOutput:
		if ev.Data = s.output(ev.Data); ev.Data == nil {
			return nil
		}
	case tool.KindLog:
		ev.Data = s.log(ev.Data)
	}
	return s.plain.Emit(ev)
}

// output redacts the text of an output event. It returns nil if all of it is held back for now.
func (s *joined) output(data json.RawMessage) json.RawMessage {
	var o tool.Output
	if strictjson.Unmarshal(data, &o) != nil {
		return data
	}
	text := s.stream(o.Stream)
	if text == nil {
		return data
	}
	clean := text.Write(o.Text)
	if clean == "" && o.Text != "" {
		return nil
	}
	return with(data, "text", o.Text, clean)
}

// log redacts the message of a log event.
func (s *joined) log(data json.RawMessage) json.RawMessage {
	var l tool.Log
	if strictjson.Unmarshal(data, &l) != nil {
		return data
	}
	return with(data, "message", l.Message, s.lines.Write(l.Message)+s.lines.Pause())
}

// with replaces the text in the data of an event and leaves the rest as it is.
func with(data json.RawMessage, name, was, text string) json.RawMessage {
	var fields map[string]json.RawMessage
	if text == was || strictjson.Unmarshal(data, &fields) != nil {
		return data
	}
	fields[name] = strictjson.Quote(text)
	changed, _ := strictjson.Marshal(fields) // never fails: all of it is JSON
	return changed
}

// stream returns the stream with a name, or nil if there are too many.
func (s *joined) stream(name string) *stream {
	for _, t := range s.streams {
		if t.name == name {
			return t
		}
	}
	if len(s.streams) == maxStreams {
		return nil
	}
	t := &stream{name, secret.Stream{Redactor: s.r}}
	s.streams = append(s.streams, t)
	return t
}

// flush ends the sink by emitting what was held back, unless the caller is gone.
func (s *joined) flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, t := range s.streams {
		text := t.Pause()
		if text == "" || s.err != nil || ctx.Err() != nil {
			continue
		}
		s.err = s.plain.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: t.name, Text: text}))
	}
	return s.err
}
