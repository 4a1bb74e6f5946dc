package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/node"
	"toolpost/tool"
)

// completeTool completes the first word with names of tools, and later words with names of their inputs.
func (a *app) completeTool(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
	defer cancel()
	b, err := a.open(ctx, node.Options{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer b.close()
	if len(args) > 0 {
		return completeInputs(ctx, b, args[0])
	}
	var names []string
	for spec, err := range b.Specs(ctx, me()) {
		if spec != nil && err == nil && clean(spec.Name) == spec.Name {
			names = append(names, cobra.CompletionWithDesc(spec.Name, firstLine(spec)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func completeInputs(ctx context.Context, c tool.Catalog, name string) ([]string, cobra.ShellCompDirective) {
	spec, err := c.Lookup(ctx, me(), name)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, in := range inputsOf(spec.Input) {
		names = append(names, cobra.CompletionWithDesc(in.Name+"=", in.Description))
	}
	return names, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// completeTimeout bounds how long a person waits for Tab.
const completeTimeout = 2 * time.Second

// completeFrom completes the only word of a command with the ids in the list that a tool gives. In about, names of the
// list's members stand for their values. Things with a state must be in the state only, unless that is empty.
func (a *app) completeFrom(o own, id, about, only string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
		defer cancel()
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		lists, _ := ask[map[string][]map[string]any](ctx, a, o, struct{}{}) // an empty list is not an error
		for _, list := range lists {
			for _, one := range list {
				words := strings.Fields(about)
				for i, word := range words {
					if value, ok := one[word]; ok {
						words[i] = fmt.Sprint(value)
					}
				}
				if only == "" || one["state"] == only {
					ids = append(ids, cobra.CompletionWithDesc(clean(fmt.Sprint(one[id])), clean(strings.Join(words, " "))))
				}
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
