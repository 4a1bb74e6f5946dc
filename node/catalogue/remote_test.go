package catalogue

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"toolpost/engine"
	"toolpost/engine/pin"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/tool"
)

// Another node takes no source from this one: what it brings under the same name counts only while this node's own is dead.
func TestASourceOfThisNodeIsItsOwn(t *testing.T) {
	remote := func(name string) engine.Binding { return engine.Binding{Name: name, Remote: true} }
	c := &Catalogue{env: Env{Remote: func() []engine.Binding { return []engine.Binding{remote("open"), remote("dead"), remote("far")} }}}
	for _, b := range c.withRemote([]engine.Binding{{Name: "toolpost"}, {Name: "open"}, {Name: "dead", Err: errors.New("it does not open")}}) {
		kit.Equal(t, b.Remote, b.Name == "dead" || b.Name == "far", b.Name)
	}
}

// The tools of other nodes are compared with their pins again, too, once the store can be asked.
func TestToolsOfOtherNodesAreNotHeldForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		far := []engine.Binding{{Name: "far", Protocol: "mcp", Runner: bringing{}, Upstream: true, Remote: true}}
		pins := &pin.Registry{Pins: &awayPins{Pins: new(store.Pins)}, Lasting: true}
		c := &Catalogue{
			env:    Env{Remote: func() []engine.Binding { return far }, Pins: pins},
			engine: engine.New(engine.Options{Pins: pins, Log: slog.New(slog.DiscardHandler)}),
		}
		defer func() { kit.OK(t, c.engine.Close(t.Context())) }()
		c.engine.Replace(t.Context(), far)
		kit.Equal(t, len(c.Held()), 1)
		go c.watchPins(ctx)
		pins.Pins.(*awayPins).back.Store(true)
		kit.Eventually(t, "it is not held any more", func() bool { return len(c.Held()) == 0 })
	})
}

// An awayPins is a store of pins that cannot be read at first.
type awayPins struct {
	pin.Pins
	back atomic.Bool
}

func (p *awayPins) Of(ctx context.Context, source string) ([]pin.Pin, error) {
	if !p.back.Load() {
		return nil, errors.New("away")
	}
	return p.Pins.Of(ctx, source)
}

// A bringing is a runner of one tool.
type bringing struct{}

func (bringing) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: "look"}}, nil
}

func (bringing) Invoke(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true}, nil
}

func (bringing) Close(context.Context) error { return nil }
