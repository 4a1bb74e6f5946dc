package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"toolpost/tool"
)

// A listing is what there is of one kind of thing, the newest first, for the commands that list them and for those that
// take the id of one.
type listing[T any] struct {
	what string // in the plural; also the member of the answer that has them
	long string
	tool string // that lists them
	head []string
	row  func(one T, now time.Time) []string
	live func(one T) (id, about string, ok bool) // what there is to complete
}

// command lists them.
func (l listing[T]) command(a *app) *cobra.Command {
	var s server
	var most int
	c := &cobra.Command{
		Use: "list", Short: "List " + l.what + ", the newest first", Long: l.long, Args: words(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
	}
	s.flags(c)
	c.Flags().IntVarP(&most, "limit", "n", 100, "at most so many; 0: all")
	a.jsonFlag(c, "print JSON")
	c.RunE = work(func(c *cobra.Command, _ []string) error {
		if most < 0 {
			return tool.Errorf(tool.CodeInvalidInput, "a limit cannot be negative")
		}
		all, err := l.read(c.Context(), a, s, most)
		if err != nil {
			return err
		}
		return l.show(a, all)
	})
	return c
}

func (l listing[T]) read(ctx context.Context, a *app, s server, most int) ([]T, error) {
	var out map[string][]T
	err := a.callOwn(ctx, s, l.tool, map[string]int{"limit": most}, "list "+l.what, &out)
	return out[l.what], err
}

func (l listing[T]) show(a *app, all []T) error {
	switch {
	case a.json:
		return a.printJSON(map[string]any{l.what: all})
	case len(all) == 0:
		fmt.Fprintln(a.err, "no "+l.what)
		return nil
	}
	var rows [][]string
	for _, one := range all {
		rows = append(rows, l.row(one, time.Now()))
	}
	a.out.table(l.head, rows)
	return nil
}

// complete gives the ids of those that are live.
func (l listing[T]) complete(a *app) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
		defer cancel()
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, _ := l.read(ctx, a, serverFlags(c), 100) // nothing to complete with is no error
		for _, one := range all {
			if id, about, ok := l.live(one); ok {
				ids = append(ids, cobra.CompletionWithDesc(id, clean(about)))
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
