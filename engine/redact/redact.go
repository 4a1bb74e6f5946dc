// Package redact is the stage that removes the values of secrets from everything that a call produces: its events, its
// outcome, its error and its record.
//
// It is used in two places. Tool is the innermost stage, so that the stages in between never keep (in state, in outcomes
// for replays) a secret that a tool printed. Door is around them all, so that no client sees a secret, even if another
// part brought it: a stage that repeats an argument in its error, or a source that does not open.
//
// Both know what is secret everywhere, and what is in one call alone, such as the keys of its caller: a caller chooses those, and must not
// choose what others can read.
package redact

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"toolpost/host/secret"
	"toolpost/tool"
)

// Stage returns an engine.Stage for both places: Door in front of resolve, when no tool is known yet, and Tool behind
// it.
func Stage(r *secret.Redactor) func(*tool.Spec) tool.Middleware {
	door, inner := Door(r), Tool(r)
	return func(spec *tool.Spec) tool.Middleware {
		if spec == nil {
			return door
		}
		return inner
	}
}

// Door redacts the output of any part of the engine, each event by itself. The events of tools have no secret of their call any more.
func Door(r *secret.Redactor) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		all := stage(r, func(out tool.Sink) sink { return plain{r, out} })(next)
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			result, err := all.Invoke(ctx, c, out)
			own := secret.Of(c)
			return outcome(own, result), own.Error(err)
		})
	}
}

// Tool redacts the output of a tool. Text that comes in several output events is treated as one. The end of an event
// that may be the beginning of a secret is held back until the next event, or until the end of the call; a newline
// releases it, except for secrets of several lines. Log events are not held back; an event that continues a secret begun
// in the one before is shown without the rest of it.
func Tool(r *secret.Redactor) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return text(r)(tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if own := secret.Of(c); !own.Idle() {
				return text(own)(next).Invoke(ctx, c, out)
			}
			return next.Invoke(ctx, c, out)
		}))
	}
}

func text(r *secret.Redactor) tool.Middleware {
	return stage(r, func(out tool.Sink) sink { return &joined{plain: plain{r, out}, lines: secret.Stream{Redactor: r}} })
}

// A sink is a tool.Sink that may hold data back until the end of a call.
type sink interface {
	tool.Sink
	flush(context.Context) error
}

func stage(r *secret.Redactor, around func(tool.Sink) sink) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if r.Idle() {
				return next.Invoke(ctx, c, out)
			}
			s := around(out)
			result, err := next.Invoke(ctx, c, s)
			lost := s.flush(ctx)
			switch {
			case err != nil:
				return nil, r.Error(err)
			case lost != nil:
				return nil, lost
			}
			return outcome(r, result), nil
		})
	}
}

// outcome redacts a copy of a result, which may be shared.
func outcome(r *secret.Redactor, was *tool.Result) *tool.Result {
	if was == nil || r.Idle() {
		return was
	}
	clean := *was
	clean.Output, clean.Summary = r.JSON(was.Output), r.String(was.Summary)
	clean.Failure = r.Failure(was.Failure)
	if was.Content != nil {
		content := tool.Content{Structured: was.Content.Structured, Meta: r.JSON(was.Content.Meta)}
		for _, block := range was.Content.Blocks {
			content.Blocks = append(content.Blocks, r.JSON(block))
		}
		clean.Content = &content
	}
	if was.Ask != nil {
		ask := *was.Ask
		ask.ID, ask.Message, ask.Schema = r.String(ask.ID), r.String(ask.Message), r.JSON(ask.Schema)
		if a := was.Ask.Awaits; a != nil {
			waits := *a
			waits.Args, waits.Reason = r.JSON(a.Args), r.String(a.Reason)
			ask.Awaits = &waits
		}
		ask.Needs = slices.Clone(was.Ask.Needs)
		for i, n := range ask.Needs {
			ask.Needs[i].Message, ask.Needs[i].Schema, ask.Needs[i].Params = r.String(n.Message), r.JSON(n.Schema), r.JSON(n.Params)
		}
		clean.Ask = &ask
	}
	if len(was.Trace.Details) > 0 {
		clean.Trace.Details = make(map[string]any, len(was.Trace.Details))
		for name, v := range was.Trace.Details {
			clean.Trace.Details[r.String(name)] = r.Value(v)
		}
	}
	return &clean
}

// Catalog redacts the descriptions of tools in a catalogue, and the reasons why some cannot be called.
func Catalog(of tool.Catalog, r *secret.Redactor) tool.Catalog { return catalog{of, r} }

type catalog struct {
	of tool.Catalog
	r  *secret.Redactor
}

// Lookup implements tool.Catalog.
func (c catalog) Lookup(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error) {
	spec, err := c.of.Lookup(ctx, p, name)
	return c.spec(spec), c.r.Error(err)
}

// Specs implements tool.Catalog.
func (c catalog) Specs(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, error] {
	if c.r.Idle() {
		return c.of.Specs(ctx, p)
	}
	return func(yield func(*tool.Spec, error) bool) {
		for spec, err := range c.of.Specs(ctx, p) {
			if !yield(c.spec(spec), c.r.Error(err)) {
				return
			}
		}
	}
}

// Offers implements tool.Offering.
func (c catalog) Offers(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, tool.Follower] {
	return func(yield func(*tool.Spec, tool.Follower) bool) {
		for spec, f := range tool.Offers(ctx, c.of, p) {
			if !yield(c.spec(spec), f) {
				return
			}
		}
	}
}

// WhyNot implements tool.Reasoner.
func (c catalog) WhyNot(ctx context.Context, p tool.Principal, name string) error {
	return c.r.Error(tool.WhyNot(ctx, c.of, p, name))
}

// Changed implements tool.Changing.
func (c catalog) Changed() <-chan struct{} { return tool.Changed(c.of) }

// spec redacts the texts of a spec that people and models read. The name identifies the tool, and stays.
func (c catalog) spec(was *tool.Spec) *tool.Spec {
	if was == nil || c.r.Idle() {
		return was
	}
	clean := *was
	clean.Title, clean.Description = c.r.String(was.Title), c.r.String(was.Description)
	clean.Input, clean.Output, clean.Extra = c.r.JSON(was.Input), c.r.JSON(was.Output), c.r.JSON(was.Extra)
	clean.Resources = slices.Clone(was.Resources)
	for i := range clean.Resources {
		one := &clean.Resources[i]
		for _, text := range []*string{&one.URI, &one.Template, &one.Name, &one.Title, &one.Description} {
			*text = c.r.String(*text)
		}
		for _, doc := range []*json.RawMessage{&one.Annotations, &one.Icons, &one.Meta} {
			*doc = c.r.JSON(*doc)
		}
	}
	if clean.Title == was.Title && clean.Description == was.Description && same(clean.Input, was.Input) &&
		same(clean.Output, was.Output) && same(clean.Extra, was.Extra) && len(was.Resources) == 0 {
		return was
	}
	return &clean
}

// same reports whether a document was left untouched.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
