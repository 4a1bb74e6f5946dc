package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/builtin/console"
	"toolpost/cmd/toolpost/browser"
	"toolpost/node"
	"toolpost/tool"
)

// consoleLink is the tool that makes links.
var consoleLink = own{"console.link", "open the console", store}

func (a *app) consoleCommand() *cobra.Command {
	var show bool
	c := &cobra.Command{
		Use: "console", Short: "Print a link that opens the console in a browser, signed in",
		Long: "Prints a link to the console of a server. The link works once, within a minute. It signs you in as the\n" +
			"user who runs this command or, with --server or a context, as the caller of the token. The browser does\n" +
			"not send the code after the # when it requests the page. The command calls the tool console.link: the\n" +
			"policy applies, and the call is recorded.",
		Example: "  toolpost console --open\n  toolpost console --server https://tools.example.org",
		RunE: func(c *cobra.Command, _ []string) error {
			made, err := ask[console.Link](c.Context(), a, consoleLink, struct{}{})
			if err != nil {
				return err
			}
			base, err := a.consoleAddress(made)
			if err != nil {
				return err
			}
			url := strings.TrimSuffix(base, "/") + made.Path
			if show {
				if err := browser.Open(c.Context(), url); err != nil {
					return err
				}
			}
			return a.conclude(map[string]any{"url": url, "expires": made.Expires}, func() {
				fmt.Fprintln(a.out, url)
				fmt.Fprintln(a.err, "signs you in, once and within a minute")
			}, false)
		},
	}
	c.Flags().BoolVar(&show, "open", false, "also open it in the browser of this machine")
	return a.withServer(a.withJSON("print the link as JSON", c))
}

// consoleAddress returns the address at which a browser finds the server.
func (a *app) consoleAddress(made console.Link) (base string, err error) {
	switch base = a.server.url; {
	case a.away():
	case made.URL != "": // the port may be another than in the config
		base = made.URL
	default:
		cfg, err := a.load()
		if err != nil {
			return "", err
		}
		if base, err = node.HTTPAddress(cfg); err != nil {
			return "", err
		}
	}
	switch {
	case strings.HasPrefix(base, "unix:"):
		return "", tool.Errorf(tool.CodeInvalidInput, "the server listens on a Unix socket, where no browser comes; let the "+
			"door http listen on an address")
	case a.server.url == "": // what answers there is the server of another config
		return "", tool.Errorf(tool.CodeUnavailable, "the server of this config is not running; start it with `toolpost serve`, "+
			"or name another server with --server URL")
	}
	return base, nil
}
