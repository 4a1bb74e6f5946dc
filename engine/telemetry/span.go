package telemetry

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"toolpost/tool"
)

// shares is how finely traces are sampled: by the last seven bytes of their ids, which are random in a UUID of any
// version, and in the same way for everybody who sees the trace.
const shares = 1 << 56

// A span is what is told of one call.
type span struct {
	labels
	trace, id, parent string // in hexadecimal digits

	call, caller string
	start, end   time.Time
	in, out      int
	cached       bool
}

// begin starts a span and gives the call as those inside see it: with a name, and as part of the span. A trace that is
// not sampled is left as it came.
func (t *Telemetry) begin(c *tool.Call, start time.Time) (*span, *tool.Call) {
	inside := *c
	inside.Name()
	trace := traceID(inside.Trace)
	if share, _ := strconv.ParseUint(trace[18:], 16, 64); share >= t.sample {
		return nil, &inside
	}
	inside.Span = tool.NewSpan()
	s := &span{
		trace: trace, id: inside.Span, call: inside.ID, caller: c.Caller.ID, start: start, in: len(c.Args),
	}
	if c.Trace != "" { // a span is nothing without its trace
		s.parent = tool.SpanOf("00-" + trace + "-" + c.Span + "-01")
	}
	return s, &inside
}

// traceID returns a trace in 32 hexadecimal digits. Some contracts let callers choose any text: the same text gives the
// same id.
func traceID(trace string) string {
	if parent := tool.Traceparent(trace, "0000000000000001"); parent != "" {
		return strings.Split(parent, "-")[1]
	}
	sum := sha256.Sum256([]byte(trace))
	return hex.EncodeToString(sum[:16])
}
