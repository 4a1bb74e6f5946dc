package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"toolpost/engine/follow"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// How long a follower waits for a lost server, from the first retry to the last.
const (
	againFirst = time.Second
	againLast  = 10 * time.Second
	againFor   = 2 * time.Minute
)

// A following is one of our tools that report events, and how it is followed.
type following struct {
	own
	args     map[string]any
	numbered bool // its events have numbers, and a call can go on after one of them
	once     bool // one call is enough
}

// followOwn repeatedly calls a tool, until ctx ends. Each call ends after an hour, and the next continues after it. A server
// that goes away, as for a restart, is waited for. The function each receives every event and returns its number, or 0 if it
// has none.
func (a *app) followOwn(ctx context.Context, f following, each func(tool.Log) (int64, error)) error {
	b, err := f.open(ctx, a)
	if err != nil {
		return err
	}
	defer b.close()
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
		begun, args := time.Now(), maps.Clone(f.args)
		if f.numbered && after != nil {
			args["after"] = *after
		}
		w, err := use[follow.Watched](ctx, a, b, f.own, tool.Call{Args: raw(args)}, sink)
		switch code := tool.CodeOf(err); {
		case f.once:
			return err
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
