package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"toolpost/tool"
)

// A listing is what there is of one kind of thing that is issued and revoked: the commands that list them and that
// revoke one.
type listing[T any] struct {
	kind    string // in the singular; the names of the tools about them begin with it
	lists   string // what the command that lists them does
	revokes string // likewise
	head    []string
	row     func(one T, now time.Time) []string
	about   func(one T) (id, what, state string)
	asID    func(id string) string // of a secret in its place: no secret goes any further
}

// list makes the command that lists them.
func (l listing[T]) list(a *app) *cobra.Command {
	var most int
	c := &cobra.Command{
		Use: "list", Short: "List " + l.kind + "s, the newest first", Long: l.lists,
		RunE: func(c *cobra.Command, _ []string) error {
			if most < 0 {
				return tool.Errorf(tool.CodeInvalidInput, "a limit cannot be negative")
			}
			all, err := l.read(c.Context(), a, most)
			if err != nil {
				return err
			}
			return list(a, l.kind+"s", all, l.head, func(one T) []string { return l.row(one, time.Now()) })
		},
	}
	c.Flags().IntVarP(&most, "limit", "n", 100, "at most so many; 0: all")
	return a.withServer(a.withJSON("print JSON", c))
}

func (l listing[T]) read(ctx context.Context, a *app, most int) ([]T, error) {
	out, err := kept[map[string][]T](ctx, a, l.kind+".list", map[string]int{"limit": most}, "list "+l.kind+"s")
	return out[l.kind+"s"], err
}

// revoke makes the command that revokes one, and completes the ids of those that are live.
func (l listing[T]) revoke(a *app) *cobra.Command {
	return a.withServer(a.withJSON("print what is known of the "+l.kind+" as JSON", &cobra.Command{
		Use: "revoke ID", Short: "Make a " + l.kind + " useless", Long: l.revokes, Args: words(1, 1),
		ValidArgsFunction: completeIDs(func(ctx context.Context) ([]T, error) { return l.read(ctx, a, 100) },
			func(one T) (string, string, bool) {
				id, what, state := l.about(one)
				return id, what, state == "live"
			}),
		RunE: func(c *cobra.Command, args []string) error {
			which := map[string]string{"id": l.asID(args[0])}
			one, err := kept[T](c.Context(), a, l.kind+".revoke", which, "revoke "+l.kind+"s")
			if err != nil {
				return err
			}
			id, what, _ := l.about(one)
			return a.tell(one, "%s  %s for %s", a.out.green("revoked"), id, clean(what))
		},
	}))
}
