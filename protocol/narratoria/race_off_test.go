//go:build !race

package narratoria_test

const raceEnabled = false
