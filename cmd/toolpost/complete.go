package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/cache"
	"toolpost/cmd/toolpost/form"
	"toolpost/node"
)

// completeTool completes the first word with names of tools, and later words with names of their inputs. Without
// a server it knows them from the last time that all tools were listed; a name that is new since then opens the sources.
func (a *app) completeTool(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
	defer cancel()
	if err := a.locate(ctx); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	complete := func(known cache.Tools) []string { return known.Names(word) }
	directive := cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		complete = func(known cache.Tools) []string { return known.Inputs(args[0], word) }
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	if known, age, ok := a.remembered(); ok {
		if found := complete(known); len(found) > 0 || age < renewedAfter {
			return found, directive
		}
	}
	b, err := a.open(ctx, node.Options{})
	if err != nil {
		return nil, directive
	}
	defer b.close()
	tools, _ := a.catalogue(ctx, b) // without tools there is nothing to complete
	return complete(a.remember(tools)), directive
}

// renewedAfter is how long the names are not listed again for one that is not among them.
const renewedAfter = time.Minute

// remember keeps the tools of this config for completion, if all sources have listed theirs.
func (a *app) remember(tools []listed) (known cache.Tools) {
	cfg, err := a.load()
	whole := err == nil && !a.away() && a.played == nil
	for _, t := range tools {
		whole = whole && t.err == nil
		if t.err == nil && t.spec.Name != "" && clean(t.spec.Name) == t.spec.Name {
			known.Tools = append(known.Tools, cache.Tool{
				Name: t.spec.Name, Also: append([]string{t.spec.Source + "." + t.spec.Name}, t.spec.Aliases...), About: firstLine(t.spec),
				Inputs: form.Inputs(t.spec.Input),
			})
		}
	}
	if whole {
		known.Keep(cfg)
	}
	return known
}

// remembered returns the tools that remember has kept, and their age.
func (a *app) remembered() (known cache.Tools, age time.Duration, ok bool) {
	cfg, err := a.load()
	if err != nil || a.played != nil || a.server.url != "" {
		return known, 0, false
	}
	return cache.ToolsOf(cfg)
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
