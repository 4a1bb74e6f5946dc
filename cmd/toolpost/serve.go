package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"toolpost/node"
)

func (a *app) serveCommand() *cobra.Command {
	var o node.Options
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the tools at every configured door",
		Long: "Serves the tools of the config over HTTP until it gets SIGINT or SIGTERM; calls in flight may end first.\n" +
			"It reads the config again when the file changes, and on SIGHUP.",
		Args: words(0, 0),
		RunE: work(func(c *cobra.Command, _ []string) error { return a.serve(c.Context(), o) }),
	}
	c.Flags().StringVar(&o.Listen, "listen", "", "address of the HTTP door (default: the config's, else 127.0.0.1:8700)")
	c.Flags().BoolVar(&o.NewToken, "new-token", false, "make another token and print it; the old one is no longer valid")
	return c
}

func (a *app) serve(ctx context.Context, o node.Options) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	var n *node.Node
	o.Log = a.logger(slog.LevelInfo)
	o.Token = os.Getenv("TOOLPOST_TOKEN")
	o.Ready = func(l node.Listening) { a.banner(ctx, n, l) }
	if n, err = node.Open(ctx, cfg, o); err != nil {
		return err
	}
	defer closeNode(ctx, n, o.Log)

	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		if err := n.Watch(ctx, hup); err != nil {
			o.Log.Warn(because(err))
		}
	})
	defer context.AfterFunc(ctx, func() { o.Log.Info("shutting down; calls in flight may end first") })()
	return n.Serve(ctx)
}

func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// banner tells a person who just started the server all that is needed for the first call.
func (a *app) banner(ctx context.Context, n *node.Node, l node.Listening) {
	tools := map[string]int{}
	for spec, err := range n.Catalog().Specs(ctx, me()) {
		if err == nil {
			tools[spec.Source]++
		}
	}
	fmt.Fprintf(a.out, "%s %s\n", a.out.bold("serving on"), l.URL)
	for _, s := range n.Sources() {
		state := plural(tools[s.Name], "tool")
		if s.Err != nil {
			state = a.out.red("unavailable: ") + because(s.Err)
		}
		fmt.Fprintf(a.out, "  %-16s %-12s %s\n", s.Name, clean(s.Protocol), state)
	}
	token := "$TOOLPOST_TOKEN"
	if l.Token != "" {
		token = l.Token
		fmt.Fprintf(a.out, "%s %s\n  shown this once; `toolpost serve --new-token` makes another\n", a.out.bold("token"), token)
	}
	fmt.Fprintf(a.out, "%s\n  curl -H \"Authorization: Bearer %s\" %s/v1/tools\n", a.out.bold("try"), token, l.URL)
}
