package web

import (
	"io"
	"net/http"
	"sync"
	"time"

	"toolpost/identity"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// bodies limits the total size of the requests that are being served, of all callers and of each: processing a body
// takes many times its size.
type bodies struct {
	all, each int64 // maximum bytes, of all requests and of those of one caller

	mu   sync.Mutex
	held int64
	of   identity.PerCaller[int64]
}

// How many of the largest bodies are served at the same time, of all callers and of each.
const (
	bodiesAtOnce = 16
	ofEach       = 4
)

// A ration is a body that takes as much of the room for all bodies as it has received so far. Reserving its declared
// length from the start would let a few that send nothing keep all others out.
type ration struct {
	io.ReadCloser
	in    *bodies
	of    tool.Principal // zero if its caller is unknown
	begun time.Time
	held  int64
	dense int64       // of that: for values that take more memory than their bytes tell
	full  *tool.Error // why nothing more was read
}

// ration assigns the body of a request to a caller.
func (s *Server) ration(r *http.Request, of tool.Principal) *ration {
	known, ok := r.Body.(*ration)
	if !ok {
		known = &ration{ReadCloser: r.Body, in: s.bodies, of: of, begun: time.Now()}
		r.Body = known
	}
	return known
}

// Read implements io.Reader.
func (b *ration) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.full = b.weigh(int64(n), true); b.full != nil {
		return 0, b.full
	}
	return n, err
}

// weigh returns an error if there is no room for more of a body. If there is, it takes the room, or only checks.
func (b *ration) weigh(more int64, take bool) *tool.Error {
	b.in.mu.Lock()
	defer b.in.mu.Unlock()
	switch {
	case more == 0:
		return nil
	case b.in.held+more > b.in.all:
		return tool.Errorf(tool.CodeUnavailable,
			"busy: the requests that are being served are too large together; try again in a moment").Because("busy").
			RetryAfter(time.Second)
	case b.in.of[b.of.ID]+more > b.in.each:
		return tool.Errorf(tool.CodeQuotaExceeded, "the requests of %q that are being served have more than %d bytes "+
			"together; wait for some of them", b.of.ID, b.in.each).Because("bodies").RetryAfter(time.Second)
	}
	if take {
		b.held, b.in.held = b.held+more, b.in.held+more
		b.in.of.Add(b.of.ID, more)
	}
	return nil
}

// weighValues refuses a body with more values than a document may have, before a door builds anything of it. One with as
// many as it may have takes the room of one of the largest bodies.
func (b *ration) weighValues(body []byte, largest int64) *tool.Error {
	weight, _ := strictjson.Weigh(body) // the door reports other faults, in its own words
	if weight > strictjson.MaxTree {
		return tool.Errorf(tool.CodeInvalidInput, "the body has %w", strictjson.ErrTree).Because("too_many_values")
	}
	b.dense = max(0, int64(weight)*largest/strictjson.MaxTree-b.held)
	return b.weigh(b.dense, true)
}

// outlives reports whether a body came so slowly that its caller, which has shown credentials, is no longer admitted.
func (s *Server) outlives(r *http.Request, b *ration) bool {
	var err error
	if b.of.Proof != "" && time.Since(b.begun) > recheckEvery/10 {
		_, err = s.o.Gate(r.Context(), identity.Again(b.of))
	}
	return tool.CodeOf(err) == tool.CodeAccessDenied
}

// ForgetBody frees the room of a request's body for the rest of the request, which may be long. A conversation that is
// kept has the values of its body, so their room stays taken.
func (s *Server) ForgetBody(r *http.Request) { forget(r, false) }

func forget(r *http.Request, values bool) {
	b, ok := r.Body.(*ration)
	if !ok {
		return
	}
	b.in.mu.Lock()
	defer b.in.mu.Unlock()
	if values {
		b.dense = 0
	}
	bytes := b.held - b.dense
	b.in.held -= bytes
	b.in.of.Add(b.of.ID, -bytes)
	b.held = b.dense
}
