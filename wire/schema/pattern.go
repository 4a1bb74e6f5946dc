package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// A pattern is a regular expression of ECMAScript, as schemas use them, run in linear time. A pattern that needs
// backtracking (lookaround, backreferences), or counts further than Go's regexp does, is run by another engine, which
// is stopped if it takes too long.
type pattern struct {
	text  string
	re    *regexp.Regexp
	size  int64           // steps for each byte of a text, at most
	tries *regexp2.Regexp // instead of re
	// unread is set if neither engine can parse it: it is not checked.
	unread bool
}

// Bounds on patterns that need backtracking. A step takes about as long as one look at a schema.
const (
	maxTries    = 4 << 10 // bytes of such a pattern
	longestTry  = 100 * time.Millisecond
	timeOfAStep = 200 * time.Nanosecond
)

// backtracking parses a pattern that Go's regexp cannot.
func backtracking(text string) *pattern {
	p := &pattern{text: text, unread: true}
	if len(text) > maxTries {
		return p
	}
	if re, err := regexp2.Compile(text, regexp2.ECMAScript|regexp2.Unicode); err == nil {
		re.MatchTimeout = longestTry
		p.tries, p.unread = re, false
	}
	return p
}

// maxPatternSize bounds the expanded size of all patterns of a schema: x{1000} is a thousand x.
const maxPatternSize = 200_000

// pattern parses a pattern. It returns an error with one that is slower than it should be, or not checked at all.
func (c *compiler) pattern(text string) (*pattern, error) {
	if p := c.patterns[text]; p != nil {
		return p, nil
	}
	p, err := c.linear(text)
	if err != nil {
		p = backtracking(text)
	}
	c.patterns[text] = p
	return p, err
}

// linear parses a pattern for Go's regexp.
func (c *compiler) linear(text string) (*pattern, error) {
	translated, err := translate(text)
	if err != nil {
		return nil, err
	}
	parsed, err := syntax.Parse(translated, syntax.Perl)
	if err != nil {
		return nil, explain(err)
	}
	size := sizeOfPattern(parsed)
	if c.patternSize += size; c.patternSize > maxPatternSize {
		return nil, errors.New("the patterns of this schema are too large")
	}
	re, err := regexp.Compile(translated)
	if err != nil {
		return nil, explain(err)
	}
	return &pattern{text: text, re: re, size: int64(size)}, nil
}

func explain(err error) error {
	var fault *syntax.Error
	if errors.As(err, &fault) {
		return fmt.Errorf("%s (%s)", fault.Code, brief(fault.Expr))
	}
	return err
}

func sizeOfPattern(re *syntax.Regexp) int {
	size := 1 + len(re.Rune)/16
	for _, sub := range re.Sub {
		size += sizeOfPattern(sub)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max, 1)
	}
	return min(size, maxPatternSize+1)
}

// The characters that ECMAScript counts as white space and as the end of a line, and their complements.
const (
	space    = `\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
	notSpace = `\x00-\x08\x0e-\x1f!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}` +
		`\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}`
	notLineEnd = `[^\n\r\x{2028}\x{2029}]`
)

// A translator rewrites an ECMAScript pattern for Go's regexp where the two differ.
type translator struct {
	in      string
	out     []byte
	inClass bool
}

func translate(text string) (string, error) {
	t := translator{in: text}
	for t.in != "" {
		if err := t.next(); err != nil {
			return "", err
		}
	}
	return string(t.out), nil
}

func (t *translator) next() error {
	c := t.in[0]
	switch {
	case c == '\\':
		return t.escape()
	case t.inClass:
		t.inClass = c != ']'
		if c == '[' {
			t.write(`\`)
		}
	case c == '.':
		t.write(notLineEnd)
		t.in = t.in[1:]
		return nil
	case c == '[':
		t.inClass = true
	}
	_, size := utf8.DecodeRuneInString(t.in)
	t.write(t.in[:size])
	t.in = t.in[size:]
	return nil
}

func (t *translator) write(s string) { t.out = append(t.out, s...) }

func (t *translator) escape() error {
	if len(t.in) < 2 {
		return errors.New("it ends with a backslash")
	}
	c := t.in[1]
	rest := t.in[2:]
	switch {
	case c == 'u':
		return t.unicode(rest)
	case c == 'p' || c == 'P':
		return t.property(c, rest)
	case c == 's' || c == 'S':
		t.space(c)
	case c == 'c' && rest != "" && isLetter(rest[0]):
		t.char(rune(rest[0] & 0x1f))
		rest = rest[1:]
	case c == '0' && (rest == "" || !isDigit(rest[0])):
		t.char(0)
	case c == 'b' && t.inClass:
		t.char('\b')
	case strings.IndexByte("dDwWbBtnvfrx", c) >= 0:
		t.write(t.in[:2])
	case c == 'k' || isDigit(c):
		return errors.New("a reference back to a group is not supported")
	case isLetter(c):
		return fmt.Errorf(`\%c is no escape of ECMAScript`, c)
	case c < 0x80:
		t.write(t.in[:2])
	default: // any other escaped character stands for itself
		rest = t.in[1:]
	}
	t.in = rest
	return nil
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (t *translator) char(c rune) { t.out = fmt.Appendf(t.out, `\x{%x}`, c) }

func (t *translator) space(c byte) {
	ranges := space
	if c == 'S' {
		ranges = notSpace
	}
	if !t.inClass {
		ranges = "[" + ranges + "]"
	}
	t.write(ranges)
}

// unicode reads \uXXXX, a surrogate pair of them, and \u{...}.
func (t *translator) unicode(rest string) error {
	c, rest, ok := codePoint(rest)
	if !ok {
		return errors.New(`\u wants four hexadecimal digits`)
	}
	if utf16.IsSurrogate(c) {
		low, after, ok := codePoint(strings.TrimPrefix(rest, `\u`))
		if c = utf16.DecodeRune(c, low); !ok || c == '\ufffd' || !strings.HasPrefix(rest, `\u`) {
			return errors.New("half of a surrogate pair is not a character")
		}
		rest = after
	}
	t.char(c)
	t.in = rest
	return nil
}

func codePoint(s string) (c rune, rest string, ok bool) {
	digits := s[:min(len(s), 4)]
	rest = s[len(digits):]
	if strings.HasPrefix(s, "{") {
		if digits, rest, ok = strings.Cut(s[1:], "}"); !ok {
			return 0, "", false
		}
	} else if len(digits) < 4 {
		return 0, "", false
	}
	n, err := strconv.ParseUint(digits, 16, 32)
	return rune(n), rest, err == nil && n <= 0x10ffff
}

// property reads \p{...}; Go has no names for the properties, only for their values.
func (t *translator) property(c byte, rest string) error {
	name, rest, ok := strings.Cut(strings.TrimPrefix(rest, "{"), "}")
	if !ok || !strings.HasPrefix(t.in[2:], "{") {
		return errors.New(`\p wants a name in braces`)
	}
	if property, value, ok := strings.Cut(name, "="); ok {
		switch property {
		case "Script", "sc", "General_Category", "gc":
			name = value
		}
	}
	t.out = fmt.Appendf(t.out, `\%c{%s}`, c, name)
	t.in = rest
	return nil
}
