package tool

import (
	"encoding/hex"
	"slices"
	"strings"
)

// TraceOf returns the trace id of a W3C traceparent as a UUID. As W3C asks, one that is malformed is treated
// as absent.
func TraceOf(traceparent string) string {
	id, _ := parseTraceparent(traceparent)
	if id == "" {
		return ""
	}
	return strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
}

// SpanOf returns the span of a W3C traceparent, the parent of whatever is done for whoever sent it; empty for one that
// is malformed.
func SpanOf(traceparent string) string {
	_, span := parseTraceparent(traceparent)
	return span
}

// parseTraceparent returns both ids, or neither. Of a version that is to come only the beginning is known.
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

// Traceparent is the inverse of TraceOf and SpanOf; without a span it makes a new one. It is empty for a trace that is
// no UUID.
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
	for id == [8]byte{} { // the one id that there cannot be
		r.read(id[:])
	}
	randoms.Put(r)
	return hex.EncodeToString(id[:])
}

// traceVariable is where a program that is started for one call finds the traceparent of it.
const traceVariable = "TRACEPARENT"

// TraceEnv adds the call's traceparent to the environment of a program that is started for it, unless the environment
// has one. It does not change the list that it is given.
func (c *Call) TraceEnv(env []string) []string {
	parent := Traceparent(c.Trace, c.Span)
	given := func(v string) bool { return strings.HasPrefix(v, traceVariable+"=") }
	if parent == "" || slices.ContainsFunc(env, given) {
		return env
	}
	return append(slices.Clip(env), traceVariable+"="+parent)
}

func isHex(s string, n int) bool { return len(s) == n && strings.Trim(s, "0123456789abcdef") == "" }

// isID reports whether a text is an id of W3C: not all zeroes.
func isID(s string, n int) bool { return isHex(s, n) && strings.Trim(s, "0") != "" }
