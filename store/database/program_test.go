package database

import (
	"testing"
	"testing/synctest"
	"time"

	"toolpost/internal/kit"
)

// A program that alone has lost its lock is gone within ten seconds of that, with the looks before and after. After a fail-over it is not.
func TestProgramHasTheWholeGraceOnlyAfterTheDatabaseWasAway(t *testing.T) {
	const grace = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		a, one := absences{}, program(7)
		goneAfter := func(wait time.Duration) bool {
			time.Sleep(wait)
			gone, _ := a.gone(one, false, grace)
			return gone
		}
		a.forget()
		time.Sleep(grace)
		a.compare("7 8", "8")
		kit.Equal(t, goneAfter(5*time.Second), false, "it looks for its connection")
		kit.Equal(t, goneAfter(time.Second), true, "the others were there")
		a.compare("8", "7 8")
		kit.Equal(t, goneAfter(0), false, "it came back, and is away again")
		a.forget()
		kit.Equal(t, goneAfter(0), false, "nobody has a lock yet")
		kit.Equal(t, goneAfter(grace-time.Second), false, "it may come later to the new primary")
		kit.Equal(t, goneAfter(time.Second), true)
		gone, away := a.gone(one, true, 0)
		kit.Equal(t, gone || away, false, "it lives")
	})
}
