package web

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// TypeStream is the media type of server-sent events.
const TypeStream = "text/event-stream"

// A Stream answers one request with server-sent events. A slow peer makes Send wait; a peer that takes nothing for the
// whole of the server's patience counts as dead. Several goroutines may use it.
type Stream struct {
	mu       sync.Mutex
	w        http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
	done     bool
}

// NewStream sends the header at once, so that the client knows that the request has arrived.
func (s *Server) NewStream(w http.ResponseWriter) *Stream {
	w.Header().Set("Content-Type", TypeStream)
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not buffer either
	w.WriteHeader(http.StatusOK)
	out := &Stream{w: w, rc: http.NewResponseController(w), patience: s.Patience()}
	_ = out.write([]byte(": started\n\n"))
	return out
}

// PassStream is NewStream for events of another server: only what that server sends is passed on.
func (s *Server) PassStream(w http.ResponseWriter, status int) *Stream {
	w.WriteHeader(status)
	return &Stream{w: w, rc: http.NewResponseController(w), patience: s.Patience()}
}

// Pass sends events as they are.
func (s *Stream) Pass(events []byte) error { return s.write(events) }

// Send sends one event. Our JSON has no line breaks, so its data is one line; id and event may be empty.
func (s *Stream) Send(id, event string, data []byte) error {
	return s.write(message(id, event, data))
}

// Finish sends the last event; nothing is sent after it.
func (s *Stream) Finish(event string, data []byte) {
	_ = s.write(message("", event, data)) // an error means that the peer has gone
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
}

func message(id, event string, data []byte) []byte {
	b := make([]byte, 0, len(id)+len(event)+len(data)+32)
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	if event != "" {
		b = append(append(append(b, "event: "...), event...), '\n')
	}
	b = append(append(b, "data: "...), data...)
	return append(b, "\n\n"...)
}

var errEnded = errors.New("the call has ended; its events are no longer delivered")

func (s *Stream) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return errEnded
	}
	if err := s.rc.SetWriteDeadline(time.Now().Add(s.patience)); err != nil {
		return err
	}
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.rc.Flush()
}

// KeepAlive sends a comment now and then, by which both ends learn that the other is alive. The returned function stops
// it and waits for its end.
func (s *Stream) KeepAlive(every time.Duration) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				_ = s.write([]byte(": running\n\n")) // a peer that has gone ends the request's context
			}
		}
	}()
	return func() { close(end); <-ended }
}
