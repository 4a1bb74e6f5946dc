package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A callFilter selects calls; all commands that show calls have the same flags for it.
type callFilter struct{ tool, caller, session, run, outcome string }

func (f *callFilter) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.tool, "tool", "", "only calls of a tool")
	flags.StringVar(&f.caller, "caller", "", "only calls of a caller")
	flags.StringVar(&f.session, "session", "", "only calls of a session")
	flags.StringVar(&f.run, "run", "", "only calls of a run of an agent")
	flags.StringVar(&f.outcome, "outcome", "", "only calls with this outcome: ok, failed, asked, refused, error, lost")
}

func (f *callFilter) check() error {
	if f.outcome != "" && !slices.Contains(tool.Outcomes(), tool.Outcome(f.outcome)) {
		return tool.Errorf(tool.CodeInvalidInput, "%q is not an outcome; there are %s", f.outcome, tool.Words(tool.Outcomes()))
	}
	return nil
}

// How long a follower waits for a lost server, from the first retry to the last.
const (
	againFirst = time.Second
	againLast  = 10 * time.Second
	againFor   = 2 * time.Minute
)

// followOwn repeatedly calls one of our tools that report events, until ctx ends. Each call ends after an hour, and the next
// continues after it. A server that goes away, as for a restart, is waited for. The function each receives every event and
// returns its number, or 0 if it has none.
func (a *app) followOwn(
	ctx context.Context, b *backend, name, does string, args func(after *int64) any, each func(tool.Log) (int64, error),
) error {
	var after *int64
	var away time.Time
	pause := againFirst
	sink := tool.SinkFunc(func(ev tool.Event) error {
		var log tool.Log
		if err := strictjson.Unmarshal(ev.Data, &log); ev.Kind != tool.KindLog || err != nil {
			return err
		}
		seen, err := each(log)
		if seen > 0 {
			after, away, pause = &seen, time.Time{}, againFirst
		}
		return err
	})
	for {
		var w struct {
			Next int64 `json:"next"`
		}
		begun := time.Now()
		err := a.callOwnTo(ctx, b, tool.Call{Tool: name, Args: raw(args(after))}, sink, does, &w)
		switch code := tool.CodeOf(err); {
		case ctx.Err() != nil: // the user ends it this way
			return nil
		case err == nil:
			after, away, pause = &w.Next, time.Time{}, againFirst
			if time.Since(begun) > pause { // otherwise the server is about to end, and is not asked at once
				continue
			}
		case a.server.url == "" || after == nil || code != tool.CodeUnavailable && code != tool.CodeCrash:
			return err
		case away.IsZero():
			away = time.Now()
			fmt.Fprintf(a.err, "%s\n", a.err.amber("the server went away; waiting for it"))
		case time.Since(away) > againFor:
			return err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, againLast)
		case <-ctx.Done():
		}
	}
}

// alone notes that the output is about this process only, if no server is named.
func (a *app) alone() {
	if a.server.url == "" && !a.json {
		fmt.Fprintln(a.err, "this is about this process alone; --server URL names one that serves")
	}
}
