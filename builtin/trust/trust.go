// Package trust has the tools by which operators decide about upstream tools that are held back: tools.review and
// tools.approve. Their calls pass the engine like any other, so that the record shows who approved what.
package trust

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/pin"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// The names of the tools.
const (
	Review  = "tools.review"
	Approve = "tools.approve"
)

// Upstream is what the tools decide about.
type Upstream interface {
	// Held lists the tools that are held back.
	Held() []*pin.Held
	// Approve lets tools be called in their current form.
	Approve(ctx context.Context, by string, held []*pin.Held) error
	// Forget drops the memory of tools that a source no longer has, and lists them.
	Forget(ctx context.Context, source string) ([]pin.Pin, error)
	// Pinned reports whether the tools of a source are pinned.
	Pinned(source string) bool
	// Lasting reports whether decisions outlive the program.
	Lasting() bool
}

// New makes the tools.
func New(u Upstream) *define.Set {
	d := decider{u}
	return define.NewSet(
		define.New(tool.Spec{
			Name: Review, Effects: tool.Effects{Reads: true},
			Description: "Lists the upstream tools that are held back, with what they said when they were approved or first " +
				"seen and what they say now. For operators.",
		}, define.ForOperators("review tools", d.review)),
		define.New(tool.Spec{
			Name:        Approve,
			Description: "Lets upstream tools that were held back be called again, as they are now. For operators.",
		}, define.ForOperators("approve tools", d.approve)),
	)
}

type decider struct{ up Upstream }

// A Held is a tool that is held back, as operators see it. Nothing in it is hidden.
type Held struct {
	Tool     string    `json:"tool"` // source.name
	Source   string    `json:"source"`
	Name     string    `json:"name"`
	Digest   string    `json:"digest"` // of its current text; empty if it could not be compared
	Why      string    `json:"why"`
	Reason   string    `json:"reason"`
	Seen     time.Time `json:"seen,omitzero"`     // when it was first seen
	Approved time.Time `json:"approved,omitzero"` // when it was last approved
	By       string    `json:"by,omitzero"`       // by whom
	Changes  []Change  `json:"changes,omitzero"`
}

// A Change is one part of a tool that has changed.
type Change struct {
	Part string `json:"part"`
	Was  string `json:"was"`
	Now  string `json:"now"`
}

// Reviewed is the output of tools.review.
type Reviewed struct {
	Held    []Held `json:"held"`
	Lasting bool   `json:"lasting" doc:"whether decisions are still there when the program starts again"`
}

// ReviewArgs are the arguments of tools.review.
type ReviewArgs struct {
	Tools  []string `json:"tools" schema:"items.minLength=1" doc:"only these, by name or source.name; default: all"`
	Source string   `json:"source" doc:"only those of this source"`
}

func (d decider) review(_ context.Context, c *define.Call, a ReviewArgs) (Reviewed, error) {
	all := d.up.Held()
	if len(a.Tools)+len(a.Source) > 0 {
		some, err := d.choose(all, a)
		if err != nil {
			return Reviewed{}, err
		}
		all = some
	}
	out := Reviewed{Held: []Held{}, Lasting: d.up.Lasting()}
	for _, h := range all {
		out.Held = append(out.Held, show(h))
	}
	c.Summary = fmt.Sprintf("held back: %s", define.Count(len(all), "tool"))
	return out, nil
}

// Approved is the output of tools.approve.
type Approved struct {
	Approved  []Held   `json:"approved"`
	Forgotten []string `json:"forgotten,omitzero" doc:"tools that the source does not bring any more"`
	Lasting   bool     `json:"lasting" doc:"whether the decision is still there when the program starts again"`
}

// ApproveArgs are the arguments of tools.approve.
type ApproveArgs struct {
	Tools  []string `json:"tools" schema:"items.minLength=1" doc:"names, also with @ and a digest, which they must still have"`
	Source string   `json:"source" doc:"every tool of this source that is held back"`
}

