package tool

import "strings"

// MaxMessage is how many bytes the message of an error of ours has at most. It may quote what somebody sent, and that
// may have a name of megabytes.
const MaxMessage = 16 << 10

// Brief returns a text of at most so many bytes: of a longer one the beginning and the end, since a message begins with
// what it is about and ends with what to do.
func Brief(text string, most int) string {
	const gap = " [...] "
	if len(text) <= most {
		return text
	}
	room := max(0, most-len(gap))
	head, tail := text[:room-room/4], text[len(text)-room/4:]
	return strings.ToValidUTF8(head, "") + gap + strings.ToValidUTF8(tail, "") // a cut may be in the middle of a rune
}
