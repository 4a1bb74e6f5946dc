package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/login"
	"toolpost/node"
	"toolpost/tool"
)

func (a *app) loginCommand() *cobra.Command {
	var provider string
	c := a.atTarget(&cobra.Command{
		Use: "login [CONTEXT]", Short: "Sign in to a server with your account, as at its console",
		Long: "Shows a link and a code of the provider that the server names. Open the link in any browser and sign in; commands\n" +
			"then use the server as you. Your tokens are kept in the file of contexts, with mode 0600, and are renewed when\n" +
			"needed. Sign in only to servers that you trust: what you approve is given to them.",
		Example: "  toolpost login --server https://tools.example.org\n  toolpost call greet name=Ada --context tools.example.org",
	}, func(c *cobra.Command, t login.Target) error {
		remote, err := node.Dial(t.URL, "", t.CA)
		if err != nil {
			return err
		}
		offers, err := remote.SignIn(c.Context())
		if err != nil {
			return err
		}
		with, err := login.Choose(offers, provider)
		if err != nil {
			return err
		}
		err = t.In(c.Context(), with, func(address, code string) {
			fmt.Fprintf(a.err, "sign in to %s with %s (%s): open\n  %s\nand check that it shows the code %s\n", withoutPassword(t.URL),
				clean(with.Name), clean(with.Issuer), clean(address), clean(code))
		})
		if err != nil {
			return err
		}
		return a.tell(nil, "%s  %s, in the context %s", a.out.green("signed in"), withoutPassword(t.URL), clean(t.Name))
	})
	c.Flags().StringVar(&provider, "provider", "", "name of the provider, if the server has several")
	return c
}

func (a *app) logoutCommand() *cobra.Command {
	return a.atTarget(&cobra.Command{Use: "logout [CONTEXT]", Short: "End a login, and forget its tokens"}, func(c *cobra.Command, t login.Target) error {
		unheard, err := t.Out(c.Context())
		if err != nil {
			return err
		}
		if unheard != nil {
			a.note(clean(t.Login.Provider) + " was not told: " + clean(unheard.Error()))
		}
		return a.tell(nil, "%s  %s", a.out.green("logged out"), clean(t.Name))
	})
}

// atTarget makes c a command about the login at a server.
func (a *app) atTarget(c *cobra.Command, do func(*cobra.Command, login.Target) error) *cobra.Command {
	c.Args, c.ValidArgsFunction = words(0, 1), completeContext
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && a.server.given() != "" {
			return tool.Errorf(tool.CodeInvalidInput, "%s takes a context or a flag that names a server, not both; leave one out", c.CommandPath())
		} else if len(args) > 0 {
			a.server.context = args[0]
		}
		if err := a.locate(c.Context()); err != nil {
			return err
		}
		t, err := login.Find(a.server.context, a.server.url, a.server.ca)
		if err != nil {
			return err
		}
		return do(c, t)
	}
	return a.withServer(c)
}
