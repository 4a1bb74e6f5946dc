package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestAsErrorMapsEveryErrorToAClass(t *testing.T) {
	refused := tool.Errorf(tool.CodeAccessDenied, "notes.txt is not allowed")
	expired, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	for name, c := range map[string]struct {
		err  error
		code tool.Code
	}{
		"nil":                        {nil, ""},
		"an Error":                   {refused, tool.CodeAccessDenied},
		"a wrapped Error":            {fmt.Errorf("reading: %w", refused), tool.CodeAccessDenied},
		"an Error among others":      {errors.Join(errors.New("x"), refused), tool.CodeAccessDenied},
		"a deadline":                 {context.DeadlineExceeded, tool.CodeTimeout},
		"a wrapped deadline":         {fmt.Errorf("waiting: %w", expired.Err()), tool.CodeTimeout},
		"an I/O deadline":            {os.ErrDeadlineExceeded, tool.CodeInternal},
		"a cancel":                   {context.Canceled, tool.CodeCancelled},
		"a wrapped cancel":           {fmt.Errorf("waiting: %w", context.Canceled), tool.CodeCancelled},
		"an Error about a deadline":  {tool.Errorf(tool.CodeCrash, "died: %w", context.DeadlineExceeded), tool.CodeCrash},
		"anything else":              {fs.ErrNotExist, tool.CodeInternal},
		"an Error with an odd class": {&tool.Error{Code: "odd"}, "odd"},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Equal(t, tool.CodeOf(c.err), c.code)
			mapped := tool.AsError(c.err)
			kit.MustEqual(t, (mapped == nil), (c.err == nil), mapped, c.err)
			var e *tool.Error
			if mapped != nil && !errors.As(c.err, &e) && !errors.Is(mapped, c.err) {
				t.Errorf("%v lost its cause", mapped)
			}
		})
	}
}

func TestErrorfKeepsWhatItWraps(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	for name, c := range map[string]struct {
		err  *tool.Error
		text string
		is   []error
	}{
		"nothing": {tool.Errorf(tool.CodeNotFound, "no tool is called %q", "x"), `not_found: no tool is called "x"`, nil},
		"one":     {tool.Errorf(tool.CodeCrash, "died: %w", one), "crash: died: one", []error{one}},
		"two":     {tool.Errorf(tool.CodeCrash, "%w, then %w", one, two), "crash: one, then two", []error{one, two}},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Equal(t, c.err.Error(), c.text, c.err)
			for _, cause := range []error{one, two} {
				kit.Equal(t, errors.Is(c.err, cause), slices.Contains(c.is, cause), "errors.Is(%v) should be", cause)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	for want, e := range map[string]*tool.Error{
		"timeout":                    {Code: tool.CodeTimeout},
		"timeout: too slow":          {Code: tool.CodeTimeout, Message: "too slow"},
		"crash: the reason is aside": tool.Errorf(tool.CodeCrash, "the reason is aside").Because("exit_1"),
	} {
		kit.Equal(t, e.Error(), want)
	}
}

func TestBecauseDoesNotChangeTheOriginal(t *testing.T) {
	e := tool.Errorf(tool.CodeLeaseRejected, "the lease is too old")
	if because := e.Because("expired"); because.Reason != "expired" || because.Code != e.Code || e.Reason != "" {
		t.Errorf("made %+v of %+v", because, e)
	}
}

func TestCallersDoNotSeeTheCause(t *testing.T) {
	e := &tool.Error{Code: tool.CodeNotFound, Message: "no such file", Err: errors.New("/home/someone/x")}
	got, err := json.Marshal(e)
	if want := `{"code":"not_found","message":"no such file"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestCodesAreDistinct(t *testing.T) {
	codes := slices.Sorted(slices.Values(tool.Codes()))
	if len(codes) != 16 || len(slices.Compact(codes)) != 16 {
		t.Errorf("there are 16 codes, each listed once; got %q", tool.Codes())
	}
}

func TestFailedIsAResultThatSaysNo(t *testing.T) {
	r := tool.Failed("ValueError", "no such torch")
	if f := r.Failure; r.OK || f == nil || f.Code != tool.CodeToolError || f.Reason != "ValueError" ||
		f.Message != "no such torch" {
		t.Errorf("got %+v", r)
	}
}

func TestWhenToTryAgain(t *testing.T) {
	e := tool.Errorf(tool.CodeUnavailable, "away").Because("busy")
	for wait, want := range map[time.Duration]string{
		time.Second: `{"retry_after_ms":1000}`, 1500 * time.Microsecond: `{"retry_after_ms":2}`, 0: `{"retry_after_ms":0}`,
	} {
		got := e.RetryAfter(wait)
		if string(got.Details) != want || got.Reason != "busy" || e.Details != nil {
			t.Errorf("%v: %s", wait, got.Details)
		}
		if again := got.Retry(); again != max(wait, 0) && again != 2*time.Millisecond {
			t.Errorf("%v became %v", wait, again)
		}
	}
	for details, want := range map[string]time.Duration{
		``: 0, `{}`: 0, `{"retry_after_ms":-5}`: 0, `{"retry_after_ms":"soon"}`: 0,
		`{"retry_after_ms":9223372036854775807}`: 9223372036854 * time.Millisecond,
	} {
		kit.Equal(t, (&tool.Error{Details: json.RawMessage(details)}).Retry(), want, details)
	}
}

func TestALongTextKeepsItsBeginningAndItsEnd(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"short", 5, "short"},
		{"", 0, ""},
		{"0123456789abcdefghijklmnopqrstuvwxyz", 27, "0123456789abcde [...] vwxyz"},
		{strings.Repeat("ä", 40), 27, strings.Repeat("ä", 7) + " [...] " + strings.Repeat("ä", 2)},
	} {
		got := tool.Brief(c.text, c.most)
		if got != c.want || len(got) > c.most || !utf8.ValidString(got) {
			t.Errorf("%q in %d bytes: %q", c.text, c.most, got)
		}
	}
}

// Whatever a caller sends, a message that quotes it is bounded, and still says what to do.
func TestAMessageIsBounded(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	e := tool.Errorf(tool.CodeNotFound, "no tool named %q; `toolpost tools` lists them", long)
	if len(e.Message) > tool.MaxMessage || !strings.HasPrefix(e.Message, `no tool named "nnn`) ||
		!strings.HasSuffix(e.Message, "`toolpost tools` lists them") {
		t.Errorf("%d bytes: %.40s ... %s", len(e.Message), e.Message, e.Message[len(e.Message)-40:])
	}
}
