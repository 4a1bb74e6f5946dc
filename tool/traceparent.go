package tool

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// TraceOf gives the trace id of a W3C traceparent as a UUID. As W3C asks, one that is malformed is treated
// as absent.
func TraceOf(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 || parts[0] == "ff" || !isHex(parts[0], 2) || !isHex(parts[1], 32) || !isHex(parts[2], 16) {
		return ""
	}
	id := parts[1]
	if strings.Trim(id, "0") == "" {
		return ""
	}
	return strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
}

// Traceparent is the inverse of TraceOf, with a new span; empty for a trace that is no UUID.
func Traceparent(trace string) string {
	id := strings.ReplaceAll(trace, "-", "")
	if !isHex(id, 32) {
		return ""
	}
	span := make([]byte, 8)
	_, _ = rand.Read(span) // never fails
	return "00-" + id + "-" + hex.EncodeToString(span) + "-01"
}

func isHex(s string, n int) bool { return len(s) == n && strings.Trim(s, "0123456789abcdef") == "" }
