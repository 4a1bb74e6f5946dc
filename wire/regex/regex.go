// Package regex has regular expressions that are compiled at their first use. A program of many packages takes longer
// to compile all of its own than to do what many a command asks for.
package regex

import (
	"regexp"
	"sync"
)

// Lazy gives an expression, which is one of the program's own: it panics at the first use of one that is none.
func Lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
