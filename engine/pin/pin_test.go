package pin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"toolpost/engine/pin"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// kept keeps pins as the tests need it; package storetest tests the durable ones.
type kept struct {
	pins map[string]pin.Pin
	err  error
}

func (k *kept) Of(context.Context, string) (list []pin.Pin, _ error) {
	for _, p := range k.pins {
		list = append(list, p)
	}
	return list, k.err
}

func (k *kept) Change(_ context.Context, changes []pin.Change) error {
	for _, c := range changes {
		if was, is := k.pins[c.Name]; is && c.Was == "" || was.Digest != c.Was {
			continue
		}
		k.pins[c.Name] = c.Pin
	}
	return k.err
}

func (k *kept) Revision(context.Context) (int64, error) { return 0, k.err }

func full() *tool.Spec {
	return &tool.Spec{
		Name: "echo", Title: "Echo", Description: "Says it again.", Aliases: []string{"say"},
		Input:  json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"},"b":{"minimum":1.0}}}`),
		Output: json.RawMessage(`{"type":"object"}`), Effects: tool.Effects{Reads: true}, Tier: 1,
		Guarantees: tool.Guarantees{NoNetwork: true},
	}
}

// saysItIsSafe pins a tool that declares tier 0 whatever its effects, and checks that a tool without a declaration has
// another pin.
func saysItIsSafe(t *testing.T) tool.TierFrom {
	silent := &tool.Spec{Name: "rm", Effects: tool.Effects{Destructive: true}}
	safe := *silent
	safe.Declare(new(int), tool.TierTool)
	a, err := pin.Of("up", silent)
	b, err2 := pin.Of("up", &safe)
	if err != nil || err2 != nil || a.Digest == b.Digest {
		t.Errorf("the two have the pins %s and %s, %v, %v", a.Face, b.Face, err, err2)
	}
	return b.Spec().TierFrom
}

func TestEveryFieldOfASpecIsPinned(t *testing.T) {
	kit.Equal(t, saysItIsSafe(t), tool.TierTool, "a tool that declares tier 0 is pinned with a tier from")
	for what, change := range map[string]func(*tool.Spec){
		"title":       func(s *tool.Spec) { s.Title = "echo" },
		"description": func(s *tool.Spec) { s.Description += "\u200b" },
		"aliases":     func(s *tool.Spec) { s.Aliases = append(s.Aliases, "readFile") },
		"input":       func(s *tool.Spec) { s.Input = json.RawMessage(strings.Replace(string(s.Input), "1.0", "1", 1)) },
		"output":      func(s *tool.Spec) { s.Output = nil },
		"effects":     func(s *tool.Spec) { s.Effects.Idempotent = true },
		"tier":        func(s *tool.Spec) { s.Tier = 0 },
		"guarantees":  func(s *tool.Spec) { s.Guarantees = tool.Guarantees{} },
	} {
		registry := &pin.Registry{Pins: &kept{pins: map[string]pin.Pin{}}}
		if v := registry.Check(t.Context(), "up", []*tool.Spec{full()}); len(v.Held) != 0 || v.Seen["echo"].IsZero() {
			t.Fatalf("at first sight: %+v", v)
		}
		other := full()
		change(other)
		v := registry.Check(t.Context(), "up", []*tool.Spec{other})
		held := v.Held["echo"]
		if held == nil || tool.AsError(held.Why).Reason != pin.ReasonChanged || held.Was.Digest == held.Now.Digest {
			t.Fatalf("another %s: %+v", what, held)
		}
		if was := held.Was.Spec(); was.Description != full().Description || was.Aliases[0] != "say" || was.Tier != 1 {
			t.Errorf("it was %+v", was)
		}
		kit.OK(t, registry.Approve(t.Context(), "ada", []*pin.Held{held}))
		if v := registry.Check(t.Context(), "up", []*tool.Spec{other}); len(v.Held) != 0 {
			t.Errorf("%s after it was approved: %+v", what, v.Held["echo"])
		}
		if v := registry.Check(t.Context(), "up", []*tool.Spec{full()}); len(v.Held) != 1 {
			t.Errorf("the %s before it was approved is taken again", what)
		}
	}
}

func TestTheSameInAnotherOrderIsNoChange(t *testing.T) {
	registry := &pin.Registry{Pins: &kept{pins: map[string]pin.Pin{}}}
	registry.Check(t.Context(), "up", []*tool.Spec{full()})
	again := full()
	again.Input = json.RawMessage("{ \"properties\": {\"b\":{\"minimum\":1.0},\n\"a\":{\"type\":\"string\"}}, \"type\":\"object\"}")
	again.Walls, again.Timeout = "others", 1
	if v := registry.Check(t.Context(), "up", []*tool.Spec{again}); len(v.Held) != 0 {
		t.Errorf("%+v", v.Held["echo"])
	}
}

func TestAToolThatComesBackIsNotNew(t *testing.T) {
	registry := &pin.Registry{Pins: &kept{pins: map[string]pin.Pin{}}}
	registry.Check(t.Context(), "up", []*tool.Spec{full()})
	if v := registry.Check(t.Context(), "up", nil); len(v.Gone) != 1 {
		t.Fatalf("%+v", v)
	}
	other := full()
	other.Description = "Sends it home."
	if v := registry.Check(t.Context(), "up", []*tool.Spec{other}); len(v.Held) != 1 {
		t.Error("a tool that went away for a moment is trusted again, whatever it says")
	}
}

func TestToolsThatCannotBeComparedAreHeldBack(t *testing.T) {
	away := errors.New("the store is away")
	for name, k := range map[string]*kept{"at first": {pins: map[string]pin.Pin{}, err: away}, "later": {pins: map[string]pin.Pin{}}} {
		registry := &pin.Registry{Pins: k}
		if name == "later" {
			registry.Check(t.Context(), "up", []*tool.Spec{full()})
			k.err = away
		}
		v := registry.Check(t.Context(), "up", []*tool.Spec{full(), {Name: "other"}})
		if len(v.Held) != 2 || tool.AsError(v.Held["echo"].Why).Reason != pin.ReasonUnchecked || !errors.Is(v.Held["echo"].Why, away) {
			t.Errorf("%s: %+v", name, v.Held)
		}
	}
}

func TestPinsOfOneSourceAreBounded(t *testing.T) {
	k := &kept{pins: map[string]pin.Pin{}}
	registry := &pin.Registry{Pins: k}
	text := strings.Repeat("x", 15<<20)
	held := 0
	for i := range 6 {
		v := registry.Check(t.Context(), "up", []*tool.Spec{{Name: fmt.Sprint("tool", i), Description: text}})
		held += len(v.Held)
	}
	if len(k.pins) != 4 || held != 2 {
		t.Errorf("%d are kept, %d held back", len(k.pins), held)
	}
}
