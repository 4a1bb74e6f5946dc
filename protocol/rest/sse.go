package rest

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// maxMessage bounds one message of a stream: a line of it, and all its data together.
const maxMessage = 32 << 20

// decodeEvent reads the data of every message but the last.
func decodeEvent(m web.Received) (tool.Event, error) {
	var e tool.Event
	if err := strictjson.Unmarshal(m.Data, &e); err != nil {
		return e, err
	}
	if e.Kind == "" || string(e.Kind) != m.Event {
		return e, errors.New("an event has no kind, or another than its message")
	}
	if kind := strictjson.KindOf(e.Data); kind != "object" {
		return e, errors.New("the data of an event is not an object but " + kind)
	}
	return e, nil
}

func decodeResult(data []byte) (*tool.Result, error) {
	var a struct {
		tool.Result
		OK *bool `json:"ok"`
	}
	if err := strictjson.Unmarshal(data, &a); err != nil {
		return nil, err
	}
	if a.OK == nil {
		return nil, errors.New("a result does not say whether it is ok")
	}
	a.Result.OK = *a.OK
	return &a.Result, nil
}

// decodeProblem is the inverse of web.Problem. A code that we do not know becomes internal.
func decodeProblem(data []byte) (*tool.Error, error) {
	var p struct {
		Error *tool.Error `json:"error"`
	}
	if err := strictjson.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	if p.Error == nil || p.Error.Code == "" {
		return nil, errors.New("an error has no code")
	}
	if !slices.Contains(tool.Codes(), p.Error.Code) {
		p.Error.Code = tool.CodeInternal
	}
	return p.Error, nil
}

// A stream sends the events of one call as server-sent events. A peer that reads slowly makes Emit
// wait; one that takes nothing for the whole of patience is taken for dead.
type stream struct {
	mu       sync.Mutex
	w        http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
	before   uint64 // how many events the peer has had in an earlier stream
	done     bool
}

// newStream sends the header at once, so that the caller has the call's id before anything happens.
func newStream(w http.ResponseWriter, patience time.Duration) *stream {
	w.Header().Set("Content-Type", typeStream)
	w.Header().Set("X-Accel-Buffering", "no") // proxies, too, are to hand on what they get
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, rc: http.NewResponseController(w), patience: patience}
	_ = s.send([]byte(": started\n\n"))
	return s
}

// Emit implements tool.Sink.
func (s *stream) Emit(e tool.Event) error {
	e.Seq += s.before
	data, err := strictjson.Marshal(e)
	if err != nil {
		return tool.Errorf(tool.CodeProtocol, "an event cannot be written as JSON: %w", err)
	}
	if strings.ContainsAny(string(e.Kind), "\r\n") {
		return tool.Errorf(tool.CodeProtocol, "an event has the kind %q, which is none", e.Kind)
	}
	return s.send(message("id: "+strconv.FormatUint(e.Seq, 10)+"\n", string(e.Kind), data))
}

// finish sends the last message; after it nothing is sent.
func (s *stream) finish(event string, body []byte) {
	_ = s.send(message("", event, body)) // nobody is left to be told that the peer has gone
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
}

// message lays out one server-sent event. JSON of ours has no line breaks.
func message(id, event string, data []byte) []byte {
	b := make([]byte, 0, len(id)+len(event)+len(data)+32)
	b = append(b, id...)
	b = append(append(b, "event: "...), event...)
	b = append(append(b, "\ndata: "...), data...)
	return append(b, "\n\n"...)
}

var errEnded = errors.New("the call has ended; its events are no longer delivered")

func (s *stream) send(b []byte) error {
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

// keepAlive sends a comment now and then: both ends learn from it that the other is there. The function
// that it returns ends that and waits for it.
func (s *stream) keepAlive(every time.Duration) (stop func()) {
	end := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				_ = s.send([]byte(": running\n\n")) // a peer that has gone ends the request's context
			}
		}
	})
	return func() { close(end); beating.Wait() }
}
