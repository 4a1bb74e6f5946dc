// Package pin remembers how the tools of third-party servers described themselves when they were first seen. A tool
// whose description changes later is held back until an operator has reviewed it. The description of a tool decides what
// a model does with it, and a server may have been harmless only on the day it was chosen.
package pin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Pin identifies one tool of a source.
type Pin struct {
	Source string
	Name   string // the source's own name for the tool
	Digest string // of Face
	Face   json.RawMessage
	Seen   time.Time // when the tool was first seen
	// Who approved its present description, and when; empty if it is as first seen.
	By       string
	Approved time.Time
}

// A Change replaces the pin of a tool. If Was is empty, the tool has no pin; if it got one meanwhile, that one stays. A
// change without a digest removes the pin.
type Change struct {
	Was string // the digest of the present pin
	Pin
}

// Pins keeps pins, for all processes that share it.
type Pins interface {
	// Of returns the pins of a source.
	Of(ctx context.Context, source string) ([]Pin, error)
	// Change makes all changes or none. It fails with a conflict if a pin does not match the Was of its change.
	Change(ctx context.Context, changes []Change) error
	// Revision returns a number that differs whenever any pin has changed.
	Revision(ctx context.Context) (int64, error)
}

// face is the pinned part of a tool: what it tells people, models and rules about itself. Its time limit and its walls
// are left out: they are decided here, or concern only the other side.
type face struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitzero"`
	Description string          `json:"description,omitzero"`
	Aliases     []string        `json:"aliases,omitzero"`
	Input       json.RawMessage `json:"input,omitzero"`
	Output      json.RawMessage `json:"output,omitzero"`
	Effects     tool.Effects    `json:"effects,omitzero"`
	Tier        int             `json:"tier,omitzero"`
	Safe        bool            `json:"declared_safe,omitzero"` // it declares tier 0, whatever its effects
	Guarantees  tool.Guarantees `json:"guarantees,omitzero"`
}

// Of returns the pin of a tool as it is now.
func Of(source string, s *tool.Spec) (Pin, error) {
	b, err := strictjson.Marshal(face{
		Name: s.Name, Title: s.Title, Description: s.Description, Aliases: s.Aliases, Input: canonical(s.Input),
		Output: canonical(s.Output), Effects: s.Effects, Tier: s.Tier, Guarantees: s.Guarantees,
		Safe: s.Tier == 0 && s.TierDeclared(),
	})
	sum := sha256.Sum256(b)
	return Pin{Source: source, Name: s.Name, Digest: hex.EncodeToString(sum[:]), Face: b}, err
}

// canonical writes a schema with its members in order and without spaces: a server that only changes the order has not
// changed. Invalid JSON is kept as it is, in quotes.
func canonical(schema json.RawMessage) json.RawMessage {
	if len(schema) == 0 {
		return nil
	}
	if v, err := strictjson.Decode(schema); err == nil {
		if b, err := strictjson.Marshal(v); err == nil {
			return b
		}
	}
	return strictjson.Quote([]byte(schema))
}

// Spec returns the tool as it was pinned.
func (p Pin) Spec() *tool.Spec {
	var f face
	_ = strictjson.Unmarshal(p.Face, &f) // if it cannot be parsed, only the name is known
	s := &tool.Spec{
		Name: p.Name, Title: f.Title, Description: f.Description, Aliases: f.Aliases, Input: f.Input,
		Output: f.Output, Effects: f.Effects, Tier: f.Tier, Guarantees: f.Guarantees,
	}
	if f.Safe {
		s.TierFrom = tool.TierTool
	}
	return s
}

// A Held is a tool that is held back.
type Held struct {
	Was, Now Pin
	Why      error
}

// A Verdict is the result of comparing the tools of a source with their pins.
type Verdict struct {
	Seen map[string]time.Time // when each was first seen, by its name at the source
	Held map[string]*Held     // the tools that are held back, likewise
	Gone []Pin                // the tools that the source does not bring now
}

// A Registry compares tools with their pins.
type Registry struct {
	Pins Pins
	// Lasting is set if pins survive a restart.
	Lasting bool
}

// maxKept limits what is kept of one source, in bytes: a server that brings other tools each time must not fill the
// store.
const maxKept = 64 << 20

