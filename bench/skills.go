package main

import (
	"context"
	"path/filepath"

	"toolpost/bench/attempt"
	"toolpost/protocol/alphahuman"
)

const skillConfig = `sources: [{name: skill, protocol: alphahuman, skill: ./hello}]
`

// skillCall compares a call through the whole engine to a skill that runs already with a line to the same
// program and a line back.
func skillCall(ctx context.Context, l *lab) row {
	dir := filepath.Join(l.dir, "skill")
	skill := attempt.Must(alphahuman.Skills{}.New(dir, "hello"))
	n := l.open(ctx, dir, map[string]string{"toolpost.yaml": skillConfig})
	bare := l.start(ctx, skill, "python3", "skill.py")
	m, r := compare(301,
		batch(20, greet(ctx, n, "greet")),
		batch(20, func() error { return bare.turns(1, greetLine, "Hello Ada") }))
	return asLong(m, r, us, 1.7)
}
