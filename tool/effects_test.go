package tool_test

import (
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestTheTierOfEffects(t *testing.T) {
	for e, want := range map[tool.Effects]int{
		{}: 0, {Reads: true}: 0, {Idempotent: true}: 0, {Writes: true}: 1, {Reads: true, Writes: true}: 1, {Network: true}: 2,
		{Writes: true, Network: true}: 2, {Exec: true}: 2, {Destructive: true}: 3, {Exec: true, Destructive: true}: 3,
	} {
		kit.Equal(t, e.Tier(), want, "%+v: tier", e)
	}
}
