package strictjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// texts are strings that are easy to get wrong.
func texts() []string {
	var every strings.Builder
	for r := range rune(0x300) {
		every.WriteRune(r)
	}
	return []string{
		"", "a", `"`, `\`, `\\`, `\"`, "\n", "a\nb\n", "\x00\x1f\x7f", "\u2028\u2029", "grüße, 世界 🙂", every.String(),
		"ends with a backslash\\", strings.Repeat("line\n", 1000), "\xff\xfe", "half \xe4\xb8", "\xed\xa0\x80",
	}
}

func TestQuoteAgreesWithTheLibrary(t *testing.T) {
	for _, text := range texts() {
		got := Quote([]byte(text))
		kit.Check(t, Check(got), "Quote(%q) = %s", text, got)
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != strings.ToValidUTF8(text, "\uFFFD") {
			t.Errorf("Quote(%q) reads back as %q, %v", text, back, err)
		}
		if want, err := jsontext.AppendQuote(nil, text); err == nil && string(want) != string(got) {
			t.Errorf("Quote(%q) = %s, want %s", text, got, want)
		}
		if of := Quote(text); string(of) != string(got) {
			t.Errorf("Quote(%q) = %s for a string, %s for bytes", text, of, got)
		}
	}
}

func TestWriterAgreesWithTheLibrary(t *testing.T) {
	if got := NewWriter(0).Done(); string(got) != "{}" {
		t.Errorf("nothing: %s", got)
	}
	type document struct {
		Text  string          `json:"text,omitzero"`
		Raw   json.RawMessage `json:"raw,omitzero"`
		Texts []string        `json:"texts,omitzero"`
		Lists [][]string      `json:"lists,omitzero"`
	}
	for _, d := range []document{
		{}, {Text: "a\"\n"}, {Raw: json.RawMessage(`[1]`), Texts: []string{"", "é"}, Lists: [][]string{{"git", "log"}, {"\\"}}},
	} {
		w := NewWriter(8)
		w.Text("text", d.Text)
		w.Raw("raw", d.Raw)
		if len(d.Texts) > 0 {
			w.Raw("texts", AppendList(nil, d.Texts, AppendString[string]))
			w.Raw("lists", AppendList(nil, d.Lists, func(b []byte, list []string) []byte { return AppendList(b, list, AppendString[string]) }))
		}
		want, err := Marshal(d)
		if got := w.Done(); err != nil || string(got) != string(want) {
			t.Errorf("%s, want %s, %v", got, want, err)
		}
	}
}

func TestPlainUntilFindsEveryByteAtAnyPosition(t *testing.T) {
	for c := range 256 {
		for length := 1; length < 20; length++ {
			for at := range length {
				text := bytes.Repeat([]byte("x"), length)
				text[at] = byte(c)
				want := length
				if c < ' ' || c == '"' || c == '\\' {
					want = at
				}
				kit.MustEqual(t, plainUntil(text, 0), want, text)
			}
		}
	}
}

func FuzzStringsAreReadTheSameWay(f *testing.F) {
	for _, text := range texts() {
		f.Add([]byte(Quote([]byte(text))))
	}
	for _, s := range []string{`"\u0041"`, `"\ud800"`, `"\ud83d\ude42"`, `"\x"`, `"a`, `"a" `, ` "a"`, `"a""b"`, `"a"b"`, "\"\n\"", `"\`, `"\"`, `"\/"`, "\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		quick, ok := unquoted(b)
		if !ok {
			return
		}
		slow, err := jsontext.AppendUnquote(nil, b)
		if err != nil || string(slow) != quick || !utf8.ValidString(quick) {
			t.Errorf("%q: %q in the quick way, %q, %v in the slow way", b, quick, slow, err)
		}
	})
}
