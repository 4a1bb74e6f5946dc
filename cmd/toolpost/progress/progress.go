// Package progress shows the progress of long operations: on a terminal as a moving line with a bar, the rate and the time
// left; elsewhere as a plain line now and then. Quick operations show nothing.
package progress

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"toolpost/kernel"
)

// The timing of the line. On a terminal it appears after a moment. Elsewhere a line appears after plainFirst, and each
// further one after twice the elapsed time, up to plainMost, so that a log of half an hour stays readable.
const (
	liveDelay    = 300 * time.Millisecond
	liveInterval = 100 * time.Millisecond
	plainFirst   = 2 * time.Second
	plainMost    = 30 * time.Second
	spinner      = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
)

// An Out is the stream on which progress is shown.
type Out struct {
	io.Writer
	Terminal bool
	Width    func() int          // of the terminal, in characters; nil means 80
	Dim      func(string) string // dims less important text; nil leaves it as it is
}

// IsTerminal reports whether a file is a terminal, which a person may be looking at.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), kernel.TermGet)
	return err == nil
}

// Size returns how many lines a terminal has, and how many characters fit on one, or 24 and 80 if they are unknown.
func Size(f *os.File) (lines, width int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Row == 0 || size.Col == 0 {
		return 24, 80
	}
	return int(size.Row), int(size.Col)
}

// To shows progress on a file.
func To(f *os.File) Out {
	return Out{Writer: f, Terminal: IsTerminal(f), Width: func() int { _, width := Size(f); return width }}
}

// A Line shows the progress of one operation. Several goroutines may use it.
type Line struct {
	out   Out
	name  string
	start time.Time

	mu    sync.Mutex
	at    state
	pace  pace
	frame int
	shown bool // the moving line is on the terminal
	news  bool // Set was called since the last plain line

	stop chan struct{}
	done sync.WaitGroup
}

// A state is the progress so far.
type state struct {
	done, total float64
	about       string
}

// New starts to show progress, until End. The name, like all texts here, must be safe to show.
func New(out Out, name string) *Line {
	if out.Width == nil {
		out.Width = func() int { return 80 }
	}
	if out.Dim == nil {
		out.Dim = func(text string) string { return text }
	}
	l := &Line{out: out, name: name, start: time.Now(), stop: make(chan struct{})}
	l.done.Go(l.move)
	return l
}

// move redraws the line periodically.
func (l *Line) move() {
	wait, show := plainFirst, l.plain
	if l.out.Terminal {
		wait, show = liveDelay, l.draw
	}
	for timer := time.NewTimer(wait); ; timer.Reset(wait) {
		select {
		case <-l.stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		show()
		if wait = liveInterval; !l.out.Terminal {
			wait = min(2*time.Since(l.start), plainMost)
		}
	}
}

// Set reports the progress, the total (0 if unknown), and what is being done now.
func (l *Line) Set(done, total float64, about string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.news = state{done, total, about}, true
	l.pace.note(done, time.Now())
}

// Above calls write, which writes to the same stream, above the line and while nothing else writes.
func (l *Line) Above(write func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	return write()
}

// End removes the line, and returns how long the operation took.
func (l *Line) End() time.Duration {
	close(l.stop)
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	return time.Since(l.start)
}

func (l *Line) erase() {
	if l.shown {
		fmt.Fprint(l.out, "\r\x1b[2K")
		l.shown = false
	}
}

// draw shows the line on a terminal.
func (l *Line) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	frames := []rune(spinner)
	l.frame = (l.frame + 1) % len(frames)
	width := l.out.Width()
	text := join(fmt.Sprintf("%s %.1fs", l.name, time.Since(l.start).Seconds()), l.bar(width), l.words())
	if most := width - 3; most > 0 {
		text = Fit(text, most)
	}
	fmt.Fprintf(l.out, "%c %s", frames[l.frame], l.out.Dim(text))
	l.shown = true
}

