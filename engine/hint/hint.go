// Package hint is the stage that appends to the message of a failed call what the walls around its tool stopped, and
// the config line that would allow it. One place serves every protocol: each starter of a program behind walls reports
// attempts through the events of the call, and each reader of an error reads its end.
package hint

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Stage returns the stage of a tool, or nil if no program is started for it.
func Stage(spec *tool.Spec) tool.Middleware {
	if spec.Walls == "" || spec.Room != nil && spec.Room.Fixed {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			seen := &seen{out: out}
			r, err := next.Invoke(ctx, c, seen)
			switch {
			case err != nil:
				e := *tool.AsError(err)
				e.Message += walls.Hint(spec, seen.all(), e.Message)
				return nil, &e
			case !r.OK && r.Failure != nil:
				return hinted(r, walls.Hint(spec, seen.all(), r.Failure.Message)), nil
			}
			return r, nil
		})
	}
}

// hinted returns a failed result with a hint at the end, also of the content that MCP doors show.
func hinted(r *tool.Result, hint string) *tool.Result {
	told, failed := *r, *r.Failure
	failed.Message += hint
	told.Failure = &failed
	if r.Content != nil && hint != "" {
		content, text := *r.Content, `{"type":"text","text":`+string(strictjson.Quote(strings.TrimLeft(hint, "; ")))+`}`
		content.Blocks = append(slices.Clip(content.Blocks), json.RawMessage(text))
		told.Content = &content
	}
	return &told
}

// seen passes events on, and remembers those that were stopped.
type seen struct {
	out tool.Sink

	mu      sync.Mutex
	blocked []tool.Blocked
}

// most limits how many attempts of one call are remembered.
const most = 64

// Emit implements tool.Sink.
func (s *seen) Emit(e tool.Event) error {
	if e.Blocked != nil {
		s.mu.Lock()
		if len(s.blocked) < most {
			s.blocked = append(s.blocked, *e.Blocked)
		}
		s.mu.Unlock()
	}
	return s.out.Emit(e)
}

func (s *seen) all() []tool.Blocked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked
}
