package singularity

import (
	"fmt"
	"net/url"
	"strings"
)

// unreserved has the three in which a token of a subject differs from an escaped query.
var unreserved = strings.NewReplacer(".", "%2E", "~", "%7E", "+", "%20")

// EncodeName makes one token of a subject of a tool's name: the letters, digits, "_" and "-" of ASCII stay as
// they are, every other byte becomes "%" and two upper-case hex digits. So a name can neither add tokens nor be a
// wildcard. DecodeName is its exact inverse.
func EncodeName(name string) string { return unreserved.Replace(url.QueryEscape(name)) }

// DecodeName returns the name that a token stands for. It also takes what EncodeName would not write, such as the dots
// of tools.execute.file.read, except for a "%" that is no escape.
func DecodeName(token string) (string, error) {
	name, err := url.PathUnescape(token)
	if err != nil {
		return "", fmt.Errorf("%.100q stands for no name: a %% is followed by two hex digits", token)
	}
	return name, nil
}
