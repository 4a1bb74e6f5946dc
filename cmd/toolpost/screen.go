package main

import (
	"fmt"
	"os"
	"strings"

	"toolpost/cmd/toolpost/format"
	"toolpost/cmd/toolpost/progress"
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

// The functions of package format that nearly every line of output needs.

func clean(s string) string           { return format.Clean(s) }
func cleanLines(s string) string      { return format.CleanLines(s) }
func short(s string, most int) string { return format.Short(s, most) }
