package tool_test

import (
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestTheTierOfEffects(t *testing.T) {
	for e, want := range map[tool.Effects]int{
		{}: 0, {Reads: true}: 0, {Idempotent: true}: 0, {Pure: true}: 0, {Pure: true, Writes: true}: 1, {Writes: true}: 1, {Reads: true, Writes: true}: 1, {Network: true}: 2,
		{Writes: true, Network: true}: 2, {Exec: true}: 2, {Destructive: true}: 3, {Exec: true, Destructive: true}: 3,
	} {
		kit.Equal(t, e.Tier(), want, "%+v: tier", e)
	}
}

func TestJoinedEffectsArePureOnlyIfNothingChanges(t *testing.T) {
	pure := tool.Effects{Pure: true}
	for _, other := range []tool.Effects{{Writes: true}, {Network: true}, {Exec: true}, {Destructive: true}} {
		if got := pure.Add(other); got != other {
			t.Errorf("pure and %v: %v", other.Words(), got.Words())
		}
		if got := other.Add(pure); got != other {
			t.Errorf("%v and pure: %v", other.Words(), got.Words())
		}
	}
	for _, other := range []tool.Effects{{}, pure} { // a place that knows nothing takes nothing away
		if got := pure.Add(other); got != pure {
			t.Errorf("pure and %v: %v", other.Words(), got.Words())
		}
	}
}
