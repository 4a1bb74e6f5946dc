package process

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/sys/unix"
)

// An Exit tells how a child ended.
type Exit struct {
	Code   int            // -1 when a signal ended it
	Signal syscall.Signal // 0 when it exited by itself
}

// String says it in words: "exit status 3", "killed by SIGSEGV (segmentation fault)".
func (e Exit) String() string {
	if e.Signal == 0 {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	if name := unix.SignalName(e.Signal); name != "" {
		return fmt.Sprintf("killed by %s (%v)", name, e.Signal)
	}
	return fmt.Sprintf("killed by signal %d", int(e.Signal))
}

var missingLibrary = regexp.MustCompile(`error while loading shared libraries: ([^:\s]+): cannot open shared object`)

// Describe says how the child ended and, as far as it can be told, why: for error messages.
func (c *Child) Describe(e Exit) string {
	select {
	case <-c.reaped:
		if len(c.reached) == 0 {
			break
		}
		which, _, _ := strings.Cut(c.reached[0], " ") // named as the walls of a config name it
		return withTail(fmt.Sprintf("%s: it reached its limit of %s; walls.%s of its source raises it", e,
			strings.Join(c.reached, " and of "), which), c.Tail())
	default: // its limits are known once it has ended
	}
	return describe(e, c.Tail(), c.killed.Load())
}

func describe(e Exit, tail string, killed bool) string {
	said := e.String()
	switch library := missingLibrary.FindStringSubmatch(tail); {
	case e.Code == 127 && library != nil:
		return said + ": the shared library " + library[1] + " is missing: install the package that brings it"
	case e.Signal == syscall.SIGKILL && killed:
		said += " by toolpost"
	case e.Signal == syscall.SIGKILL:
		said += ", but not by toolpost: the machine may have run out of memory"
	}
	return withTail(said, tail)
}

func withTail(said, tail string) string {
	if last := lastLines(tail); last != "" {
		said += "; the last it wrote to stderr: " + last
	}
	return said
}

// lastLines returns at most three lines and 500 bytes of a text, as one line without control characters.
func lastLines(text string) string {
	const lines, size = 3, 500
	var last []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(strings.Map(printable, line)); line != "" {
			last = append(last, line)
		}
	}
	joined := strings.Join(last[max(0, len(last)-lines):], " | ")
	if len(joined) > size {
		joined = "..." + strings.ToValidUTF8(joined[len(joined)-size:], "")
	}
	return joined
}

func printable(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case unicode.IsPrint(r):
		return r
	}
	return -1
}
