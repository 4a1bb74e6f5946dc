//go:build race

package rounds

const raced = true
