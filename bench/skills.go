package main

import (
	"context"
	"path/filepath"

	"toolpost/bench/attempt"
	"toolpost/protocol/alphahuman"
)

const skillConfig = `sources: [{name: skill, protocol: alphahuman, skill: ./hello}]
`

// skill returns a function that calls a skill through the whole engine, and the same program alone.
func skill(ctx context.Context, l *lab) (call func() error, bare *pipe, line string) {
	dir := filepath.Join(l.dir, "skill")
	folder := attempt.Must(alphahuman.Skills{}.New(dir, "hello"))
	n := l.open(ctx, dir, map[string]string{"toolpost.yaml": skillConfig})
	return greet(ctx, n, "greet"), l.start(ctx, folder, "python3", "skill.py"), greetLine
}
