package tool

import "strings"

// MaxMessage is the maximum length in bytes of one of our error messages. A message may quote a caller's input, such as
// a name of several megabytes.
const MaxMessage = 16 << 10

// Brief shortens text to at most the given number of bytes. It keeps the beginning and the end, since a message begins
// with its subject and ends with what to do.
func Brief(text string, most int) string {
	const gap = " [...] "
	if len(text) <= most {
		return text
	}
	room := max(0, most-len(gap))
	head, tail := text[:room-room/4], text[len(text)-room/4:]
	return strings.ToValidUTF8(head, "") + gap + strings.ToValidUTF8(tail, "") // a cut may split a rune
}
