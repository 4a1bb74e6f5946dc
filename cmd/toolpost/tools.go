package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/form"
	"toolpost/codesearch/toolfind"
	"toolpost/node"
	"toolpost/tool"
	entry "toolpost/wire/listing"
	jsonschema "toolpost/wire/schema"
)

// A listed tool is an entry of the catalogue.
type listed struct {
	spec *tool.Spec
	err  error // why it cannot be called now
}

// MarshalJSON adds the availability to the spec.
func (l listed) MarshalJSON() ([]byte, error) { return entry.Encode(l.spec, l.err), nil } //nolint:unparam // json.Marshaler

func (a *app) toolsCommand() *cobra.Command {
	command := func(c *cobra.Command, run func(context.Context, *backend, []string) error) *cobra.Command {
		c.RunE = a.withTools(run)
		return a.withServer(a.withJSON("print everything as JSON", c))
	}
	var all bool
	c := command(&cobra.Command{
		Use:   "tools",
		Short: "List, show and search tools, and approve changed tools",
		Long:  "Lists the tools. Its commands show and search tools, and approve tools that changed.", SuggestFor: []string{"list"},
		Example: "  toolpost tools\n  toolpost tools show readFile\n  toolpost tools search file\n  toolpost tools review",
	}, func(ctx context.Context, b *backend, _ []string) error { return a.listTools(ctx, b, all) })
	c.Flags().BoolVarP(&all, "all", "a", false, "also list tools that are held back, and why (only operators)")
	c.AddCommand(command(&cobra.Command{
		Use: "show NAME", Short: "Show one tool: what it takes, returns and does", Args: words(1, 1),
		ValidArgsFunction: a.completeTool,
	}, a.showTool), command(&cobra.Command{
		Use: "search WORD ...", Short: "Search tools by words and by meaning, best first", Args: words(1, -1),
		Long: "Searches names, descriptions and arguments, by their words and by their meaning, best first. Agents get the\n" +
			"same search if there are too many tools to list.",
	}, a.searchTools), a.reviewCommand(), a.approveCommand())
	return c
}

// withTools makes the RunE of a command that needs the tools of the config, or of a server.
func (a *app) withTools(run func(context.Context, *backend, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		b, err := a.open(c.Context(), node.Options{})
		if err != nil {
			return err
		}
		defer b.close()
		return run(c.Context(), b, args)
	}
}

// listTools lists the tools; with all also those that are held back.
func (a *app) listTools(ctx context.Context, b *backend, all bool) error {
	tools, err := a.catalogue(ctx, b)
	if err != nil {
		return err
	}
	a.remember(tools)
	if all {
		held, err := a.heldBack(ctx, b)
		if err != nil {
			return err
		}
		tools = append(tools, held...)
	}
	if len(tools) == 0 && b.empty != "" && !a.json {
		fmt.Fprintln(a.err, b.empty)
		return nil
	}
	a.noteDefault()
	return a.showTools(tools)
}

// catalogue reads all tools.
func (a *app) catalogue(ctx context.Context, b *backend) ([]listed, error) {
	tools := []listed{}
	for spec, err := range b.Specs(ctx, me()) {
		if spec == nil {
			return nil, err
		}
		tools = append(tools, listed{spec, err})
	}
	if a.server.url != "" && len(tools) == 1 && tools[0].spec.Name == "" && strings.Contains(tools[0].spec.Source, ":") {
		return nil, tools[0].err // it is an address, and no source: the server itself did not answer
	}
	return tools, nil
}

// mostFound is how many tools a search shows.
const mostFound = 20

// searchTools lists the tools that match a question, the best first.
func (a *app) searchTools(ctx context.Context, b *backend, question []string) error {
	tools, err := a.catalogue(ctx, b)
	if err != nil {
		return err
	}
	var specs []*tool.Spec
	why := map[*tool.Spec]error{}
	for _, t := range tools {
		if t.spec.Name != "" {
			specs, why[t.spec] = append(specs, t.spec), t.err
		}
	}
	hits, err := new(toolfind.Finder).Search(ctx, specs, strings.Join(question, " "), mostFound)
	if err != nil {
		return err
	}
	found := []listed{}
	for _, h := range hits {
		found = append(found, listed{h.Spec, why[h.Spec]})
	}
	return a.showTools(found)
}

