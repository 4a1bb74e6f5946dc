// Package pin remembers what the tools of other people's servers said of themselves when they were first seen. A tool
// that says something else later is held back until an operator has looked at it: what a model is told about a tool
// decides what it does with it, and a server could have said something harmless on the day when somebody chose it.
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

// A Pin is what one tool of a source is known by.
type Pin struct {
	Source string
	Name   string // the source's own name for the tool
	Digest string // of Face
	Face   json.RawMessage
	Seen   time.Time // when the tool was first seen
	// Who approved what it says now, and when; nobody: it is as it was first seen.
	By       string
	Approved time.Time
}

// A Change puts a pin in the place of another one of the same tool. Without Was the tool has none: if it has one by
// then, that one stays. Without a digest the tool is forgotten.
type Change struct {
	Was string // the digest of the pin that there is
	Pin
}

// Pins keeps pins, for all programs that share it.
type Pins interface {
	// Of gives the pins of a source.
	Of(ctx context.Context, source string) ([]Pin, error)
	// Change makes all changes or none. It refuses with a conflict where a pin is not the one that a change says.
	Change(ctx context.Context, changes []Change) error
	// Revision gives a number that is another one when any pin has changed.
	Revision(ctx context.Context) (int64, error)
}

// face is what is pinned of a tool: what it says of itself to people, models and rules. How long it may run and behind
// which walls is left out: that is decided here, or is for the other side to know.
type face struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitzero"`
	Description string          `json:"description,omitzero"`
	Aliases     []string        `json:"aliases,omitzero"`
	Input       json.RawMessage `json:"input,omitzero"`
	Output      json.RawMessage `json:"output,omitzero"`
	Effects     tool.Effects    `json:"effects,omitzero"`
	Tier        int             `json:"tier,omitzero"`
	Safe        bool            `json:"declared_safe,omitzero"` // tier 0 is what it says, whatever its effects
	Guarantees  tool.Guarantees `json:"guarantees,omitzero"`
}

// Of makes the pin of a tool as it is now.
func Of(source string, s *tool.Spec) (Pin, error) {
	b, err := strictjson.Marshal(face{
		Name: s.Name, Title: s.Title, Description: s.Description, Aliases: s.Aliases, Input: canonical(s.Input),
		Output: canonical(s.Output), Effects: s.Effects, Tier: s.Tier, Guarantees: s.Guarantees,
		Safe: s.Tier == 0 && s.TierDeclared(),
	})
	sum := sha256.Sum256(b)
	return Pin{Source: source, Name: s.Name, Digest: hex.EncodeToString(sum[:]), Face: b}, err
}

// canonical writes a schema with its members in order and without spaces: a server that writes the same in another
// order has not changed. What is no JSON stays as it is, in quotes.
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

// Spec is the tool as it was pinned.
func (p Pin) Spec() *tool.Spec {
	var f face
	_ = strictjson.Unmarshal(p.Face, &f) // one that cannot be read is a tool of which nothing is known but its name
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

// A Verdict is what pins say about the tools that a source brings.
type Verdict struct {
	Seen map[string]time.Time // when each was first seen, by its source's name for it
	Held map[string]*Held     // those that are held back, likewise
	Gone []Pin                // those that the source does not bring now
}

// A Book compares tools with their pins.
type Book struct {
	Pins Pins
	// Lasting says that pins are still there when the program starts again.
	Lasting bool
}

// maxKept bounds what is kept of one source: a server that brings other tools each time must not fill the store.
const maxKept = 64 << 20

// Check compares the tools of a source with their pins, and pins those that it sees for the first time. Where that
// cannot be done all are held back: to take them as they are would let a server say anything while the store is away.
func (b *Book) Check(ctx context.Context, source string, specs []*tool.Spec) *Verdict {
	v := &Verdict{Seen: map[string]time.Time{}, Held: map[string]*Held{}}
	for range 3 { // others may pin the same tools meanwhile, and a tool that they forget is new again
		known, err := b.of(ctx, source)
		if err != nil {
			return v.holdAll(source, specs, unchecked(err))
		}
		fresh := v.compare(source, specs, known)
		if len(fresh) == 0 {
			return v
		}
		if err := b.Pins.Change(ctx, fresh); err != nil {
			return v.holdAll(source, specs, unchecked(err))
		}
	}
	return v.holdAll(source, specs, unchecked(fmt.Errorf("other programs change them all the time")))
}

func (b *Book) of(ctx context.Context, source string) (map[string]Pin, error) {
	list, err := b.Pins.Of(ctx, source)
	known := make(map[string]Pin, len(list))
	for _, p := range list {
		known[p.Name] = p
	}
	return known, err
}

// compare fills a verdict, and gives what is to be pinned for the first time.
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

// latest is when a tool was seen of which that is not known: all others come before it.
func latest() time.Time { return time.Unix(1<<40, 0) }

func (v *Verdict) holdAll(source string, specs []*tool.Spec, why error) *Verdict {
	clear(v.Held)
	for _, s := range specs {
		v.hold(Pin{}, Pin{Source: source, Name: s.Name}, why)
	}
	return v
}

// The reasons for which a tool is held back, for programs.
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

// Approve pins what tools say now. It refuses where somebody else was faster.
func (b *Book) Approve(ctx context.Context, by string, held []*Held) error {
	now := time.Now()
	changes := make([]Change, len(held))
	for i, h := range held {
		changes[i] = Change{h.Was.Digest, h.Now}
		changes[i].By, changes[i].Approved = by, now
		if h.Was.Digest == "" { // else it keeps the time by which it is decided whose name it is
			changes[i].Seen = now
		}
	}
	return b.Pins.Change(ctx, changes)
}

// Forget drops pins: a tool that comes again is seen for the first time.
func (b *Book) Forget(ctx context.Context, pins []Pin) error {
	changes := make([]Change, len(pins))
	for i, p := range pins {
		changes[i] = Change{p.Digest, Pin{Source: p.Source, Name: p.Name}}
	}
	return b.Pins.Change(ctx, changes)
}
