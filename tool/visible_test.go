package tool_test

import (
	"strings"
	"testing"
	"unicode"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestInvisibleCharactersAreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"plain, äöü, 搜索, ✓, ⚠\ufe0f":               "plain, äöü, 搜索, ✓, ⚠\ufe0f",
		"lines\r\nand\ttabs\n":                     "lines\r\nand\ttabs\n",
		"family 👨\u200d👩\u200d👧 and 1\ufe0f\u20e3": "family 👨\u200d👩\u200d👧 and 1\ufe0f\u20e3",
		"zero\u200bwidth\u200c\u200d\u2060\ufeff":  `zero\u200bwidth\u200c\u200d\u2060\ufeff`,
		"to the \u202eleft\u202c \u2066x\u2069":    `to the \u202eleft\u202c \u2066x\u2069`,
		"tags \U000e0041\U000e007f":                `tags \U000e0041\U000e007f`,
		"selectors a\ufe00\ufe0f\U000e0100":        `selectors a\ufe00\ufe0f\U000e0100`,
		"twice ⚠\ufe0f\ufe0f":                      "twice ⚠\ufe0f" + `\ufe0f`,
		"blank \u3164\u115f\u2800\u00ad\u034f":     `blank \u3164\u115f\u2800\u00ad\u034f`,
		"control \x1b[2J\x00\x7f\u0085 \r":         `control \u001b[2J\u0000\u007f\u0085 \u000d`,
		"lines of others \u2028\u2029":             `lines of others \u2028\u2029`,
		"private \ue000 \U000f0000":                `private \ue000 \U000f0000`,
		"not text \xff":                            "not text \ufffd",
	} {
		kit.Equal(t, tool.Visible(text), want, "%q is shown as", text)
	}
	kit.Equal(t, tool.VisibleName("read\nFile\t"), `read\u000aFile\u0009`, "a name of two lines is shown as")
}

// The result has nothing left to escape, and no format characters by Unicode's own list.
func FuzzVisible(f *testing.F) {
	for _, seed := range []string{"a\u200bb", "👨\u200d👩", "\u202e", "\xff\xfe", "1\ufe0f\u20e3", "\r\n\r"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		shown := tool.Visible(text)
		kit.Equal(t, tool.Visible(shown), shown, "%q is shown as", text)
		for _, r := range strings.ReplaceAll(shown, "\u200d", "") {
			if unicode.Is(unicode.Cf, r) {
				t.Errorf("%q is shown with %U", text, r)
			}
		}
	})
}
