package main

import (
	"cmp"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/contexts"
	"toolpost/node"
	"toolpost/tool"
)

// use sets the server to that of a context; "" means the one in use, if there is one. A token of the environment is for
// another server, so it is not sent.
func (s *server) use(name string) error {
	known, err := contexts.Read()
	name = cmp.Or(name, known.Current)
	if err != nil || name == "" {
		return err
	}
	one, err := known.Get(name)
	if err != nil {
		return err
	}
	s.context, s.url, s.token, s.ca = name, one.URL, cmp.Or(s.token, one.Token), cmp.Or(s.ca, one.CA)
	return nil
}

// completeContext completes the name of a context.
func completeContext(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	known, _ := contexts.Read()
	for _, name := range known.Names() {
		names = append(names, cobra.CompletionWithDesc(name, withoutPassword(known.Contexts[name].URL)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) contextCommand() *cobra.Command {
	c := a.withJSON("print JSON", &cobra.Command{
		Use: "context", Short: "Give names to servers, and choose the server that commands use",
		Long: "Lists the contexts: servers with names. Commands use the server of the context in use, unless a flag,\n" +
			"$TOOLPOST_URL or $TOOLPOST_CONFIG says otherwise. Contexts and tokens are kept in toolpost/contexts.json\n" +
			"in $XDG_CONFIG_HOME or ~/.config, with mode 0600. Tools do not see the file, and tokens are never shown.",
		Example: "  TOOLPOST_TOKEN=... toolpost context add work https://tools.example.org\n  toolpost context use work\n" +
			"  toolpost call greet name=Ada --context work\n  toolpost context use --none",
		RunE: func(*cobra.Command, []string) error { return a.listContexts() },
	})
	var one contexts.Server
	add := a.changing("added", &cobra.Command{
		Use: "add NAME URL", Short: "Add or change a context, which is a name for a server", Args: words(2, 2),
	}, func(known *contexts.Contexts, args []string) (err error) {
		given := one.Token != ""
		one.URL, one.Token = args[1], cmp.Or(one.Token, os.Getenv("TOOLPOST_TOKEN"))
		if one.CA != "" {
			one.CA, err = filepath.Abs(one.CA)
		}
		if err == nil {
			_, err = node.Dial(one.URL, one.Token, one.CA) // nothing is sent
		}
		if u, _ := url.Parse(one.URL); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
			a.note(withoutPassword(one.URL) + " is not encrypted: others on the way can read the token and the calls; use https")
		}
		if known.Contexts[args[0]] = one; err == nil && !given && one.Token != "" { // it may be set for another server
			a.note("the token in $TOOLPOST_TOKEN is stored for " + withoutPassword(one.URL))
		}
		return err
	})
	add.Flags().StringVar(&one.Token, "token", "", "the server's token (better: $TOOLPOST_TOKEN)")
	add.Flags().StringVar(&one.CA, "ca", "", "PEM file with the server's CA certificate (default: the CAs of this machine)")
	none := false
	use := a.changing("using", &cobra.Command{
		Use: "use [NAME]", Short: "Let commands use the server of a context, or none", Args: words(0, 1),
	}, func(known *contexts.Contexts, args []string) (err error) {
		if known.Current = strings.Join(args, ""); none && len(args) > 0 {
			return tool.Errorf(tool.CodeInvalidInput, "context use takes a name or --none, not both; leave one out")
		} else if len(args) > 0 {
			_, err = known.Get(known.Current)
		}
		return err
	})
	use.Flags().BoolVar(&none, "none", false, "use no context (the same as no NAME): commands use the config again")
	c.AddCommand(add, use, a.changing("removed", &cobra.Command{
		Use: "remove NAME", Short: "Forget a context and its token", Args: words(1, 1),
	}, func(known *contexts.Contexts, args []string) error {
		_, err := known.Get(args[0])
		if delete(known.Contexts, args[0]); known.Current == args[0] {
			known.Current = ""
		}
		return err
	}))
	return c
}

// changing makes c a command that changes the contexts.
func (a *app) changing(done string, c *cobra.Command, change func(known *contexts.Contexts, args []string) error) *cobra.Command {
	c.ValidArgsFunction = completeContext
	c.RunE = func(c *cobra.Command, args []string) error {
		err := contexts.Change(c.Context(), func(known *contexts.Contexts) (bool, error) {
			err := change(known, args)
			return err == nil, err
		})
		if err != nil {
			return err
		}
		return a.tell(nil, "%s  %s", a.out.green(done), cmp.Or(clean(strings.Join(args[:min(1, len(args))], "")), "no context"))
	}
	return c
}

// A shownContext is a context without its token.
type shownContext struct {
	Use   string `json:"use,omitempty"`
	Name  string `json:"name"`
	URL   string `json:"url"`
	Token bool   `json:"token"`
}

func (a *app) listContexts() error {
	known, err := contexts.Read()
	all := []shownContext{}
	for _, name := range known.Names() {
		one := known.Contexts[name]
		use := map[bool]string{true: "*"}[name == known.Current]
		all = append(all, shownContext{use, name, withoutPassword(one.URL), one.Token != "" || one.Login != nil})
	}
	if url := os.Getenv("TOOLPOST_URL"); url != "" {
		a.note("TOOLPOST_URL comes first: " + withoutPassword(url))
	}
	if err != nil {
		return err
	}
	return list(a, "contexts", all, columns[shownContext]("use name url token", nil))
}
