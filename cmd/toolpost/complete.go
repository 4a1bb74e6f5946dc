package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"toolpost/node"
	"toolpost/tool"
)

// completeTimeout bounds how long a person waits for Tab.
const completeTimeout = 2 * time.Second

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

// completeIDs completes the only word of a command with ids. An empty list is not an error.
func completeIDs[T any](
	read func(context.Context) ([]T, error), word func(T) (id, about string, ok bool),
) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
		defer cancel()
		if len(args) == 0 {
			all, _ := read(ctx)
			for _, one := range all {
				if id, about, ok := word(one); ok {
					ids = append(ids, cobra.CompletionWithDesc(clean(id), clean(about)))
				}
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
