package store

import (
	"testing"
	"time"

	"toolpost/engine/idempotency"
	"toolpost/internal/kit"
)

// What waits for the store is bounded: an outcome for which there is no room is lost, for as long as its worker may have it.
func TestEndingsAreBounded(t *testing.T) {
	var l endings
	scope := func(n int) [32]byte { return [32]byte{byte(n), byte(n >> 8)} }
	half := make([]byte, mostEndingBytes/2)
	for n := range 3 {
		l.keep(scope(n), &ending{result: half, ttl: time.Minute})
	}
	kit.Equal(t, l.of[scope(2)].lost, true)
	kit.Equal(t, l.of[scope(2)].ttl, idempotency.LostFor)
	l.keep(scope(0), &ending{ttl: time.Minute})
	l.forget(scope(1))
	kit.Equal(t, l.bytes, 0)
	for n := range mostEndings + 1 {
		l.keep(scope(n), &ending{})
	}
	kit.Equal(t, len(l.all()), mostEndings)
}
