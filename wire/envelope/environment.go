package envelope

import (
	"cmp"
	"context"

	"toolpost/tool"
)

// Environment gives calls what the environment of a program says that was started for them, for protocols that have no
// place for it. What a call says itself goes first; of two times the shorter one counts, and a dry run stays one.
//
// Variables that are nearly ours are not refused, unlike headers: TOOLPOST_ also begins the names of variables for the
// program itself, and of those that people choose for its tokens.
func Environment(getenv func(string) string) (tool.Middleware, error) {
	given := contents{Call: new(tool.Call)}
	for _, f := range fields {
		text := getenv(f.variable) // that of no name is empty
		if text == "" {
			continue
		}
		if err := f.read(&given, text); err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the environment variable %s %w", f.variable, err)
		}
	}
	return given.fill, nil
}

// fill is the middleware.
func (given contents) fill(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		with := *c
		with.Session, with.Key = cmp.Or(c.Session, given.Session), cmp.Or(c.Key, given.Key)
		with.Lease, with.Run = cmp.Or(c.Lease, given.Lease), cmp.Or(c.Run, given.Run)
		with.DryRun = c.DryRun || given.DryRun
		if c.Trace == "" { // a span belongs to its trace
			with.Trace, with.Span = given.Trace, given.Span
		}
		if c.Resume == "" && c.Answers == nil { // and answers to their question
			with.Resume, with.Answers = given.Resume, given.Answers
		}
		ctx, stop := Within(ctx, given.timeout, c.Tool)
		defer stop()
		return next.Invoke(ctx, &with, out)
	})
}
