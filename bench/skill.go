package main

import (
	"context"
	"errors"
	"path/filepath"

	"toolpost/protocol/alphahuman"
	"toolpost/tool"
)

const (
	skillConfig = `sources: [{name: skill, protocol: alphahuman, skill: ./hello}]
`
	skillLine = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}` +
		"\n"
)

// skillCall compares a call through the whole engine to a skill that runs already with a line to the same
// program and a line back.
func skillCall(ctx context.Context, l lab) (_ row, err error) {
	dir := filepath.Join(l.dir, "skill")
	skill, err := alphahuman.Skills{}.New(dir, "hello")
	if err != nil {
		return row{}, err
	}
	n, err := openNode(ctx, dir, map[string]string{"toolpost.yaml": skillConfig})
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, closeNode(n)) }()
	bare, err := startPipe(ctx, skill, "python3", "skill.py")
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	call := &tool.Call{Tool: "greet", Args: []byte(`{"name":"Ada"}`)}
	m, r, err := compare(301,
		batch(20, func() error { return wantHello(invoke(ctx, n.Handler(), call)) }),
		batch(20, func() error { return bare.turns(1, skillLine, "Hello Ada") }))
	return asLong(m, r, us, 2), err
}