func (d decider) approve(ctx context.Context, c *define.Call, a ApproveArgs) (out Approved, err error) {
	if len(a.Tools) == 0 && a.Source == "" {
		return out, tool.Errorf(tool.CodeInvalidInput, "%s needs tools, or a source all of whose tools are approved", c.Tool)
	}
	some, err := d.choose(d.up.Held(), ReviewArgs(a))
	if err != nil {
		return out, err
	}
	for _, h := range some {
		if h.Now.Digest == "" {
			return out, tool.Errorf(tool.CodeUnavailable, "%s cannot be approved: %s", title(h), tool.AsError(h.Why).Message)
		}
	}
	if err := d.up.Approve(ctx, c.Caller.ID, some); err != nil {
		return out, err
	}
	out = Approved{Approved: []Held{}, Lasting: d.up.Lasting()}
	for _, h := range some {
		out.Approved = append(out.Approved, show(h))
	}
	if a.Source != "" {
		gone, err := d.up.Forget(ctx, a.Source)
		if err != nil {
			return out, err
		}
		for _, p := range gone {
			out.Forgotten = append(out.Forgotten, tool.VisibleName(p.Name))
		}
	}
	c.Summary = fmt.Sprintf("approved: %s", define.Count(len(some), "tool"))
	return out, nil
}

// choose finds the selected tools among those that are held back.
func (d decider) choose(all []*pin.Held, a ReviewArgs) (some []*pin.Held, err error) {
	if a.Source != "" && !d.up.Pinned(a.Source) {
		return nil, tool.Errorf(tool.CodeNotFound, "there is no source %q whose tools are pinned; `toolpost sources` lists "+
			"the sources", a.Source)
	}
	chosen := map[*pin.Held]bool{}
	for _, word := range a.Tools {
		h, err := find(all, word)
		if err != nil {
			return nil, err
		}
		chosen[h] = true
	}
	for _, h := range all {
		if chosen[h] || h.Now.Source == a.Source {
			some = append(some, h)
		}
	}
	return some, nil
}

// minDigest is the shortest accepted prefix of a digest: 64 bits. A server could search for a second text with the same 48.
const minDigest = 16

// withDigest matches a name followed by the digest of its tool.
var withDigest = regex.Lazy(`^(.+)@([0-9a-f]{` + strconv.Itoa(minDigest) + `,64})$`)

// find returns the tool that a word names. A suffix that looks like a digest is one: otherwise a server could name another
// of its tools like the name and digest of a reviewed one. A tool whose name ends so must be given with its own digest after
// it.
func find(all []*pin.Held, word string) (*pin.Held, error) {
	name, digest := word, ""
	if parts := withDigest().FindStringSubmatch(word); parts != nil {
		name, digest = parts[1], parts[2]
	}
	var found []*pin.Held
	for _, h := range all {
		if name == title(h) || name == tool.VisibleName(h.Now.Name) {
			found = append(found, h)
		}
	}
	switch {
	case len(found) == 1 && !strings.HasPrefix(found[0].Now.Digest, digest):
		return nil, tool.Errorf(tool.CodeConflict, "%s says something else now than what you looked at; look again with "+
			"`toolpost tools review`", name)
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, tool.Errorf(tool.CodeConflict, "several sources have a tool %s that is held back: say which, as %s",
			name, title(found[0]))
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool %q is held back; `toolpost tools review` lists those that are",
		word)
}

func title(h *pin.Held) string { return h.Now.Source + "." + tool.VisibleName(h.Now.Name) }

func show(h *pin.Held) Held {
	why := tool.AsError(h.Why)
	out := Held{
		Tool: title(h), Source: h.Now.Source, Name: tool.VisibleName(h.Now.Name), Digest: h.Now.Digest,
		Why: why.Message, Reason: why.Reason, Seen: h.Was.Seen, Approved: h.Was.Approved, By: h.Was.By,
	}
	was, now := h.Was.Spec(), h.Now.Spec()
	for _, part := range parts() {
		if a, b := part.of(was), part.of(now); a != b {
			out.Changes = append(out.Changes, Change{part.name, tool.Visible(a), tool.Visible(b)})
		}
	}
	return out
}

// A part is a part of a tool's description, as text.
type part struct {
	name string
	of   func(*tool.Spec) string
}

func parts() []part {
	return []part{
		{"title", func(s *tool.Spec) string { return s.Title }},
		{"description", func(s *tool.Spec) string { return s.Description }},
		{"aliases", func(s *tool.Spec) string { return strings.Join(s.Aliases, "\n") }},
		{"arguments", func(s *tool.Spec) string { return indented(s.Input) }},
		{"output", func(s *tool.Spec) string { return indented(s.Output) }},
		{"effects", func(s *tool.Spec) string { return strings.Join(s.Effects.Words(), "\n") }},
		{"tier", func(s *tool.Spec) string {
			settled := *s
			settled.SettleTier()
			return fmt.Sprint(settled.Tier)
		}},
		{"guarantees", func(s *tool.Spec) string { return strings.Join(s.Guarantees.Asked(), "\n") }},
	}
}

func indented(schema json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, schema, "", "  ") != nil {
		return string(schema)
	}
	return b.String()
}
