package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"toolpost/tool"
	"toolpost/wire/duration"
	"toolpost/wire/strictjson"
)

// The headers that doors have to name themselves; the table has all of them.
const (
	HeaderCall    = "Toolpost-Call"
	HeaderResume  = "Toolpost-Resume"
	HeaderAnswers = "Toolpost-Answers"
	HeaderDryRun  = "Toolpost-Dry-Run"
	HeaderTimeout = "Toolpost-Timeout"
)

// Bounds in bytes. Our servers accept 64 KiB of headers over HTTP, and others less.
const (
	maxText    = 1 << 10
	maxAnswers = 32 << 10
	maxResume  = 16 << 10 // the id of a question contains its schema
	maxID      = 64
)

// contents is the content of an envelope: fields of a call, and its caller's timeout, for which Call has no field.
type contents struct {
	*tool.Call
	timeout time.Duration
}

// A field is one item of an envelope.
type field struct {
	header   string
	variable string                        // the environment variable; "" if none
	read     func(*contents, string) error // the error completes the sentence "the header X ..."
	write    func(*contents) (string, error)
	lenient  bool // a repeated header is ignored
}

// fields is the table. The id has no variable: it names one call, and a program may make many. Two headers are not
// ours: the key's is that of an IETF draft, and the trace's that of W3C, which asks senders for lower case.
var fields = [...]field{
	{header: HeaderCall, read: readID, write: func(c *contents) (string, error) { return c.ID, nil }},
	text("Toolpost-Session", "TOOLPOST_SESSION", func(c *contents) *string { return &c.Session }),
	text("Idempotency-Key", "TOOLPOST_KEY", func(c *contents) *string { return &c.Key }),
	text("Toolpost-Lease", "TOOLPOST_LEASE", func(c *contents) *string { return &c.Lease }),
	text("Toolpost-Run", "TOOLPOST_RUN", func(c *contents) *string { return &c.Run }),
	bounded(HeaderResume, "TOOLPOST_RESUME", maxResume, func(c *contents) *string { return &c.Resume }),
	{header: HeaderAnswers, variable: "TOOLPOST_ANSWERS", read: readAnswers, write: writeAnswers},
	{header: HeaderDryRun, variable: "TOOLPOST_DRY_RUN", read: readDryRun, write: writeDryRun},
	{header: HeaderTimeout, variable: "TOOLPOST_TIMEOUT", read: readTimeout, write: writeTimeout},
	{header: "traceparent", variable: "TRACEPARENT", read: readTrace, write: writeTrace, lenient: true},
}

// text is a field of plain text; in returns where to store it.
func text(header, variable string, in func(*contents) *string) field {
	return bounded(header, variable, maxText, in)
}

// bounded is a field of plain text with a maximum length.
func bounded(header, variable string, most int, in func(*contents) *string) field {
	return field{
		header: header, variable: variable,
		read: func(c *contents, text string) error {
			*in(c) = text
			return checkText(text, most)
		},
		write: func(c *contents) (string, error) { return *in(c), nil },
	}
}

// CheckText refuses a text that would be changed in a header, or would become two headers. Its error completes a
// sentence that begins with the name of the text.
func CheckText(s string) error { return checkText(s, maxText) }

func checkText(s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("is longer than %d bytes: shorten it", most)
	case !utf8.ValidString(s) || strings.TrimSpace(s) != s || strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("is not plain text: send UTF-8 without control characters, and without spaces at either end")
	}
	return nil
}

// ValidID reports whether a text can be the id of a call, also in a URL.
func ValidID(id string) bool {
	return 0 < len(id) && len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

func readID(c *contents, text string) error {
	if c.ID = text; !ValidID(text) {
		return fmt.Errorf("is not an id: 1 to %d of the characters A-Z a-z 0-9 _ -", maxID)
	}
	return nil
}

func readAnswers(c *contents, text string) error {
	if len(text) > maxAnswers {
		return fmt.Errorf("is longer than %d bytes: answer in fewer words", maxAnswers)
	}
	if err := strictjson.Check([]byte(text)); err != nil {
		return fmt.Errorf("is not JSON: %w", err)
	}
	c.Answers = json.RawMessage(text)
	return nil
}

// writeAnswers returns the answers on one line. DEL is the one control character that JSON allows in a string, and HTTP
// does not carry it.
func writeAnswers(c *contents) (string, error) {
	if len(c.Answers) == 0 {
		return "", nil
	}
	line, err := strictjson.Marshal(c.Answers)
	if err != nil {
		return "", fmt.Errorf("is not JSON: %w", err)
	}
	return string(bytes.ReplaceAll(line, []byte("\x7f"), []byte(`\u007f`))), nil
}

func readDryRun(c *contents, text string) error {
	if c.DryRun = text == "true"; !c.DryRun && text != "false" {
		return errors.New("is neither true nor false")
	}
	return nil
}

func writeDryRun(c *contents) (string, error) {
	if c.DryRun {
		return "true", nil
	}
	return "", nil
}

func readTimeout(c *contents, text string) (err error) {
	if c.timeout, err = duration.Parse(text); err != nil || c.timeout <= 0 {
		return errors.New("is not a duration above zero, such as 2s or 500ms")
	}
	return nil
}

func writeTimeout(c *contents) (string, error) {
	if c.timeout > 0 {
		return c.timeout.String(), nil
	}
	return "", nil
}

// readTrace ignores an invalid traceparent, as W3C asks: a trace must not stop a call.
func readTrace(c *contents, text string) error {
	c.Trace, c.Span = tool.TraceOf(text), tool.SpanOf(text)
	return nil
}

func writeTrace(c *contents) (string, error) { return tool.Traceparent(c.Trace, c.Span), nil }
