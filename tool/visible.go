package tool

import (
	"fmt"
	"strings"
	"unicode"
)

// Visible makes a foreign text safe to show. It escapes characters that are invisible or that change the order of the
// others: with them a text says one thing to a person and another to a model. Line breaks and tabs stay, and so do the
// characters that hold an emoji together.
//
// Removing the characters was considered. Then a text that hides something would look like one that does not.
func Visible(text string) string { return escaped(text, false) }

// VisibleName is Visible for a name, which has one line.
func VisibleName(name string) string { return escaped(name, true) }

// Hides reports whether a text has characters that Visible writes as escapes.
func Hides(text string) bool { return Visible(text) != text }

func escaped(text string, oneLine bool) string {
	if plainASCII(text, oneLine) {
		return text
	}
	runes := []rune(strings.ToValidUTF8(text, "\ufffd"))
	var b strings.Builder
	at := func(i int) rune {
		if i < 0 || i >= len(runes) {
			return 0
		}
		return runes[i]
	}
	for i, r := range runes {
		lines := r == '\n' || r == '\t' || r == '\r' && at(i+1) == '\n'
		switch {
		case lines && !oneLine || !lines && !hidden(at(i-1), r, at(i+1)):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// plainASCII is the fast path: it reports whether text needs no escapes at all.
func plainASCII(text string, oneLine bool) bool {
	for i := range len(text) {
		if c := text[i]; (c < ' ' || c >= 0x7f) && (oneLine || c != '\n' && c != '\t') {
			return false
		}
	}
	return true
}

// The characters that join emoji.
const (
	joiner   = 0x200d
	asEmoji  = 0xfe0f // shows the character before it as a picture
	keycap   = 0x20e3
	noDots   = 0x2800 // a Braille pattern without any dots
	skinTone = 0x1f3fb
)

// hidden reports whether a character between two others is invisible or misleading to people.
func hidden(before, r, after rune) bool {
	switch {
	case r < 0x7f:
		return r < ' '
	case r == joiner:
		return !pictured(before) && before != asEmoji || !pictured(after)
	case r == asEmoji:
		return !pictured(before) && after != keycap
	case r == noDots:
		return true
	}
	return unicode.In(r, unicode.C, unicode.Zl, unicode.Zp, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point)
}

func pictured(r rune) bool { return unicode.Is(unicode.So, r) || skinTone <= r && r < skinTone+5 }
