package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/prose"
	"toolpost/wire/strictjson"
)

// Bounds on what a server lists.
const (
	maxPages    = 1_000
	maxTools    = 20_000
	maxToolName = 200      // bytes
	maxListed   = 64 << 20 // bytes of all pages together, as much as is kept of a source's tools
	maxLeftOut  = 20       // tools that are not offered, until they are only counted
)

// An offer is a tool as its server describes it.
type offer struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"inputSchema"`
	Output      json.RawMessage `json:"outputSchema"`
	Hints       *toolHints      `json:"annotations"`
	Execution   struct {
		Task string `json:"taskSupport"`
	} `json:"execution"`

	mirrored []mirror // arguments that headers repeat
}

// toolHints are what a server says that a tool does. It may say anything.
type toolHints struct {
	Title       string `json:"title"`
	ReadOnly    *bool  `json:"readOnlyHint"`
	Destructive *bool  `json:"destructiveHint"`
	Idempotent  *bool  `json:"idempotentHint"`
	OpenWorld   *bool  `json:"openWorldHint"`
}

// list asks the server for all of its tools, page by page. A tool that cannot be used is left out, and the others stay.
func (r *Runner) list(ctx context.Context) (map[string]*offer, []*tool.Spec, error) {
	offers, specs := map[string]*offer{}, []*tool.Spec{}
	seen := map[string]bool{}
	size, listed, leftOut := 0, 0, 0
	for cursor := ""; ; {
		page, err := r.page(ctx, cursor)
		if err != nil {
			return nil, nil, err
		}
		size, listed = size+page.size, listed+len(page.Tools)
		if listed > maxTools || size > maxListed {
			return nil, nil, tool.Errorf(tool.CodeProtocol, "the server lists more than %d tools, or more than %d MiB of them",
				maxTools, maxListed>>20)
		}
		for _, raw := range page.Tools {
			o, err := readTool(raw, page.mirrored)
			if err == nil && offers[o.Name] != nil {
				err = errors.New("another tool of the server has this name")
			}
			if err != nil {
				if leftOut++; leftOut <= maxLeftOut {
					r.log.Warn("a tool of the server is not offered", "tool", jsonrpc.Clip(o.Name), "error", err)
				}
				continue
			}
			offers[o.Name] = o
			specs = append(specs, r.specOf(o))
		}
		switch {
		case page.Next == "":
			if leftOut > maxLeftOut {
				r.log.Warn("more tools of the server are not offered", "tools", leftOut-maxLeftOut)
			}
			return offers, specs, nil
		case seen[page.Next] || len(seen) == maxPages:
			return nil, nil, tool.Errorf(tool.CodeProtocol,
				"the server's list of tools has no end: it repeats a page, or has more than %d", maxPages)
		}
		cursor, seen[page.Next] = page.Next, true
	}
}

type toolPage struct {
	Tools []json.RawMessage `json:"tools"`
	Next  string            `json:"nextCursor"`

	size     int  // in bytes
	mirrored bool // headers repeat arguments
}

func (r *Runner) page(ctx context.Context, cursor string) (p toolPage, err error) {
	q := &query{method: methodListTools, params: func(_ *greeting, w *strictjson.Writer) {
		if cursor != "" {
			w.Text("cursor", cursor)
		}
	}}
	raw, err := r.to.ask(ctx, q)
	if said := answeredError(err); said != nil {
		if said.Code == jsonrpc.CodeMethodNotFound && q.met.can.Tools == nil {
			return p, nil // it has resources or prompts, and no tools
		}
		return p, tool.Errorf(tool.CodeProtocol, "the server does not list its tools: %w", said)
	}
	if err != nil {
		return p, ended(ctx, methodListTools, err, q.words)
	}
	if err := strictjson.Unmarshal(raw, &p); err != nil {
		return p, tool.Errorf(tool.CodeProtocol, "the server's list of tools cannot be read: %s", jsonrpc.Misread(err))
	}
	_, overHTTP := r.to.(*remote)
	p.size, p.mirrored = len(raw), overHTTP && q.met.modern
	return p, nil
}

// ended is the error of a request that was not answered, in the words of the one who waited, and with the last ones of the
// server.
func ended(ctx context.Context, what string, err error, words string) error {
	if ctx.Err() == nil && !errors.Is(err, jsonrpc.ErrAbandoned) {
		return err
	}
	e := tool.Ended(ctx)
	e.Message = fmt.Sprintf("%s was given up: %s%s", what, e.Message, words)
	return e
}

// readTool reads a tool. Over HTTP the arguments that headers repeat must be ones that they can.
func readTool(raw json.RawMessage, mirrored bool) (*offer, error) {
	o := &offer{}
	if err := strictjson.Unmarshal(raw, o); err != nil {
		return o, errors.New(jsonrpc.Misread(err))
	}
	switch {
	case o.Name == "" || len(o.Name) > maxToolName || jsonrpc.Clip(o.Name) != o.Name:
		return o, fmt.Errorf("a name has 1 to %d printable characters", maxToolName)
	case strictjson.KindOf(o.Input) != "object":
		return o, errors.New("its inputSchema is not an object")
	case len(o.Output) > 0 && strictjson.KindOf(o.Output) != "object":
		return o, errors.New("its outputSchema is not an object")
	}
	if !mirrored {
		return o, nil
	}
	var err error
	o.mirrored, err = mirrors(o.Input)
	return o, err
}

// specOf publishes a tool. Its schemas stay what they are, byte for byte.
func (r *Runner) specOf(o *offer) *tool.Spec {
	s := &tool.Spec{
		Name: o.Name, Title: o.Title, Description: o.Description, Input: o.Input, Output: o.Output,
		Effects: r.effects(o.Hints), Timeout: time.Duration(r.o.Timeout), Guarantees: r.o.Guarantees,
	}
	if r.o.Effects == (tool.Effects{}) && (!r.o.TrustHints || o.Hints.silent()) {
		// These effects are assumed, not said. The tier follows from what the server admits, which may be nothing.
		if s.TierFrom = tool.TierDefault; o.Hints.admitted().Tier() > 0 {
			s.Tier, s.TierFrom = o.Hints.admitted().Tier(), tool.TierTool
		}
	}
	s.Declare(r.o.Tier, tool.TierConfig)
	if s.Title == "" && o.Hints != nil {
		s.Title, s.TitleHint = o.Hints.Title, true
	}
	if slices.Contains([]string{"forbidden", "optional", "required"}, o.Execution.Task) {
		s.TaskSupport = o.Execution.Task
	}
	if r.walls != nil {
		r.walls(s)
	}
	return s
}

// effects are what the config says, or the worst, and what the server's hints add to it. That a tool is harmless is
// believed only where the config says so: a policy that lets harmless tools through must not be opened by whoever
// writes a description. The default of a hint that is not there is the protocol's own.
func (r *Runner) effects(h *toolHints) tool.Effects {
	if h == nil {
		h = &toolHints{}
	}
	if r.o.TrustHints {
		harmless := says(h.ReadOnly, false)
		return add(r.o.Effects, tool.Effects{
			Reads: true, Writes: !harmless, Destructive: !harmless && says(h.Destructive, true),
			Network: says(h.OpenWorld, true), Idempotent: harmless || says(h.Idempotent, false),
		})
	}
	e := r.o.Effects
	if e == (tool.Effects{}) {
		e = tool.Effects{Reads: true, Writes: true, Network: true, Destructive: true}
	}
	return add(e, h.admitted())
}

// says reads a hint, or what the protocol has in its place.
func says(hint *bool, otherwise bool) bool {
	if hint == nil {
		return otherwise
	}
	return *hint
}

// admitted is what a server says of a tool against itself, which is believed of everyone.
func (h *toolHints) admitted() tool.Effects {
	if h == nil {
		return tool.Effects{}
	}
	return tool.Effects{
		Writes: !says(h.ReadOnly, true) || says(h.Destructive, false), Destructive: says(h.Destructive, false),
		Network: says(h.OpenWorld, false),
	}
}

// silent reports whether there is nothing about effects in it.
func (h *toolHints) silent() bool {
	return h == nil || h.ReadOnly == nil && h.Destructive == nil && h.Idempotent == nil && h.OpenWorld == nil
}

func add(a, b tool.Effects) tool.Effects {
	return tool.Effects{
		Reads: a.Reads || b.Reads, Writes: a.Writes || b.Writes, Network: a.Network || b.Network, Exec: a.Exec || b.Exec,
		Idempotent: a.Idempotent || b.Idempotent, Destructive: a.Destructive || b.Destructive,
	}
}

// mirrorHeaders are the headers that repeat arguments.
func (o *offer) mirrorHeaders(args json.RawMessage) http.Header {
	if len(o.mirrored) == 0 {
		return nil
	}
	h := http.Header{}
	for _, m := range o.mirrored {
		switch v := m.in(orEmpty(args)); strictjson.KindOf(v) {
		case "string", "boolean":
			h.Set(m.header, headerText(prose.Plain(v)))
		case "number":
			h.Set(m.header, wholeNumber(string(v)))
		}
	}
	return h
}

// wholeNumber writes a number without a fraction or an exponent, where it has none in truth.
func wholeNumber(text string) string {
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return text
}
