package textdiff

import (
	"strings"
	"testing"

	"toolpost/internal/kit"
)

func TestTwoTextsAreComparedWordByWord(t *testing.T) {
	shown := func(runs []Run, sign byte) string {
		var b strings.Builder
		for _, r := range runs {
			switch text := strings.Join(r.Pieces, ""); r.Sign {
			case sign:
				b.WriteString("[" + text + "]")
			case ' ':
				b.WriteString(text)
			}
		}
		return b.String()
	}
	long := strings.Repeat("word ", 5000)
	longer := strings.ReplaceAll(long, "word", "sword")
	for was, c := range map[string]struct{ now, before, after string }{
		"a b c":     {"a x c", "a [b] c", "a [x] c"},
		"":          {"a b", "", "[a b]"},
		"same":      {"same", "same", "same"},
		"a b c d":   {"b d e", "[a ]b [c ]d", "b d[ e]"},
		"x " + long: {"y " + longer, "[x " + strings.TrimSpace(long) + "] ", "[y " + strings.TrimSpace(longer) + "] "},
		"a\u200bb":  {"ab", "[a\u200bb]", "[ab]"},
	} {
		runs := Words(was, c.now)
		kit.Equal(t, shown(runs, '-'), c.before)
		kit.Equal(t, shown(runs, '+'), c.after)
	}
}

func TestLinesThatStayAreShownAroundTheOthers(t *testing.T) {
	for _, c := range []struct {
		was, now string
		from     int
		shown    string
	}{
		{"a\nb\nc\nd\ne\n", "a\nb\nC\nd\ne\n", 1, " b\n-c\n+C\n d\n"},
		{"a\n", "b\na\n", 0, "+b\n a\n"},
		{"a\nb\nc\nd\n", "x\nb\nc\ny\n", 0, "-a\n+x\n b\n c\n-d\n+y\n"},
		{"", "a\n", 0, "+a\n"},
		{"a\n", "", 0, "-a\n"},
		{"a\n", "a\n", 0, ""},
	} {
		from, runs := Lines(c.was, c.now, 1)
		shown := ""
		for _, r := range runs {
			for _, line := range r.Pieces {
				shown += string(r.Sign) + line
			}
		}
		kit.Equal(t, shown, c.shown)
		kit.Equal(t, from, c.from)
	}
}
