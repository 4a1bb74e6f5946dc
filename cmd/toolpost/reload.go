package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/builtin/console"
	"toolpost/builtin/reload"
)

func (a *app) reloadCommand() *cobra.Command {
	c := over[struct{}](a, own{"reloadConfig", "reload the config", sources}, "", &cobra.Command{
		Use: "reload", Short: "Let a server read its config again, and say what changed",
		Long: "Lets a server read its config and the files of its sources again, now: it notices their changes by itself\n" +
			"within a second. Says which tools came, went or changed, which sources failed, and what takes a restart; or\n" +
			"why the config was not taken. It is for operators. Without --server it is the server of this config, at the\n" +
			"address of its HTTP door, and no token is needed. `kill -USR1` does the same, and the server's log says what came of it.",
		Example: "  toolpost reload\n  toolpost reload --server http://127.0.0.1:8700 --json",
	}, a.showReload, func(did reload.Report) bool { return len(did.Failed) > 0 })
	run := c.RunE
	c.RunE = func(c *cobra.Command, words []string) error {
		if a.server.url == "" {
			if err := a.serverHere(c.Context()); err != nil {
				return err
			}
		}
		return run(c, words)
	}
	return c
}

// serverHere names the server of this config. Like `toolpost console`, the user who runs this needs no token for it.
func (a *app) serverHere(ctx context.Context) error {
	url, err := a.addressHere()
	if cmp.Or(a.server.token, os.Getenv("TOOLPOST_TOKEN")) == "" && err == nil {
		link, _ := ask[console.Link](ctx, a, consoleLink, struct{}{}) // without one, the server asks for a token
		_, a.server.code, _ = strings.Cut(link.Path, "code=")
	}
	a.server.url = url
	return err
}

func (a *app) showReload(did reload.Report) {
	fmt.Fprintf(a.out, "%s  %s\n", a.out.green("reloaded"), clean(did.Config))
	for _, c := range did.Changes {
		fmt.Fprintf(a.out, "%-16s %s\n", clean(c.Source), clean(c.String()))
	}
	if len(did.Changes) == 0 {
		fmt.Fprintln(a.out, "the same tools")
	}
	for _, f := range did.Failed {
		state := "unavailable: "
		if f.Stays {
			state = "its files are not taken, its tools stay as they were: "
		}
		fmt.Fprintf(a.out, "%-16s %s%s\n", clean(f.Source), a.out.red(state), clean(f.Error))
	}
	for _, part := range did.Restart {
		fmt.Fprintf(a.out, "%-16s %s\n", clean(part), a.out.amber("changed; start the server again to apply it"))
	}
}
