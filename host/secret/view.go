package secret

import (
	"html"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// A view is a text with its escapes decoded, and the mapping back.
type view struct {
	plain []byte
	jumps []jump // in order
	one   []byte // the decoded form of one escape
}

// A jump is an escape: its position in the text and in the decoded form.
type jump struct{ at, size, plainAt, plainSize int32 }

// An escape is a way to write any character of a text in other characters, or to insert something without meaning between
// two of them.
type escape struct {
	mark byte
	// read appends the decoded form of the escape at a position of a text to plain, and returns the escape's length, or 0
	// if there is none.
	read func(plain []byte, text string, at int) ([]byte, int)
	// partial reports whether a text is an incomplete escape.
	partial func(text string) bool
	most    int  // the length of the longest
	gap     bool // it decodes to nothing
}

// maxEscape is the length of the longest escape.
const maxEscape = 12

// escapesOf returns the escapes of URLs, of JSON, which many programs use for the texts that they print, and of HTML, and
// the line ends that programs insert in base64 and hexadecimal digits.
func escapesOf(text string) [4]escape {
	end := escape{mark: '\n', read: readLineEnd, partial: never, most: 1, gap: true}
	if strings.Contains(text, "\r\n") || strings.HasSuffix(text, "\r") {
		end.mark, end.most = '\r', 2
	}
	return [4]escape{
		{mark: '%', read: readPercent, partial: partialPercent, most: 3},
		{mark: '\\', read: readBackslash, partial: partialBackslash, most: maxEscape},
		{mark: '&', read: readEntity, partial: partialEntity, most: maxEscape},
		end,
	}
}

func never(string) bool { return false }

func partialPercent(text string) bool {
	_, ok := hexadecimal(text[1:]+"0", 0, len(text))
	return ok && len(text) < 3
}

// partialBackslash recognises an incomplete escape by completing it with digits.
func partialBackslash(text string) bool {
	if len(text) == 1 {
		return true
	}
	_, size := readBackslash(nil, text+"00000000", 0)
	return size > len(text)
}

// readEntity reads &amp;, &#34; and &#x22;. Browsers also accept some without the semicolon, but no program writes them
// that way, and at a cut it would be unclear whether more digits follow.
func readEntity(plain []byte, text string, at int) ([]byte, int) {
	text = text[at:min(len(text), at+maxEscape)]
	end := 1
	for end < len(text) && (isDigit(text[end]) || text[end] == '#') {
		end++
	}
	if end == len(text) || text[end] != ';' {
		return plain, 0
	}
	name := text[:end+1]
	if read := html.UnescapeString(name); read != name {
		return append(plain, read...), len(name)
	}
	return plain, 0
}

// partialEntity reports whether more letters or digits, or the semicolon, may follow.
func partialEntity(text string) bool {
	if len(text) >= maxEscape {
		return false
	}
	for _, c := range []byte(text[1:]) {
		if !isDigit(c) && c != '#' {
			return false
		}
	}
	return true
}

func readPercent(plain []byte, text string, at int) ([]byte, int) {
	if c, ok := hexadecimal(text, at+1, 2); ok {
		return append(plain, byte(c)), 3
	}
	return plain, 0
}

func readBackslash(plain []byte, text string, at int) ([]byte, int) {
	if at+1 == len(text) {
		return plain, 0
	}
	switch c := text[at+1]; c {
	case 'u':
		return readUnicode(plain, text[at:])
	case 'U':
		if r, ok := hexadecimal(text, at+2, 8); ok {
			return utf8.AppendRune(plain, r), 10
		}
	case 'x':
		if c, ok := hexadecimal(text, at+2, 2); ok {
			return append(plain, byte(c)), 4
		}
	default:
		if i := strings.IndexByte(`bfnrt"\/'`, c); i >= 0 {
			return append(plain, "\b\f\n\r\t\"\\/'"[i]), 2
		}
	}
	return plain, 0
}

// codedLine is how many digits make a line of base64 or hexadecimal digits, which continue on the next line.
const codedLine = 24

func readLineEnd(plain []byte, text string, at int) ([]byte, int) {
	if at < codedLine {
		return plain, 0
	}
	for i := at - 1; i >= at-codedLine; i-- {
		if !isDigit(text[i]) {
			return plain, 0
		}
	}
	if text[at] == '\r' {
		return plain, min(2, len(text)-at)
	}
	return plain, 1
}

// readUnicode reads \u0041, and the pair that a character beyond the first 65,536 needs.
func readUnicode(plain []byte, text string) ([]byte, int) {
	r, ok := hexadecimal(text, 2, 4)
	if !ok {
		return plain, 0
	}
	if utf16.IsSurrogate(r) && len(text) >= 12 && text[6:8] == `\u` {
		if second, ok := hexadecimal(text, 8, 4); ok && utf16.DecodeRune(r, second) != utf8.RuneError {
			return utf8.AppendRune(plain, utf16.DecodeRune(r, second)), 12
		}
	}
	return utf8.AppendRune(plain, r), 6
}

func hexadecimal(text string, at, digits int) (rune, bool) {
	if len(text) < at+digits {
		return 0, false
	}
	v, err := strconv.ParseUint(text[at:at+digits], 16, 32)
	return rune(v), err == nil
}

// open decodes the escapes of one kind in a text, and reports whether it has any.
func (v *view) open(text string, e escape) bool {
	v.plain, v.jumps = v.plain[:0], v.jumps[:0]
	from := 0
	for at := 0; at < len(text); {
		next := strings.IndexByte(text[at:], e.mark)
		if next < 0 {
			break
		}
		at += next
		var size int
		if v.one, size = e.read(v.one[:0], text, at); size == 0 {
			at++
			continue
		}
		v.plain = append(slices.Grow(v.plain, len(text)-from), text[from:at]...)
		v.jumps = append(v.jumps, jump{int32(at), int32(size), int32(len(v.plain)), int32(len(v.one))})
		v.plain = append(v.plain, v.one...)
		at += size
		from = at
	}
	if len(v.jumps) == 0 {
		return false
	}
	v.plain = append(v.plain, text[from:]...)
	return true
}

// from and to map a position in the view to the text, as the beginning and as the end of a part.
func (v *view) from(at int) int {
	i := v.jump(at)
	if i < 0 {
		return at
	}
	j := v.jumps[i]
	if at < int(j.plainAt+j.plainSize) {
		return int(j.at)
	}
	return int(j.at+j.size) + at - int(j.plainAt+j.plainSize)
}

func (v *view) to(at int) int {
	i := v.jump(at - 1)
	if i < 0 {
		return at
	}
	j := v.jumps[i]
	return int(j.at+j.size) + max(0, at-int(j.plainAt+j.plainSize))
}

// jump finds the last jump that is not after a position of the view.
func (v *view) jump(at int) int {
	i, _ := slices.BinarySearchFunc(v.jumps, at, func(j jump, at int) int { return int(j.plainAt) - at - 1 })
	return i - 1
}

// Views are reused. Large ones are not kept.
var views = sync.Pool{New: func() any { return new(view) }}

const maxKept = 4 << 20

func (v *view) close() {
	if cap(v.plain) <= maxKept {
		views.Put(v)
	}
}
