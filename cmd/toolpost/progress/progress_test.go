package progress_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/cmd/toolpost/progress"
	"toolpost/internal/kit"
)

// frames are the successive contents of a terminal.
func frames(text string) []string { return strings.Split(text, "\r\x1b[2K") }

func TestOnATerminalALineMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out kit.Buffer
		l := progress.New(progress.Out{Writer: &out, Terminal: true, Width: func() int { return 80 }}, "torch")
		time.Sleep(250 * time.Millisecond)
		kit.Equal(t, out.String(), "", "something quick shows")
		time.Sleep(100 * time.Millisecond)
		for i := range 11 {
			l.Set(float64(i*20), 1000, fmt.Sprintf("step %d", i))
			time.Sleep(time.Second)
		}
		if err := l.Above(func() error { fmt.Fprintln(&out, "a line"); return errors.New("kept") }); err == nil || err.Error() != "kept" {
			t.Error(err)
		}
		time.Sleep(150 * time.Millisecond)
		kit.Equal(t, l.End(), 11*time.Second+500*time.Millisecond)
		got := frames(out.String())
		kit.Equal(t, got[0], "⠙ torch 0.3s", "the first frame")
		want := "torch 11.3s ████░░░░░░░░░░░░░░░░ 20% 200/1000 20/s 40s left step 10"
		kit.Contains(t, got[len(got)-4], want, "the last frame above the line")
		if got[len(got)-1] != "" || !strings.HasPrefix(got[len(got)-3], "a line\n") {
			t.Errorf("at the end the line is not taken away: %q", got[len(got)-3:])
		}
	})
}

func TestALineFitsIntoATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out kit.Buffer
		l := progress.New(progress.Out{Writer: &out, Terminal: true, Width: func() int { return 30 }}, "torch")
		l.Set(1, 4, strings.Repeat("ä", 100))
		time.Sleep(350 * time.Millisecond)
		l.End()
		if frame := []rune(frames(out.String())[0]); len(frame) != 29 || frame[28] != '…' || strings.ContainsRune(string(frame), '█') {
			t.Errorf("%d characters: %q", len(frame), string(frame))
		}
	})
}

func TestWideCharactersTakeTwoColumns(t *testing.T) {
	for text, want := range map[string]string{
		"abcdef": "abcdef", "abcdefg": "abcde…", "漢字漢": "漢字漢", "漢字漢字": "漢字…", "a漢字漢": "a漢字…", "e\u0301\u0301bcdef": "e\u0301\u0301bcdef", "": "",
	} {
		kit.Equal(t, progress.Fit(text, 6), want, "%q became", text)
	}
}

func TestProgressIsPlainLinesWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out kit.Buffer
		l := progress.New(progress.Out{Writer: &out}, "indexing")
		time.Sleep(500 * time.Millisecond)
		for i := range 100 {
			l.Set(float64(i), 100, "")
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour) // without a report
		l.End()
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 6 || lines[0] != "indexing: 1% 1m39s left" || lines[2] != "indexing: 17% 1m23s left" || strings.ContainsAny(out.String(), "\x1b\r█") {
			t.Errorf("%q", lines)
		}
	})
}

func TestRateAndRemainingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, steps := range map[string][][3]float64{ // seconds, done, total
			"x: 50%":                        {{0, 0.5, 1}},
			"x: 50% 2s left":                {{0, 0, 1}, {1.99, 0.5, 1}},
			"x: 40% 400/1000 101/s 6s left": {{0, 200, 1000}, {1.99, 400, 1000}},
			"x: 12 6/s":                     {{0, 0, 0}, {1.99, 12, 0}},
			"x: 25% 1/4":                    {{0, 3, 4}, {1, 1, 4}}, // it started over
			"x: 100% 4/4 2/s":               {{0, 0, 4}, {1.99, 4, 4}},
		} {
			var out kit.Buffer
			l := progress.New(progress.Out{Writer: &out}, "x")
			begun := time.Now()
			for _, s := range steps {
				time.Sleep(time.Duration(s[0]*float64(time.Second)) - time.Since(begun))
				l.Set(s[1], s[2], "")
			}
			time.Sleep(2*time.Second + time.Millisecond - time.Since(begun))
			l.End()
			kit.Equal(t, strings.TrimSuffix(out.String(), "\n"), want)
		}
	})
}
