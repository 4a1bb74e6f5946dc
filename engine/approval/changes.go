package approval

import (
	"bytes"
	"fmt"
	"strings"

	"toolpost/tool"
	"toolpost/wire/strictjson"
	"toolpost/wire/textdiff"
)

// A Change is what a call would do to a file, for people: as far as its arguments tell, and as the file is now.
type Change struct {
	Path string `json:"path"`
	Kind string `json:"kind" schema:"enum=change|create|delete"`
	// Diff has lines that begin with +, - or a space, after one that begins with @@. A line without these says how many are
	// left out.
	Diff string `json:"diff,omitempty"`
}

// The limits of a difference.
const (
	maxFile = 256 << 10 // bytes of a file that is compared
	maxDiff = 200       // lines
	maxLine = 400       // bytes of one

	diffAround = 3 // lines that stay, before and after
)

// changes returns the changes of a call, without secrets. It knows the arguments that tools for files usually have. A file is
// compared only if its caller could read it, with tools of the same source.
func (s *Approvals) changes(c *tool.Call) []Change {
	var given arguments
	if len(c.Args) > maxFile || strictjson.Unmarshal(c.Args, &given) != nil {
		return nil
	}
	t, one, ours := c.Consent.Touches, Change{Path: given.Path, Kind: "change"}, false
	var was string
	if len(t.Writes) == 1 && len(t.Commands) == 0 && c.Consent.Preview != nil {
		one.Path, ours = t.Writes[0], true
		b, err := c.Consent.Preview(one.Path, maxFile)
		switch {
		case tool.CodeOf(err) == tool.CodeNotFound:
			one.Kind = "create"
		case err != nil || bytes.IndexByte(b, 0) >= 0: // it is closed to the caller, large, or no text
			return nil
		}
		was = string(b)
	}
	now := was
	switch deletes := c.Spec != nil && c.Spec.Effects.Destructive; {
	case one.Path == "" || given.Encoding == "base64":
		return nil
	case given.Content != nil && given.Append:
		now += *given.Content
	case given.Content != nil:
		now = *given.Content
	case given.Old != "" && (!ours || one.Kind == "create"): // the file is elsewhere
		was, now = given.Old, given.New
	case given.Old != "" && len(was)+strings.Count(was, given.Old)*len(given.New) > 2*maxFile:
		return nil
	case given.Old != "":
		now = strings.ReplaceAll(was, given.Old, given.New)
	case ours && one.Kind != "create" && deletes:
		now, one.Kind = "", "delete"
	default:
		return nil
	}
	one.Diff = difference(s.redacted(was), s.redacted(now)) // in this order: a line that is cut could leave a piece of a secret
	return []Change{one}
}

// redacted returns a text without secrets.
func (s *Approvals) redacted(text string) string {
	one := struct {
		Text string `json:"text"`
	}{text}
	doc, _ := strictjson.Marshal(one) // it has only a text
	one.Text = ""
	_ = strictjson.Unmarshal(s.o.Redact(doc), &one)
	return one.Text
}

// arguments are those that tell of a change.
type arguments struct {
	Path     string  `json:"path"`
	Content  *string `json:"content"`
	Append   bool    `json:"append"`
	Encoding string  `json:"encoding"`
	Old      string  `json:"old"`
	New      string  `json:"new"`
}

// difference returns the lines around and between the first and the last that differ.
func difference(was, now string) string {
	from, runs := textdiff.Lines(was, now, diffAround)
	if len(runs) == 0 {
		return ""
	}
	left := 0
	lines := []string{fmt.Sprintf("@@ line %d @@", from+1)}
	for _, r := range runs {
		for _, line := range r.Pieces {
			if len(lines) > maxDiff {
				left++
				continue
			}
			if line = strings.TrimSuffix(line, "\n"); len(line) > maxLine {
				head, tail := line[:maxLine/2], line[len(line)-maxLine/2:] // neither end can hide
				line = strings.ToValidUTF8(fmt.Sprintf("%s [%d bytes] %s", head, len(line)-maxLine, tail), "")
			}
			lines = append(lines, string(r.Sign)+line)
		}
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("... %d more lines", left))
	}
	return strings.Join(lines, "\n")
}
