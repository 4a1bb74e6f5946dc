package secret

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// A form is a text that gives a secret away: its value, or an encoding of it. What escapes turn a value into has no
// form of its own: texts with escapes are read without them too.
type form struct {
	text   string
	secret int  // which one it gives away
	coded  bool // base64 or hexadecimal digits: long ones are found in pieces too, since programs break them into lines
	// Whether a digit before the text, and one after it, has bits of the secret and bits of something else.
	before, after bool
	head, tail    int // how many bytes of its beginning and of its end are no secret
	least         int // how many of the others are taken for it where a text was cut
}

// minLine is how long a line of a value must be to be redacted by itself. Programs print long values, such as keys,
// line by line, and some lines of them are found in many texts.
const minLine = 16

// formsOf lists the forms of a value.
func formsOf(secret int, value string) []form {
	texts := []string{value, strings.TrimSpace(value)}
	if strings.Contains(value, " ") {
		texts = append(texts, strings.ReplaceAll(value, " ", "+")) // as forms of the web write it
	}
	if strings.Contains(strings.TrimSpace(value), "\n") {
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
				texts = append(texts, line)
			}
		}
	}
	var all []form
	for _, text := range texts {
		if len(text) >= MinSize {
			all = append(all, form{text: text, secret: secret})
		}
	}
	digits := hex.EncodeToString([]byte(value))
	all = append(all, form{text: digits, secret: secret, coded: true}, form{
		text: strings.ToUpper(digits), secret: secret, coded: true,
	})
	for shift := range 3 {
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			all = append(all, base64Form(secret, value, shift, alphabet))
		}
	}
	for i := range all {
		f := &all[i]
		if !f.coded {
			f.head, f.tail = public(f.text)
		}
		f.least = max(window, min(minCut, (len(f.text)-f.head-f.tail+1)/2))
	}
	return all
}

// base64Form gives the digits that a value always has where shift bytes, or any number of threes more, come before
// it. The digits at its ends depend on its neighbours.
func base64Form(secret int, value string, shift int, alphabet *base64.Encoding) form {
	digits := alphabet.EncodeToString([]byte("\x00\x00"[:shift] + value))
	from, to := (8*shift+5)/6, 8*(shift+len(value))/6
	return form{text: digits[from:to], secret: secret, coded: true, before: shift > 0, after: to < len(digits)}
}
