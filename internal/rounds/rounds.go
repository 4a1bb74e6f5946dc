// Package rounds says how often tests try what they try at random, or in numbers: fewer times under the race detector,
// which makes each one many times as slow, and many times where somebody has asked for it.
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
