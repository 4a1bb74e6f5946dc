package singularity

import (
	"fmt"
	"strings"
)

// EncodeName makes one token of a subject of a tool's name: the letters, digits, "_" and "-" of ASCII stay as
// they are, every other byte becomes "%" and two upper-case hex digits. So a name can neither add tokens nor be a
// wildcard. DecodeName is its exact inverse.
func EncodeName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plainByte(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func plainByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// DecodeName returns the name that a token stands for. It also takes what EncodeName would not write, such as the dots
// of tools.execute.file.read, except for a "%" that is no escape.
func DecodeName(token string) (string, error) {
	if !strings.Contains(token, "%") {
		return token, nil
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '%' {
			b.WriteByte(token[i])
			continue
		}
		if i+2 >= len(token) {
			return "", badToken(token)
		}
		high, low := hexDigit(token[i+1]), hexDigit(token[i+2])
		if high < 0 || low < 0 {
			return "", badToken(token)
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	return b.String(), nil
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

func badToken(token string) error {
	return fmt.Errorf("%.100q stands for no name: a %% is followed by two hex digits", token)
}
