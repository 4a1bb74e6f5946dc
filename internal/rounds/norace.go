//go:build !race

package rounds

const raced = false