func (a *app) showTools(tools []listed) error {
	return list(a, "tools", tools, columns("name|- source protocol description", cells[listed]{
		"name":     func(t listed) string { return t.spec.Name },
		"source":   func(t listed) string { return t.spec.Source },
		"protocol": func(t listed) string { return t.spec.Protocol },
		"description": func(t listed) string {
			if t.err != nil {
				return "unavailable: " + because(t.err)
			}
			return firstLine(t.spec)
		},
	}))
}

// firstLine returns the first sentence of a description, or an approximation.
func firstLine(s *tool.Spec) string {
	text := clean(cmp.Or(s.Description, s.Title))
	if head, _, ok := strings.Cut(text, ". "); ok {
		return head + "."
	}
	return short(text, 120)
}

func (a *app) showTool(ctx context.Context, b *backend, names []string) error {
	spec, err := b.Lookup(ctx, me(), names[0])
	if err != nil {
		return a.suggest(ctx, b, names[0], err)
	}
	t := listed{spec, tool.WhyNot(ctx, b.Catalog, me(), spec.Name)}
	if a.json {
		return a.printJSON(t)
	}
	a.describe(t)
	return nil
}

func (a *app) describe(t listed) {
	s := t.spec
	fmt.Fprintf(a.out, "%s\n", a.out.bold(clean(s.Name)))
	if s.Description != "" {
		fmt.Fprintf(a.out, "%s\n", clean(s.Description))
	}
	fmt.Fprintln(a.out)
	a.out.facts("", 11, facts(t, a.server.url != ""))
	for _, part := range []struct {
		title  string
		schema json.RawMessage
	}{{"Takes", s.Input}, {"Gives", s.Output}} {
		if lines := form.InputLines(part.schema); lines != "" {
			fmt.Fprintf(a.out, "\n%s\n%s\n", a.out.bold(part.title), lines)
		}
	}
	for i, one := range jsonschema.Unchecked(s) {
		if i == 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprintf(a.out, "%s %s\n", a.out.amber("warning:"), clean(one))
	}
}

// tierOf describes a tier, and its origin. A spec of a remote catalogue does not tell whether hints were ignored.
func tierOf(s *tool.Spec, remote bool) string {
	from := map[tool.TierFrom]string{
		tool.TierConfig:  "declared by the config of its source",
		tool.TierTool:    "declared by the tool",
		tool.TierEffects: "by its effects",
		tool.TierDefault: "by default: it says nothing about its effects",
	}[s.TierFrom]
	switch unknown := s.TierFrom == tool.TierDefault && s.Protocol == "mcp"; {
	case from == "":
		return fmt.Sprint(s.Tier)
	case unknown && s.HintsIgnored:
		from = "by default: the hints of its server are not trusted; `trust_hints: true` in its source trusts them"
	case unknown && remote:
		from = "by default: its server gave no hints, or they are not trusted; `trust_hints: true` in its source trusts them"
	}
	return fmt.Sprintf("%d (%s)", s.Tier, from)
}

func facts(t listed, remote bool) [][2]string {
	s := t.spec
	f := [][2]string{
		{"source", clean(s.Source) + " (" + clean(s.Protocol) + ")"},
		{"also", clean(strings.Join(s.Aliases, ", "))},
		{"effects", strings.Join(s.Effects.Words(), ", ")},
		{"tier", tierOf(s, remote)},
		{"guarantees", clean(strings.Join(s.Guarantees.Asked(), ", "))},
		{"walls", clean(s.Walls)},
	}
	if s.Timeout > 0 {
		f = append(f, [2]string{"timeout", s.Timeout.String()})
	}
	if t.err != nil {
		f = append(f, [2]string{"unavailable", because(t.err)})
	}
	return f
}
