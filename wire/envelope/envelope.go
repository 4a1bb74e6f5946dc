// Package envelope carries what belongs to a call beside its tool and its arguments: its id, session, key, lease, run
// and trace, the answers to a question, whether it is a dry run, and how long it may take.
//
// The headers are the same in every protocol that has them, so that a caller learns them once for all doors; a program
// that is started for its calls finds the same values in its environment. One table defines how each is named, checked,
// read and written. A codec for each door would be as easy to write, and every one would lack another field: a door
// that does not know Toolpost-Dry-Run runs the call. For the same reason an unknown header that looks like one of ours
// is refused, not ignored.
package envelope

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/nearest"
)

// prefix is the common prefix of our own headers, which may be sent in any case.
const prefix = "Toolpost-"

// Read reads the headers of a request into its call. http.Header and nats.Header are the same map, but only one of them
// has its names in canonical case, so case does not matter here. The other headers of ours that a door understands are
// named in also; it reads them itself, with Single.
//
// Fields without a header keep their value in the call. After an error the call must not be made.
func Read(h map[string][]string, c *tool.Call, also ...string) (timeout time.Duration, err error) {
	if len(h) == 0 {
		return 0, nil
	}
	found, unknown := sift(h, also)
	if unknown != "" {
		return 0, notKnown(unknown, also)
	}
	in := contents{Call: c}
	for i, f := range &fields {
		text, times := found[i].text, found[i].times
		if times > 1 && !f.lenient {
			return 0, twice(f.header, times)
		}
		if text == "" || times > 1 {
			continue
		}
		if err := f.read(&in, text); err != nil {
			return 0, BadHeader(f.header, "%w", err)
		}
	}
	return in.timeout, nil
}

// sift looks at each header once and returns the values of each field, and an unknown header that looks like one of
// ours. Looking each field up would be shorter; but a case-insensitive lookup is a walk through the map.
func sift(h map[string][]string, also []string) (found [len(fields)]struct {
	text  string
	times int
}, unknown string,
) {
	for name, values := range h {
		i := fieldOf(name)
		switch {
		case i >= 0 && len(values) > 0:
			found[i].text = values[0]
			found[i].times += len(values)
		case i < 0 && ours(name) && !slices.ContainsFunc(also, func(a string) bool { return same(a, name) }):
			unknown = max(unknown, name) // always the same one of several, since a map has no order
		}
	}
	return found, unknown
}

// fieldOf returns the index of a header's field in the table, or -1 if it has none.
func fieldOf(header string) int {
	for i := range fields {
		if same(fields[i].header, header) {
			return i
		}
	}
	return -1
}

// find returns a value of a header, whose name may be in any case, and how many there are.
func find(h map[string][]string, name string) (text string, times int) {
	for sent, values := range h {
		if same(sent, name) && len(values) > 0 {
			text = values[0]
			times += len(values)
		}
	}
	return text, times
}

// Write is the inverse of Read. It fails if a value would not be read back as it was written; then h must not be sent.
func Write(h map[string][]string, c *tool.Call, timeout time.Duration) error {
	out, scratch := contents{c, timeout}, contents{Call: new(tool.Call)}
	for _, f := range &fields {
		text, err := f.write(&out)
		if err == nil && text != "" {
			h[f.header] = []string{text}
			err = f.read(&scratch, text)
		}
		if err != nil {
			return BadHeader(f.header, "%w", err)
		}
	}
	return nil
}

// Headers lists the headers of a call.
func Headers() []string {
	var names []string
	for _, f := range fields {
		names = append(names, f.header)
	}
	return names
}

// ID reads only the id of a call, for a door that needs it before it can read the rest; it returns "" if there is none.
func ID(h map[string][]string) (string, error) {
	id, err := Single(h, HeaderCall)
	if err == nil && id != "" {
		if err = readID(&contents{Call: new(tool.Call)}, id); err != nil {
			err = BadHeader(HeaderCall, "%w", err)
		}
	}
	return id, err
}

// Single returns the value of a header that occurs at most once; its name may be in any case. A repeated header is
// refused: two readers might each take another one.
func Single(h map[string][]string, name string) (string, error) {
	text, times := find(h, name)
	if times > 1 {
		return "", twice(name, times)
	}
	if err := CheckText(text); err != nil {
		return "", BadHeader(name, "%w", err)
	}
	return text, nil
}

// Within limits a call to its caller's timeout, which can only shorten the limits of others; 0 means no limit of its
// own.
func Within(ctx context.Context, timeout time.Duration, name string) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout,
		tool.Errorf(tool.CodeTimeout, "%s ran longer than the %v that its caller gave it", name, timeout))
}

// Left returns the time that a call still has, for Write; 0 means no deadline.
func Left(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// BadHeader returns the error of an invalid header. The format gives the reason, and what to do.
func BadHeader(name, format string, args ...any) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "the header %s "+format, append([]any{name}, args...)...)
}

func twice(name string, times int) *tool.Error {
	return BadHeader(name, "is there %d times: send it once", times)
}

// notKnown refuses a header that looks like one of ours. The suggestions include the names of the variables, since a
// user who knows TOOLPOST_KEY will try Toolpost-Key.
func notKnown(name string, also []string) *tool.Error {
	meant := map[string]string{}
	for _, f := range fields {
		meant[bare(f.variable)], meant[bare(f.header)] = f.header, f.header
	}
	for _, header := range also {
		meant[bare(header)] = header
	}
	delete(meant, "") // of fields without a variable
	words := slices.Sorted(maps.Keys(meant))
	hint := "known are " + strings.Join(slices.Concat(Headers(), also), ", ")
	if near := nearest.Of(bare(name), words); len(near) > 0 {
		hint = "did you mean " + meant[near[0]] + "?"
	}
	return tool.Errorf(tool.CodeInvalidInput, "the header %.100q is not known; %s", name, hint)
}

// bare returns the name of a header or a variable without our prefix.
func bare(name string) string {
	if ours(strings.ReplaceAll(name, "_", "-")) {
		return name[len(prefix):]
	}
	return name
}

func ours(header string) bool {
	return len(header) >= len(prefix) && same(header[:len(prefix)], prefix)
}

// same compares names of headers. Non-ASCII letters that fold to an ASCII one have another length.
func same(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }
