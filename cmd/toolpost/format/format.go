// Package format writes text, times and tables for people: foreign text cannot harm their terminal or pass for ours.
package format

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"toolpost/tool"
	"toolpost/wire/regex"
)

// CleanLines makes foreign text safe to show: control characters, which could move the cursor or worse, and those that
// change the writing direction are shown as escapes. Newlines and tabs stay.
func CleanLines(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if !strings.ContainsFunc(s, unsafeRune) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unsafeRune(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Clean shows foreign text on one line, with one blank between words, and invisible characters as escapes. Use
// tool.VisibleName if blanks matter.
func Clean(s string) string { return tool.VisibleName(strings.Join(strings.Fields(s), " ")) }

var plainArgument = regex.Lazy(`^[A-Za-z0-9_./@:=,+%-]+$`)

// CommandLine shows a program and its arguments so that one argument cannot be taken for two.
func CommandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		if words[i] = tool.VisibleName(word); !plainArgument().MatchString(words[i]) {
			words[i] = quoted(words[i])
		}
	}
	return strings.Join(words, " ")
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var plainWord = regex.Lazy(`^[A-Za-z0-9_./@:][A-Za-z0-9_./@:-]*$`)

// ShellWord quotes a foreign name in a command for people to paste into a shell, so that the shell reads it as that name
// only.
func ShellWord(s string) string {
	if s = Clean(s); plainWord().MatchString(s) {
		return s
	}
	return quoted(s)
}

func unsafeRune(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r == 0x061c, r == 0x200e, r == 0x200f, 0x2028 <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069:
		return true
	}
	return unicode.IsControl(r)
}

// Short cuts text to n characters, or not at all if n <= 0.
func Short(s string, n int) string {
	r := []rune(s)
	if n <= 0 || len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// Indented indents the lines of a message, so that a tool's text cannot pass for ours.
func Indented(s string) string {
	return strings.ReplaceAll(CleanLines(strings.TrimRight(s, "\n")), "\n", "\n  ")
}

// Wrapped breaks lines between words, or not at all if width <= 0.
func Wrapped(text string, width int) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		at := 0
		for word := range strings.FieldsSeq(line) {
			n := utf8.RuneCountInString(word)
			switch {
			case at > 0 && width > 0 && at+1+n > width:
				b.WriteByte('\n')
				at = 0
			case at > 0:
				b.WriteByte(' ')
				at++
			}
			b.WriteString(word)
			at += n
		}
	}
	return b.String()
}

// Bytes writes a number of bytes for people.
func Bytes(n int64) string {
	if n < 10_000 {
		return fmt.Sprintf("%d bytes", n)
	}
	unit, size := "kB", int64(1000)
	for _, next := range []string{"MB", "GB", "TB"} {
		if n < 10_000*size {
			break
		}
		unit, size = next, size*1000
	}
	return fmt.Sprintf("%d %s", (n+size/2)/size, unit)
}

// When writes a time for programs and, beside it, for people; the zero time is empty.
func When(t, now time.Time) string {
	text := t.UTC().Format(time.RFC3339)
	switch d := t.Sub(now); {
	case t.IsZero():
		return ""
	case d > 0:
		return text + " (in " + Roughly(d) + ")"
	default:
		return text + " (" + Roughly(-d) + " ago)"
	}
}

// Roughly writes a duration in its largest unit.
func Roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// Tidy writes a duration with three digits.
func Tidy(d time.Duration) string {
	for unit := time.Microsecond; unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}

// twice matches a time as When writes it.
var twice = regex.Lazy(`^\S+Z \((.+)\)$`)

// Fit returns the widths of the columns of a table, whose first row is its head. If it is wider than the given width, and
// that is not 0, it shortens cells: first times, which are written twice, and then the widest columns. Ids stay as they are,
// because people copy them, and so do plain times.
func Fit(rows [][]string, width int) []int {
	widths, total := measure(rows)
	if width <= 0 || total <= width {
		return widths
	}
	for _, row := range rows {
		for i := range row {
			row[i] = twice().ReplaceAllString(row[i], "$1")
		}
	}
	for widths, total = measure(rows); total > width; total-- {
		widest := -1
		for i, head := range rows[0] {
			whole := head == "ID" || head == "CALL" || head == "PLAN" || head == "TIME"
			if !whole && widths[i] > max(len(head), 8) && (widest < 0 || widths[i] >= widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	for _, row := range rows {
		for i := range row {
			row[i] = Short(row[i], widths[i])
		}
	}
	return widths
}

// measure returns the widths of columns, and of all of them with the space between them.
func measure(rows [][]string) (widths []int, total int) {
	widths = make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, w := range widths {
		total += w + 2
	}
	return widths, total - 2
}

// Leaves lists the leaves of a patch, for people, by their paths.
func Leaves(patch map[string]any) map[string]string {
	found := map[string]string{}
	flatten("", patch, found)
	return found
}

func flatten(under string, patch map[string]any, into map[string]string) {
	for name, v := range patch {
		path := strings.TrimPrefix(under+"."+name, ".")
		switch v := v.(type) {
		case map[string]any:
			flatten(path, v, into)
		case nil:
			into[path] = "gone"
		case string:
			into[path] = v
		case []any:
			into[path] = "a list of " + strconv.Itoa(len(v))
		case json.Number:
			into[path] = v.String()
		default:
			into[path] = fmt.Sprint(v)
		}
	}
}
