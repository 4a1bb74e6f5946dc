package policy

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A kind says what a token is; operators and punctuation are their own text.
type tokenKind int

const (
	tokenEnd tokenKind = iota
	tokenName
	tokenNumber
	tokenText
	tokenSign
)

// A lexeme is one token of a condition, with its place for messages.
type lexeme struct {
	kind tokenKind
	text string // of text: what it stands for
	at   int    // the byte that it starts at
}

func (l lexeme) String() string {
	switch l.kind {
	case tokenEnd:
		return "the end"
	case tokenText:
		return strconv.Quote(l.text)
	case tokenName, tokenNumber, tokenSign:
	}
	return l.text
}

// signs lists operators and punctuation, the longer ones first.
func signs() []string {
	return []string{"&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "?", ":", "(", ")", "[", "]", ".", ","}
}

// lex splits a condition into tokens.
func lex(text string) ([]lexeme, error) {
	var out []lexeme
	for at := 0; at < len(text); {
		rest := text[at:]
		switch c := rest[0]; {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			at++
			continue
		case c == '"' || c == '\'' || (c == 'r' || c == 'R') && len(rest) > 1 && (rest[1] == '"' || rest[1] == '\''):
			value, size, err := lexText(rest)
			if err != nil {
				return nil, fmt.Errorf("at %d: %w", at+1, err)
			}
			out = append(out, lexeme{tokenText, value, at})
			at += size
			continue
		}
		l, err := lexWord(rest, at)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
		at += len(l.text)
	}
	return append(out, lexeme{tokenEnd, "", len(text)}), nil
}

// lexWord reads a name, a number or a sign.
func lexWord(rest string, at int) (lexeme, error) {
	if n := span(rest, isNameByte); n > 0 && !isDigit(rest[0]) {
		return lexeme{tokenName, rest[:n], at}, nil
	}
	if n := span(rest, isDigit); n > 0 {
		if n+1 < len(rest) && rest[n] == '.' && isDigit(rest[n+1]) {
			n += 1 + span(rest[n+1:], isDigit)
		}
		if n < len(rest) && isNameByte(rest[n]) {
			return lexeme{}, fmt.Errorf("at %d: %q is not a number", at+1, rest[:n+1])
		}
		return lexeme{tokenNumber, rest[:n], at}, nil
	}
	for _, s := range signs() {
		if strings.HasPrefix(rest, s) {
			return lexeme{tokenSign, s, at}, nil
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return lexeme{}, fmt.Errorf("at %d: %q means nothing here", at+1, r)
}

func span(s string, in func(byte) bool) int {
	n := 0
	for n < len(s) && in(s[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isNameByte(c byte) bool {
	return c == '_' || isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// lexText reads a text in quotes, and how many bytes it takes. After an r nothing in it is an escape.
func lexText(s string) (value string, size int, err error) {
	raw := s[0] == 'r' || s[0] == 'R'
	start := 0
	if raw {
		start = 1
	}
	quote := s[start]
	var b strings.Builder
	for i := start + 1; i < len(s); {
		switch c := s[i]; {
		case c == quote:
			return b.String(), i + 1, nil
		case c == '\n':
			return "", 0, fmt.Errorf("a text does not end on its line")
		case c == '\\' && !raw:
			r, multibyte, tail, err := strconv.UnquoteChar(s[i:], quote)
			if err != nil {
				return "", 0, fmt.Errorf("%q is not an escape", s[i:min(i+2, len(s))])
			}
			if !multibyte && r >= utf8.RuneSelf {
				return "", 0, fmt.Errorf("%q is a byte; write \\u for a character", s[i:min(i+4, len(s))])
			}
			b.WriteRune(r)
			i = len(s) - len(tail)
		default:
			b.WriteByte(c)
			i++
		}
	}
	return "", 0, fmt.Errorf("a text does not end")
}
