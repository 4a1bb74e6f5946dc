package store

import (
	"testing"
	"time"

	"toolpost/internal/kit"
)

func TestSweeperIsDueAfterTheClockWasSetBack(t *testing.T) {
	var s sweeper
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		at   time.Duration
		want bool
	}{{0, true}, {time.Second, false}, {-time.Hour, true}, {-time.Hour + time.Second, false}, {0, true}} {
		kit.Equal(t, s.due(now.Add(c.at)), c.want, c.at)
	}
}