// Fit shortens a text to a number of columns.
func Fit(text string, columns int) string {
	used, end := 0, 0 // end is where the text would be cut, with a column for the sign of that
	for i, r := range text {
		if used += Columns(r); used > columns {
			return text[:end] + "…"
		}
		if used < columns {
			end = i + utf8.RuneLen(r)
		}
	}
	return text
}

// Columns returns how many columns of a terminal a character takes: none if it joins the one before it, two if it is one of
// the wide ones of East Asia or a picture.
func Columns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// plain shows a line on other streams, if there is news.
func (l *Line) plain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.news {
		l.news = false
		fmt.Fprintln(l.out, join(l.name+":", l.words()))
	}
}

// The bar is for terminals that have room for it.
const (
	barLength = 20
	barNeeds  = 60
)

func (l *Line) bar(width int) string {
	if l.at.total <= 0 || width < barNeeds {
		return ""
	}
	return Bar(l.at.done/l.at.total, barLength)
}

// Bar draws a share as a bar of a length.
func Bar(share float64, length int) string {
	full := int(math.Round(min(max(share, 0), 1) * float64(length)))
	return strings.Repeat("█", full) + strings.Repeat("░", length-full)
}

// words describe the progress: the share, the number if it counts something, the rate, and the time left.
func (l *Line) words() string {
	at, rate := l.at, l.pace.rate(time.Now())
	var share, count, left string
	if at.total > 0 {
		share = fmt.Sprintf("%.0f%%", 100*at.done/at.total)
		if togo := at.total - at.done; rate > 0 && togo > 0 {
			left = remaining(togo/rate) + " left"
		}
	}
	switch { // from 0 to 1 and from 0 to 100, the share is enough
	case at.total > 1 && at.total != 100:
		count = number(at.done) + "/" + number(at.total)
	case at.total <= 0 && at.done > 0:
		count = number(at.done)
	}
	speed := ""
	if rate > 0 && count != "" {
		speed = number(rate) + "/s"
	}
	return join(share, count, speed, left, at.about)
}

func join(parts ...string) string {
	var all []string
	for _, p := range parts {
		if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, " ")
}

// number writes a number with few digits.
func number(n float64) string {
	digits := 100.0
	switch {
	case n >= 100:
		digits = 1
	case n >= 1:
		digits = 10
	}
	return strconv.FormatFloat(math.Round(n*digits)/digits, 'f', -1, 64)
}

// remaining writes a duration as precisely as a guess deserves.
func remaining(seconds float64) string {
	switch d := time.Duration(min(seconds, 1e9) * float64(time.Second)); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(1, int(math.Round(d.Seconds()))))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// A pace measures a rate over a recent window, so that it follows a change soon, and does not jump with every step.
type pace struct {
	marks []mark // in order; the first is from before the window, if there is one
}

type mark struct {
	at   time.Time
	done float64
}

// window is how far back a pace looks.
const (
	window    = 15 * time.Second
	markEvery = 250 * time.Millisecond
)

func (p *pace) note(done float64, now time.Time) {
	n := len(p.marks)
	switch {
	case n > 0 && done < p.marks[n-1].done: // it started over
		p.marks = p.marks[:0]
	case n > 1 && now.Sub(p.marks[n-2].at) < markEvery: // the last mark is from the same moment
		p.marks = p.marks[:n-1]
	}
	p.marks = append(p.marks, mark{now, done})
	for len(p.marks) > 2 && now.Sub(p.marks[1].at) >= window {
		p.marks = p.marks[1:]
	}
}

// rate returns how much is done in a second, or 0 if that is unknown yet. Time without a report counts too.
func (p *pace) rate(now time.Time) float64 {
	if len(p.marks) < 2 {
		return 0
	}
	first, last := p.marks[0], p.marks[len(p.marks)-1]
	over := last.at.Sub(first.at)
	if quiet := now.Sub(last.at); quiet > over {
		over = quiet
	}
	if over <= 0 {
		return 0
	}
	return (last.done - first.done) / over.Seconds()
}
