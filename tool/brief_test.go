package tool_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"toolpost/tool"
)

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
