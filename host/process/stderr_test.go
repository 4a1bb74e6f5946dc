package process

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool/tooltest"
)

func TestStderrComesInLines(t *testing.T) {
	long := strings.Repeat("x", pieceSize)
	for _, test := range []struct {
		name, written string
		limit         int
		want          []string
		redraws       bool
	}{
		{"nothing", "", 0, nil, false},
		{"lines", "a\nb\n", 0, []string{"a", "b"}, false},
		{"the last without a newline", "a\nb", 0, []string{"a", "b"}, false},
		{"empty lines", "\n\n", 0, []string{"", ""}, false},
		{"carriage returns", "a\r\nb\r\n", 0, []string{"a", "b"}, false},
		{"invalid UTF-8", "a\xff\xfeb\n", 0, []string{"a\uFFFDb"}, false},
		{"a line as long as a piece", long + "\nb\n", 0, []string{long, "b"}, false},
		{"a longer line", long + "yz\nb\n", 0, []string{long, "yz", "b"}, false},
		{"a long line without an end", long + long + "y", 0, []string{long, long, "y"}, false},
		{"no character is cut in two", long[1:] + "é\n", 0, []string{long[1:], "é"}, false},
		{"up to the limit", "123\n456\n789\n", 8, []string{"123", "456"}, false},
		{"a line beyond the limit", "123\n4567\n8\n", 8, []string{"123"}, false},
		{"progress that is drawn again", "\r10%\r20%\r\n30%\n\n\rdone", 0, []string{"10%", "20%", "30%", "done"}, true},
		{"progress that is not", "\r10%\r20%\n", 0, []string{"\r10%\r20%"}, false},
	} {
		for _, chunk := range []int{1, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s, %d bytes at a time", test.name, chunk), func(t *testing.T) {
				r, w, err := os.Pipe()
				kit.OK(t, err)
				var got []string
				s := newStderr(r, Command{
					Stderr: func(line []byte) { got = append(got, string(line)) }, StderrLimit: test.limit, Redraws: test.redraws,
				})
				for rest := []byte(test.written); len(rest) > 0; rest = rest[min(chunk, len(rest)):] {
					w.Write(rest[:min(chunk, len(rest))])
				}
				w.Close()
				s.stop(hang)
				kit.Equal(t, cmp.Diff(test.want, got), "")
			})
		}
	}
}

func TestTheTailIsTheEndOfStderr(t *testing.T) {
	for _, test := range []struct{ name, written, want string }{
		{"nothing", "", ""},
		{"little", "oops\n", "oops\n"},
		{"much", strings.Repeat("é", tailSize) + "end", strings.Repeat("é", tailSize)[tailSize+4:] + "end"},
		{"invalid", "a\xffb", "a\uFFFDb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s stderr
			_, _ = s.Write([]byte(test.written))
			if got := s.tail(); got != test.want {
				t.Errorf("%d bytes that end in %.20q", len(got), got[max(0, len(got)-20):])
			}
		})
	}
}

func FuzzTheTailIsSmallAndValid(f *testing.F) {
	f.Add([]byte("a\xff\xe2\x82"), 3, 1000)
	f.Add([]byte("€"), 2, 5000)
	f.Fuzz(func(t *testing.T, data []byte, chunk, times int) {
		var s stderr
		for range min(max(times, 0), 3*tailSize/max(1, len(data))) {
			for rest := data; len(rest) > 0; {
				n := min(max(chunk, 1), len(rest))
				_, _ = s.Write(rest[:n])
				rest = rest[n:]
			}
		}
		if tail := s.tail(); len(tail) > tailSize || !utf8.ValidString(tail) {
			t.Errorf("%d bytes, %q", len(tail), tail)
		}
	})
}

func TestAFloodOnStderrTakesNoMemory(t *testing.T) {
	tooltest.NoLeaks(t)
	cmd := command("flood")
	handed := 0
	cmd.Stderr = func(line []byte) { handed += len(line) + 1 }
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := start(t, cmd)
	kit.Equal(t, p.Wait(), Exit{}, "it ended with")
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("64 MiB took %d bytes", used)
	}
	kit.Equal(t, handed, stderrLimit, "bytes were handed on")
	if tail := p.Tail(); len(tail) != tailSize {
		t.Errorf("the tail has %d bytes", len(tail))
	}
}

func TestACallbackThatHangsDoesNotHangTheEnd(t *testing.T) {
	tooltest.NoLeaks(t)
	release := make(chan struct{})
	calls := make(chan string, 10)
	cmd := command("complain", `first\nsecond\n`)
	cmd.Stderr = func(line []byte) { calls <- string(line); <-release }
	p := start(t, cmd)
	begin := time.Now()
	p.Wait()
	if time.Since(begin) > hang {
		t.Error("the end took too long")
	}
	close(release)
	<-p.stderr.done
	if close(calls); len(calls) != 1 {
		t.Errorf("there were %d calls, some after the end", len(calls))
	}
}

func TestEveryLineIsHandedOnBeforeTheEnd(t *testing.T) {
	tooltest.NoLeaks(t)
	cmd := command("complain", `one\ntwo\nthree`)
	var got []string
	cmd.Stderr = func(line []byte) { got = append(got, string(line)) }
	p := start(t, cmd)
	kit.Equal(t, p.Describe(p.Wait()), "exit status 1; the last it wrote to stderr: one | two | three")
	kit.Equal(t, cmp.Diff([]string{"one", "two", "three"}, got), "")
}
