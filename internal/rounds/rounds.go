// Package rounds decides how often tests repeat their random or numerous attempts: fewer times under the race detector,
// which makes each attempt many times slower, and many times on request.
package rounds

import "os"

// Of returns few under the race detector, many with TOOLPOST_LONG, and otherwise normal.
func Of(few, normal, many int) int {
	switch {
	case os.Getenv("TOOLPOST_LONG") != "":
		return many
	case raced:
		return few
	}
	return normal
}
