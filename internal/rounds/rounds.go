// Package rounds decides how often tests repeat their random or numerous attempts: a few times, or many times on request.
package rounds

import "os"

// Of returns many with TOOLPOST_LONG, and few otherwise.
func Of(few, many int) int {
	if os.Getenv("TOOLPOST_LONG") != "" {
		return many
	}
	return few
}
