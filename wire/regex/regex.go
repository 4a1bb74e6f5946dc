// Package regex compiles regular expressions on first use. In a program of many packages, compiling all of them takes
// longer than the work of many a command.
package regex

import (
	"regexp"
	"sync"
)

// Lazy compiles expr on first use; it panics if expr is invalid.
func Lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
