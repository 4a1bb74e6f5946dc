package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"toolpost/builtin/define"
	"toolpost/tool"
)

type describeArgs struct {
	Tools    []string `json:"tools" schema:"maxItems=1000" doc:"Only these tools, by their names or as source.name."`
	Search   string   `json:"search" schema:"maxLength=1000" doc:"Only tools that do this, in a few words."`
	Language string   `json:"language" schema:"enum=python|javascript default=python" doc:"The language of the program."`
	Limit    int      `json:"limit" schema:"minimum=1 maximum=1000" doc:"Maximum number of tools; a search gives 10 by default."`
}

type description struct {
	Text  string `json:"text" doc:"The functions, as Python stubs or TypeScript declarations."`
	Tools int    `json:"tools" doc:"How many tools it describes."`
	More  int    `json:"more" doc:"How many more there are that did not fit: name them, or search."`
}

// maxText bounds a description, in bytes; maxStub bounds the part of one tool.
const (
	maxText = 64 << 10
	maxStub = 8 << 10
)

func (t *Tools) describe(ctx context.Context, c *define.Call, a describeArgs) (description, error) {
	found, err := t.choose(ctx, c.Caller, a)
	if err != nil {
		return description{}, err
	}
	more := 0
	if a.Limit > 0 && len(found) > a.Limit {
		found, more = found[:a.Limit], len(found)-a.Limit
	}
	stubs := pythonStubs
	if a.Language == javascript {
		stubs = typeScript
	}
	text, fit := within(found, stubs)
	d := description{Text: text, Tools: fit, More: more + len(found) - fit}
	if c.Summary = define.Count(fit, "tool"); d.More > 0 {
		c.Summary += fmt.Sprintf("; there are %d more: name them, or search", d.More)
	}
	return d, nil
}

// choose finds the requested tools. Tools about calls are not listed, but can be named.
func (t *Tools) choose(ctx context.Context, p tool.Principal, a describeArgs) ([]function, error) {
	all := visible(ctx, t.Engine, p)
	listed := slices.DeleteFunc(slices.Clone(all), func(f function) bool { return f.spec.Unlisted })
	switch {
	case len(a.Tools) > 0:
		return t.named(ctx, p, all, a.Tools)
	case a.Search == "":
		return listed, nil
	}
	specs := make([]*tool.Spec, len(listed))
	for i, f := range listed {
		specs[i] = f.spec
	}
	hits, err := t.finder.Search(ctx, specs, a.Search, cmp.Or(a.Limit, 10))
	var found []function
	for _, h := range hits {
		i := slices.Index(specs, h.Spec)
		found = append(found, listed[i])
	}
	return found, err
}

// named finds tools by their names. A tool that the caller does not see is treated as missing.
func (t *Tools) named(ctx context.Context, p tool.Principal, all []function, wanted []string) ([]function, error) {
	var found []function
	var look names
	for _, name := range wanted {
		own := look.resolve(ctx, t.Engine, p, name)
		spec, err := t.Engine.Lookup(ctx, p, own)
		if err != nil {
			return nil, look.meant(name, tool.AsError(err))
		}
		i := slices.IndexFunc(all, func(f function) bool { return f.spec.Name == spec.Name })
		if i < 0 { // it cannot be called now
			return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be called now; `toolpost tools` says why", spec.Name)
		}
		if !slices.ContainsFunc(found, func(f function) bool { return f.spec == all[i].spec }) {
			found = append(found, all[i])
		}
	}
	return found, nil
}

// within describes as many tools as fit, those of a source together, and returns how many did.
func within(all []function, write func([]function) string) (string, int) {
	text := write(all)
	if len(text) <= maxText {
		return text, len(all)
	}
	low, high := 0, len(all) // low many fit, high many do not
	for high-low > 1 {
		middle := (low + high) / 2
		if len(write(all[:middle])) <= maxText {
			low = middle
		} else {
			high = middle
		}
	}
	return write(all[:low]), low
}

// bySource groups functions by source, in their order.
func bySource(all []function) (groups [][]function) {
	at := map[string]int{}
	for _, f := range all {
		i, ok := at[f.source]
		if !ok {
			i = len(groups)
			at[f.source], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

// said returns the descriptions of a tool and its arguments, line by line and within bounds. They may come from a foreign
// server, so control characters are removed.
func (f function) said(in *shape) []string {
	lines := []string{plainText(f.spec.Description, 600)}
	for _, m := range in.members {
		if m.shape.doc != "" {
			lines = append(lines, plainText(m.name, 60)+": "+plainText(m.shape.doc, 200))
		}
	}
	return lines
}

func plainText(text string, most int) string {
	ends := func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 }
	return cut(strings.Join(strings.FieldsFunc(text, ends), " "), most)
}
