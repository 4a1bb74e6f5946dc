package persist_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine/persist"
	"toolpost/tool"
)

// A waiting caller is told about a store that is away, and does not wait for ever; a Background call does.
func TestWriteReportsWhileTheStoreIsDown(t *testing.T) {
	down := tool.Errorf(tool.CodeUnavailable, "around it: %w",
		tool.Errorf(tool.CodeUnavailable, "away").Because(persist.Down)).Because("other")
	for name, c := range map[string]struct {
		call  tool.Call
		err   error
		away  time.Duration // how long the store is away
		ends  time.Duration // when Write returns, at the latest
		kept  bool
		words int // minimum number of messages
	}{
		"back soon":     {err: down, away: 5 * time.Second, ends: 6 * time.Second, kept: true, words: 2},
		"away for long": {err: down, away: time.Hour, ends: 11 * time.Second, words: 4},
		"away, for a job": {call: tool.Call{Background: true}, err: down, away: time.Hour, ends: time.Hour + time.Second,
			kept: true, words: 1000},
		"full":              {err: tool.Errorf(tool.CodeUnavailable, "full").Because(persist.Full), away: time.Hour},
		"another trouble":   {call: tool.Call{Background: true}, err: tool.Errorf(tool.CodeConflict, "no"), away: time.Hour},
		"there all the way": {kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, words, last := time.Now(), 0, time.Now()
				out := tool.SinkFunc(func(tool.Event) error {
					if time.Since(last) > 4*time.Second {
						t.Errorf("%v without a word", time.Since(last))
					}
					words, last = words+1, time.Now()
					return nil
				})
				err := persist.Write(context.Background(), &c.call, out, "it", func() error {
					if time.Since(begun) < c.away {
						return c.err
					}
					return nil
				})
				if took := time.Since(begun); (err == nil) != c.kept || took > c.ends || words < c.words {
					t.Errorf("%v after %v, with %d words", err, took, words)
				}
			})
		})
	}
}
