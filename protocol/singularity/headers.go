package singularity

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/tool"
	"toolpost/wire/envelope"
)

// The headers of a request that this protocol has beside those of every call; see package envelope.
const (
	headerStyle  = "Toolpost-Style"  // native: the body and the reply are those between Toolpost nodes
	headerStream = "Toolpost-Stream" // a subject for the events of the call
	headerAck    = "Toolpost-Ack"    // "true": the caller answers those events that have a reply subject
)

const nativeStyle = "native"

// maxField bounds a name and a subject that come from a caller: a NATS server cuts off a connection whose lines are
// longer than 4 KiB.
const maxField = 1 << 10

// wishes is what the headers of a request say beside the call itself.
type wishes struct {
	stream  string
	ack     bool
	timeout time.Duration
}

// readHeaders reads what belongs to a call beside its body.
func readHeaders(h nats.Header, c *tool.Call) (w wishes, err error) {
	if w.timeout, err = envelope.Read(h, c, headerStyle, headerStream, headerAck); err != nil {
		return w, err
	}
	ack, err := envelope.Single(h, headerAck)
	if err != nil {
		return w, err
	}
	w.ack = ack == "true"
	w.stream, err = envelope.Single(h, headerStream)
	if err == nil && w.stream != "" && !mayAnswer(w.stream) {
		err = envelope.BadHeader(headerStream,
			"is not a subject that events can go to: no wildcards, no spaces, not below tools, toolpost or $")
	}
	return w, err
}

// mayAnswer reports whether a subject that a caller chose can be published to. Our own subjects cannot: what goes
// there would be a request that the caller could perhaps not have made.
func mayAnswer(subject string) bool {
	return plainSubject(subject) && !strings.HasPrefix(subject, "$") &&
		!strings.HasPrefix(subject, prefixTools) && !strings.HasPrefix(subject, prefixToolpost)
}

// plainSubject reports whether a subject is one, and not a pattern of many.
func plainSubject(s string) bool {
	return s != "" && len(s) <= maxField && !strings.ContainsAny(s, " \t\r\n*>") &&
		s[0] != '.' && s[len(s)-1] != '.' && !strings.Contains(s, "..")
}
