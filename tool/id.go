package tool

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"
)

// random hands out random bytes that were read ahead: asking the system for ten of them each time would be most of the
// work of making an id.
type random struct {
	ahead [1 << 10]byte
	used  int
}

var randoms = sync.Pool{New: func() any { return &random{used: len(random{}.ahead)} }}

func (r *random) read(b []byte) {
	if len(r.ahead)-r.used < len(b) {
		_, _ = rand.Read(r.ahead[:]) // never fails: it ends the program instead
		r.used = 0
	}
	r.used += copy(b, r.ahead[r.used:])
}

// NewID makes a UUID of version 7: ids sort by the time they were made, to the millisecond. It is used for calls,
// traces and everything else that needs a name.
func NewID() string {
	var u [16]byte
	r := randoms.Get().(*random)
	r.read(u[6:])
	randoms.Put(r)
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		u[i] = byte(ms >> (8 * (5 - i)))
	}
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[0:8], u[0:4])
	hex.Encode(s[9:13], u[4:6])
	hex.Encode(s[14:18], u[6:8])
	hex.Encode(s[19:23], u[8:10])
	hex.Encode(s[24:36], u[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// Name gives the call an id if it has none, and starts a trace if it belongs to none. It is meant for the code that
// made the call; the engine does the same to its copy of a call that comes without.
func (c *Call) Name() {
	if c.ID == "" {
		c.ID = NewID()
		c.Trace = cmp.Or(c.Trace, c.ID)
	}
	if c.Trace == "" { // a client chose the id, which may be anything, and a trace is a UUID
		c.Trace = NewID()
	}
}

// Forwarded returns the call as it is passed on to another Toolpost. All our callers are one caller there, and names
// that they chose independently would clash. So the call gets an id of its own, and its session and key get names that
// are unique to the caller and the same each time.
func (c *Call) Forwarded() *Call {
	on := *c
	on.ID = NewID()
	if c.Session != "" {
		on.Session = NameFor("session", c.Caller.ID, c.Session)
	}
	if c.Key != "" {
		on.Key = NameFor("key", c.Caller.ID, c.Session, c.Key)
	}
	return &on
}

// NameFor derives a name from several texts. The same texts give the same name in every process; other texts give
// another.
func NameFor(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		h.Write(binary.AppendUvarint(nil, uint64(len(text)))) // "ab"+"c" is not "a"+"bc"
		h.Write([]byte(text))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// TraceOf returns the trace id of a W3C traceparent as a UUID. As W3C asks, a malformed one is treated as absent.
func TraceOf(traceparent string) string {
	id, _ := parseTraceparent(traceparent)
	if id == "" {
		return ""
	}
	return strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
}

// SpanOf returns the span of a W3C traceparent, the parent of everything done for its sender; it is empty if the
// traceparent is malformed.
func SpanOf(traceparent string) string {
	_, span := parseTraceparent(traceparent)
	return span
}

// parseTraceparent returns both ids, or neither. Of a future version only the beginning is known.
func parseTraceparent(text string) (trace, span string) {
	parts := strings.SplitN(text, "-", 5)
	if len(parts) < 4 || !isHex(parts[0], 2) || !isID(parts[1], 32) || !isID(parts[2], 16) || !isHex(parts[3], 2) {
		return "", ""
	}
	if parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 {
		return "", ""
	}
	return parts[1], parts[2]
}

// Traceparent is the inverse of TraceOf and SpanOf; without a span it makes a new one. It returns "" if the trace is
// not a UUID.
func Traceparent(trace, span string) string {
	id := strings.ReplaceAll(trace, "-", "")
	if !isID(id, 32) {
		return ""
	}
	if !isID(span, 16) {
		span = NewSpan()
	}
	return "00-" + id + "-" + span + "-01"
}

// NewSpan makes the id of a span.
func NewSpan() string {
	var id [8]byte
	r := randoms.Get().(*random)
	for id == [8]byte{} { // the one invalid id
		r.read(id[:])
	}
	randoms.Put(r)
	return hex.EncodeToString(id[:])
}

// traceVariable is the environment variable that holds the traceparent for a program started for one call.
const traceVariable = "TRACEPARENT"

// TraceEnv adds the call's traceparent to the environment of a program that is started for it, unless the environment
// already has one. It does not change env.
func (c *Call) TraceEnv(env []string) []string {
	parent := Traceparent(c.Trace, c.Span)
	given := func(v string) bool { return strings.HasPrefix(v, traceVariable+"=") }
	if parent == "" || slices.ContainsFunc(env, given) {
		return env
	}
	return append(slices.Clip(env), traceVariable+"="+parent)
}

func isHex(s string, n int) bool { return len(s) == n && strings.Trim(s, "0123456789abcdef") == "" }

// isID reports whether s is a valid W3C id: hexadecimal and not all zeroes.
func isID(s string, n int) bool { return isHex(s, n) && strings.Trim(s, "0") != "" }