// Check compares the tools of a source with their pins, and pins tools that it sees for the first time. If that fails,
// all are held back: otherwise a server could change its descriptions while the store is down.
func (r *Registry) Check(ctx context.Context, source string, specs []*tool.Spec) *Verdict {
	v := &Verdict{Seen: map[string]time.Time{}, Held: map[string]*Held{}}
	for range 3 { // other processes may pin the same tools meanwhile, and a tool that they forget is new again
		known, err := r.of(ctx, source)
		if err != nil {
			return v.holdAll(source, specs, unchecked(err))
		}
		fresh := v.compare(source, specs, known)
		if len(fresh) == 0 {
			return v
		}
		if err := r.Pins.Change(ctx, fresh); err != nil {
			return v.holdAll(source, specs, unchecked(err))
		}
	}
	return v.holdAll(source, specs, unchecked(fmt.Errorf("other programs change them all the time")))
}

func (r *Registry) of(ctx context.Context, source string) (map[string]Pin, error) {
	list, err := r.Pins.Of(ctx, source)
	known := make(map[string]Pin, len(list))
	for _, p := range list {
		known[p.Name] = p
	}
	return known, err
}

// compare fills a verdict, and returns the tools to be pinned for the first time.
func (v *Verdict) compare(source string, specs []*tool.Spec, known map[string]Pin) (fresh []Change) {
	now := time.Now()
	clear(v.Seen)
	clear(v.Held)
	v.Gone = nil
	kept := 0
	for _, p := range known {
		kept += len(p.Name) + len(p.Face)
	}
	brought := map[string]bool{}
	for _, s := range specs {
		brought[s.Name] = true
		is, err := Of(source, s)
		was, pinned := known[s.Name]
		switch {
		case err != nil:
			v.hold(was, is, unchecked(err))
		case pinned && was.Digest != is.Digest:
			v.hold(was, is, changed())
		case pinned:
			v.Seen[s.Name] = was.Seen
		case kept+len(is.Name)+len(is.Face) > maxKept:
			v.hold(was, is, tooMuch())
		default:
			kept += len(is.Name) + len(is.Face)
			is.Seen = now
			fresh = append(fresh, Change{Pin: is})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !brought[name] {
			v.Gone = append(v.Gone, known[name])
		}
	}
	return fresh
}

func (v *Verdict) hold(was, is Pin, why error) {
	is.Seen = was.Seen
	v.Held[is.Name], v.Seen[is.Name] = &Held{Was: was, Now: is, Why: why}, is.Seen
	if was.Digest == "" {
		v.Seen[is.Name] = latest()
	}
}

// latest is the time for a tool whose first sight is unknown: all others come before it.
func latest() time.Time { return time.Unix(1<<40, 0) }

func (v *Verdict) holdAll(source string, specs []*tool.Spec, why error) *Verdict {
	clear(v.Held)
	for _, s := range specs {
		v.hold(Pin{}, Pin{Source: source, Name: s.Name}, why)
	}
	return v
}

// The machine-readable reasons for which a tool is held back.
const (
	ReasonChanged   = "held_changed"
	ReasonUnchecked = "held_unchecked"
	ReasonTooMuch   = "held_too_much"
)

func changed() error {
	return tool.Errorf(tool.CodeUnavailable, "changed since it was first seen: toolpost tools review").
		Because(ReasonChanged)
}

func tooMuch() error {
	return tool.Errorf(tool.CodeUnavailable, "its source has brought more tools than are kept in mind (%d MiB): "+
		"toolpost tools approve --all SOURCE forgets those that are gone", maxKept>>20).Because(ReasonTooMuch)
}

func unchecked(err error) error {
	return tool.Errorf(tool.CodeUnavailable, "it cannot be compared with what it was when it was first seen: %w", err).
		Because(ReasonUnchecked)
}

// Approve pins the present descriptions of tools. It fails if the pins have changed meanwhile.
func (r *Registry) Approve(ctx context.Context, by string, held []*Held) error {
	now := time.Now()
	changes := make([]Change, len(held))
	for i, h := range held {
		changes[i] = Change{h.Was.Digest, h.Now}
		changes[i].By, changes[i].Approved = by, now
		if h.Was.Digest == "" { // otherwise it keeps the time that decides who owns the name
			changes[i].Seen = now
		}
	}
	return r.Pins.Change(ctx, changes)
}

// Forget drops pins: a tool that comes again counts as new.
func (r *Registry) Forget(ctx context.Context, pins []Pin) error {
	changes := make([]Change, len(pins))
	for i, p := range pins {
		changes[i] = Change{p.Digest, Pin{Source: p.Source, Name: p.Name}}
	}
	return r.Pins.Change(ctx, changes)
}
