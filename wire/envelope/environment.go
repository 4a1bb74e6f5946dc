package envelope

import (
	"cmp"
	"context"

	"toolpost/tool"
)

// Environment fills in calls from the environment of a program that was started for them, for protocols that cannot
// carry these values. The call's own values take precedence; of two timeouts the shorter one counts, and a dry run
// stays one.
//
// Unlike headers, unknown variables that look like ours are not refused: TOOLPOST_ is also the prefix of the program's
// own variables, and of those that people choose for its tokens.
func Environment(getenv func(string) string) (tool.Middleware, error) {
	given := contents{Call: new(tool.Call)}
	for _, f := range fields {
		text := getenv(f.variable) // "" has no value
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
