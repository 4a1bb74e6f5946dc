package main

import (
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"toolpost/cmd/toolpost/progress"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// A screen is an output stream that knows whether a person looks at it.
type screen struct {
	*os.File
	terminal bool
	colour   bool
}

func newScreen(f *os.File) *screen {
	s := &screen{File: f, terminal: progress.IsTerminal(f)}
	s.colour = s.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// width returns how many characters fit on a line, or 0 if there is no limit.
func (s *screen) width() int {
	if !s.terminal {
		return 0
	}
	_, width := progress.Size(s.File)
	return width
}

func (s *screen) bold(t string) string  { return s.paint("1", t) }
func (s *screen) dim(t string) string   { return s.paint("2", t) }
func (s *screen) red(t string) string   { return s.paint("31", t) }
func (s *screen) green(t string) string { return s.paint("32", t) }
func (s *screen) amber(t string) string { return s.paint("33", t) }

func (s *screen) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// cleanLines makes foreign text safe to show: control characters, which could move the cursor or worse, and those that
// change the writing direction are shown as escapes. Newlines and tabs stay.
func cleanLines(s string) string {
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

// clean shows foreign text on one line, with one blank between words, and invisible characters as escapes. Use
// tool.VisibleName if blanks matter.
func clean(s string) string { return tool.VisibleName(strings.Join(strings.Fields(s), " ")) }

var plainArgument = regex.Lazy(`^[A-Za-z0-9_./@:=,+%-]+$`)

// commandLine shows a program and its arguments so that one argument cannot be taken for two.
func commandLine(argv []string) string {
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

// shellWord quotes a foreign name in a command for people to paste into a shell, so that the shell reads it as that name
// only.
func shellWord(s string) string {
	if s = clean(s); plainWord().MatchString(s) {
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

// short cuts text to n characters, or not at all if n <= 0.
func short(s string, n int) string {
	r := []rune(s)
	if n <= 0 || len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// lines lays out rows in columns, each cell on one line. On a terminal they fit its width.
func (s *screen) lines(head []string, rows [][]string) (lines []string) {
	rows = append([][]string{head}, rows...)
	for _, row := range rows {
		for i := range row {
			row[i] = clean(row[i])
		}
	}
	widths := fit(rows, s.width())
	for n, row := range rows {
		line := s.row(widths, row)
		if n == 0 {
			line = s.bold(line)
		}
		lines = append(lines, line)
	}
	return lines
}

// twice matches a time as when writes it.
var twice = regex.Lazy(`^\S+Z \((.+)\)$`)

// fit returns the widths of the columns of a table, whose first row is its head. If it is wider than the given width, and
// that is not 0, it shortens cells: first times, which are written twice, and then the widest columns. Ids stay as they are,
// because people copy them, and so do plain times.
func fit(rows [][]string, width int) []int {
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
			row[i] = short(row[i], widths[i])
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

// row lays out one row: each cell but the last is at least as wide as its column. A terminal shows what fits.
func (s *screen) row(widths []int, row []string) string {
	var b strings.Builder
	for i, cell := range row[:len(row)-1] {
		if cell = clean(cell); cell != "" || widths[i] > 0 {
			fmt.Fprintf(&b, "%-*s  ", widths[i], cell)
		}
	}
	return short(strings.TrimRight(b.String()+clean(row[len(row)-1]), " "), s.width())
}

// painted colours a line by its level.
func (s *screen) painted(level, line string) string {
	switch level {
	case "debug":
		return s.dim(line)
	case "warn":
		return s.amber(line)
	case "error":
		return s.red(line)
	}
	return line
}

// facts prints names and values, one pair per line, and omits empty values.
func (s *screen) facts(margin string, width int, known [][2]string) {
	for _, f := range known {
		if f[1] != "" {
			fmt.Fprintf(s, "%s%-*s %s\n", margin, width, f[0], f[1])
		}
	}
}

// diff prints lines that begin with their sign, + or - if they change.
func (s *screen) diff(margin string, lines []string) {
	for _, line := range lines {
		switch line = cleanLines(strings.TrimSuffix(line, "\n")); {
		case strings.HasPrefix(line, "+"):
			line = s.green(line)
		case strings.HasPrefix(line, "-"):
			line = s.red(line)
		}
		fmt.Fprintln(s, margin+line)
	}
}

// height returns how many lines a terminal has.
func (s *screen) height() int {
	lines, _ := progress.Size(s.File)
	return lines
}

// cut shortens a line of ours to the width of the terminal. Colour codes take no room, and are reset at the cut.
func (s *screen) cut(line string) string {
	left, painting := s.width(), false
	if left <= 0 {
		return line
	}
	for i, r := range line {
		switch {
		case painting:
			painting = r != 'm'
		case r == '\x1b':
			painting = true
		case left < progress.Columns(r) && s.colour:
			return line[:i] + "\x1b[0m"
		case left < progress.Columns(r):
			return line[:i]
		default:
			left -= progress.Columns(r)
		}
	}
	return line
}

// when writes a time for programs and, beside it, for people; the zero time is empty.
func when(t, now time.Time) string {
	text := t.UTC().Format(time.RFC3339)
	switch d := t.Sub(now); {
	case t.IsZero():
		return ""
	case d > 0:
		return text + " (in " + roughly(d) + ")"
	default:
		return text + " (" + roughly(-d) + " ago)"
	}
}

// roughly writes a duration in its largest unit.
func roughly(d time.Duration) string {
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

// tidy writes a duration with three digits.
func tidy(d time.Duration) string {
	for unit := time.Microsecond; unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}
