package singularity

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// How far a stream may be ahead of a caller that acknowledges: NATS itself would let it run until the caller is
// cut off as a slow consumer.
const (
	maxAheadEvents = 64
	maxAheadBytes  = 256 << 10
)

// A stream sends the events of one call to a subject. They leave on the connection that the reply leaves on, so that
// each of them arrives before it.
//
// Where the caller asked for it, every so often an event has a reply subject; the stream goes on once the caller
// has answered it.
type stream struct {
	ctx     context.Context
	nc      *nats.Conn
	subject string
	ack     bool

	mu            sync.Mutex
	seq           uint64
	events, bytes int // since the last acknowledgement
}

// Emit implements tool.Sink.
func (s *stream) Emit(e tool.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return interrupted(s.ctx)
	}
	s.seq++
	if e.Seq == 0 {
		e.Seq = s.seq
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	body, err := strictjson.Marshal(e)
	if most := s.nc.MaxPayload(); err == nil && most > 0 && int64(len(body)) > most {
		err = errors.New("it is larger than this NATS server carries")
	}
	if err != nil {
		body = s.lost(e, err)
	}
	return s.send(body)
}

// lost takes the place of an event that cannot be sent.
func (s *stream) lost(e tool.Event, why error) []byte {
	said := tool.NewEvent(tool.KindError, tool.ErrorEvent{
		Code: "event_lost", Message: "an event of kind " + string(e.Kind) + " could not be sent: " + why.Error(),
	})
	said.Seq, said.Time = e.Seq, e.Time
	body, _ := strictjson.Marshal(said) // words alone
	return body
}

func (s *stream) send(body []byte) error {
	s.events++
	s.bytes += len(body)
	if !s.ack || s.events < maxAheadEvents && s.bytes < maxAheadBytes {
		return s.nc.Publish(s.subject, body)
	}
	s.events, s.bytes = 0, 0
	_, err := s.nc.RequestWithContext(s.ctx, s.subject, body)
	switch {
	case s.ctx.Err() != nil:
		return interrupted(s.ctx)
	case err != nil:
		return tool.Errorf(tool.CodeCancelled, "the events of this call are no longer received: %w", err)
	}
	return nil
}
