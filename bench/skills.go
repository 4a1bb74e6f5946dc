package main

import (
	"context"
	"os"

	"toolpost/bench/attempt"
	"toolpost/protocol/alphahuman"
)

const skillConfig = `sources: [{name: skill, protocol: alphahuman, skill: ./hello}]
`

// skill returns a function that calls a skill through the whole engine, and the same program alone.
func skill(ctx context.Context, l *lab) (call func() error, bare *pipe, line string) {
	dir := attempt.Must(os.MkdirTemp(l.dir, "skill")) // each row has its own
	folder := attempt.Must(alphahuman.Skills{}.New(dir, "hello"))
	n := l.open(ctx, dir, map[string]string{"toolpost.yaml": skillConfig})
	return greet(ctx, n, "greet"), l.start(ctx, folder, "python3", "skill.py"), greetLine
}
