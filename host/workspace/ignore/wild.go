package ignore

import "strings"

type kind uint8

const (
	literal  kind = iota
	one           // ?
	set           // [...]
	star          // any run, without slashes if slashes count
	anything      // ** at the end, or before an escaped slash: any run, including slashes
	folders       // **/: nothing, or any run that ends with a slash
)

// A token is one part of a pattern.
type token struct {
	kind kind
	char byte
	set  *[256]bool
}

// compile splits a pattern into tokens. If slashes count, only ** between slashes matches them. The pattern may be the
// rest of one whose literal prefix was cut off: git treats the cut as a beginning, and so do we.
func compile(s string, slashes bool) (tokens []token, ok bool) {
	for i := 0; i < len(s); {
		switch c := s[i]; c {
		case '\\':
			if i+1 == len(s) {
				return nil, false
			}
			tokens = append(tokens, token{kind: literal, char: s[i+1]})
			i += 2
		case '?':
			tokens = append(tokens, anyOne(slashes))
			i++
		case '[':
			in, end, ok := parseSet(s, i)
			if !ok {
				return nil, false
			}
			if slashes {
				in['/'] = false
			}
			tokens = append(tokens, token{kind: set, set: in})
			i = end
		case '*':
			t, end := parseStars(s, i, slashes)
			tokens = append(tokens, t)
			i = end
		default:
			tokens = append(tokens, token{kind: literal, char: c})
			i++
		}
	}
	return tokens, true
}

func anyOne(slashes bool) token {
	if !slashes {
		return token{kind: one}
	}
	in := invert(new([256]bool))
	in['/'] = false
	return token{kind: set, set: in}
}

// parseStars reads the run of stars at i.
func parseStars(s string, i int, slashes bool) (t token, end int) {
	end = i
	for end < len(s) && s[end] == '*' {
		end++
	}
	rest := s[end:]
	bounded := (i == 0 || s[i-1] == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
	switch {
	case !slashes:
		return token{kind: anything}, end
	case end-i < 2 || !bounded:
		return token{kind: star}, end
	case strings.HasPrefix(rest, "/"):
		return token{kind: folders}, end + 1
	}
	return token{kind: anything}, end
}

// parseSet reads the bracket expression at i.
func parseSet(s string, i int) (in *[256]bool, end int, ok bool) {
	in = new([256]bool)
	i++
	negated := i < len(s) && (s[i] == '!' || s[i] == '^')
	if negated {
		i++
	}
	var prev byte // the character that starts a range if - follows; 0 if there is none
	for first := true; ; first = false {
		if i >= len(s) {
			return nil, 0, false
		}
		c := s[i]
		switch {
		case c == ']' && !first:
			if negated {
				in = invert(in)
			}
			return in, i + 1, true
		case c == '\\':
			if i++; i == len(s) {
				return nil, 0, false
			}
			in[s[i]], prev = true, s[i]
		case c == '-' && prev != 0 && i+1 < len(s) && s[i+1] != ']':
			if i++; s[i] == '\\' {
				i++
			}
			if i == len(s) {
				return nil, 0, false
			}
			for x := int(prev); x <= int(s[i]); x++ {
				in[x] = true
			}
			prev = 0
		case strings.HasPrefix(s[i:], "[:"):
			n, known := parseClass(s[i:], in)
			if !known {
				return nil, 0, false
			}
			if prev = 0; n == 0 {
				in['['], prev, n = true, '[', 1
			}
			i += n - 1
		default:
			in[c], prev = true, c
		}
		i++
	}
}

// parseClass parses [:name:] at the start of s into the set and returns its length, or 0 if it is not a class and the
// bracket stands for itself.
func parseClass(s string, in *[256]bool) (n int, ok bool) {
	end := strings.IndexByte(s[2:], ']')
	if end < 0 {
		return 0, false
	}
	end += 2
	if end < 3 || s[end-1] != ':' {
		return 0, true
	}
	ranges, known := classes()[s[2:end-1]]
	for ; len(ranges) > 0; ranges = ranges[2:] {
		for c := ranges[0]; c <= ranges[1]; c++ {
			in[c] = true
		}
	}
	return end + 1, known
}

// classes are the POSIX ones, in plain ASCII as in git: the first and the last character of each range.
func classes() map[string]string {
	return map[string]string{
		"upper": "AZ", "lower": "az", "alpha": "AZaz", "digit": "09", "xdigit": "09AFaf", "alnum": "AZaz09",
		"blank": "  \t\t", "space": "  \t\t\n\n\r\r", "cntrl": "\x00\x1f\x7f\x7f",
		"graph": "!~", "print": " ~", "punct": "!/:@[`{~",
	}
}

func invert(in *[256]bool) *[256]bool {
	for i, v := range in {
		in[i] = !v
	}
	return in
}

// matchTokens reports whether the tokens match all of text. A run is first tried as short as possible. Only the last run
// of each kind, within a folder and across folders, is ever extended: it reaches everything that an earlier run could
// reach by growing. So the time is bounded by the square of the length.
func matchTokens(tokens []token, text string) bool {
	near, far := mark{token: -1}, mark{token: -1}
	t, i := 0, 0
	for {
		switch {
		case t == len(tokens) && i == len(text):
			return true
		case t < len(tokens) && tokens[t].kind >= star:
			if tokens[t].kind == star {
				near = mark{t, i}
			} else {
				far, near = mark{t, i}, mark{token: -1}
			}
			t++
			continue
		case t < len(tokens) && i < len(text) && tokens[t].takes(text[i]):
			t, i = t+1, i+1
			continue
		}
		var ok bool
		if t, i, ok = back(tokens, text, &near, &far); !ok {
			return false
		}
	}
}

// A mark is a run, and the position in the text at which the tokens after it were last tried.
type mark struct{ token, at int }

// back extends the last run that can grow and returns where to continue.
func back(tokens []token, text string, near, far *mark) (t, i int, ok bool) {
	if near.token >= 0 && near.at < len(text) && text[near.at] != '/' {
		near.at++
		return near.token + 1, near.at, true
	}
	if far.token < 0 || far.at >= len(text) {
		return 0, 0, false
	}
	*near = mark{token: -1}
	far.at++
	if tokens[far.token].kind == folders {
		slash := strings.IndexByte(text[far.at-1:], '/')
		if slash < 0 {
			return 0, 0, false
		}
		far.at += slash
	}
	return far.token + 1, far.at, true
}

func (t token) takes(c byte) bool {
	switch t.kind {
	case literal:
		return t.char == c
	case set:
		return t.set[c]
	}
	return true
}
