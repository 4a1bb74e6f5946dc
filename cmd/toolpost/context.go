package main

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/strictjson"
)

// contexts are the servers that a user has named, in a file that only this user can read.
type contexts struct {
	Current  string                 `json:"current,omitempty"`
	Contexts map[string]namedServer `json:"contexts"`
}

type namedServer struct {
	URL   string `json:"url"`
	Token string `json:"token,omitempty"` // never printed
	CA    string `json:"ca,omitempty"`
}

// readContexts reads the file of contexts; without one, or with the empty one that hides it from tools, there are none.
func readContexts() (known contexts, err error) {
	path := config.ContextsFile()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return contexts{Contexts: map[string]namedServer{}}, nil
	}
	if err == nil && info.Size() > 0 && info.Mode().Perm()&0o077 != 0 {
		err = errors.New("other users can read the tokens in it; `chmod 600` it, and get new tokens")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil && len(text) > 0 {
		err = strictjson.Unmarshal(text, &known)
	}
	if known.Contexts == nil { // the file can say null
		known.Contexts = map[string]namedServer{}
	}
	if err != nil {
		err = tool.Errorf(tool.CodeInvalidInput, "the file of contexts, %s, cannot be used: %w", path, err)
	}
	return known, err
}

// get returns a context that exists.
func (c contexts) get(name string) (namedServer, error) {
	one, ok := c.Contexts[name]
	if !ok {
		return one, tool.Errorf(tool.CodeNotFound, "there is no context %q%s", name, nearest.Suggest(name,
			slices.Sorted(maps.Keys(c.Contexts)), "; `toolpost context add` makes one"))
	}
	return one, nil
}

// use sets the server to that of a context; "" means the one in use, if there is one. A token of the environment is for
// another server, so it is not sent.
func (s *server) use(name string) error {
	known, err := readContexts()
	name = cmp.Or(name, known.Current)
	if err != nil || name == "" {
		return err
	}
	one, err := known.get(name)
	if err != nil {
		return err
	}
	s.url, s.token, s.ca = one.URL, cmp.Or(s.token, one.Token), cmp.Or(s.ca, one.CA)
	return nil
}

// completeContext completes the name of a context.
func completeContext(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	known, _ := readContexts()
	for _, name := range slices.Sorted(maps.Keys(known.Contexts)) {
		names = append(names, cobra.CompletionWithDesc(name, withoutPassword(known.Contexts[name].URL)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) contextCommand() *cobra.Command {
	c := a.withJSON("print JSON", &cobra.Command{
		Use: "context", Short: "Name servers, and choose the one that commands use",
		Long: "Lists the contexts: servers with names. Commands use the server of the context in use, unless a flag,\n" +
			"$TOOLPOST_URL or $TOOLPOST_CONFIG says otherwise. Tokens are kept in a file of mode 0600, which tools do not\n" +
			"see, and are never shown.",
		Example: "  TOOLPOST_TOKEN=... toolpost context add work https://tools.example.org\n  toolpost context use work\n" +
			"  toolpost call greet name=Ada --context work\n  toolpost context use --none",
		RunE: func(*cobra.Command, []string) error { return a.listContexts() },
	})
	var one namedServer
	add := a.changing("added", &cobra.Command{
		Use: "add NAME URL", Short: "Name a server, or change the server of a name", Args: words(2, 2),
	}, func(known *contexts, args []string) (err error) {
		given := one.Token != ""
		one.URL, one.Token = args[1], cmp.Or(one.Token, os.Getenv("TOOLPOST_TOKEN"))
		if one.CA != "" {
			one.CA, err = filepath.Abs(one.CA)
		}
		if err == nil {
			_, err = node.Dial(one.URL, one.Token, one.CA) // nothing is sent
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
	}, func(known *contexts, args []string) (err error) {
		if known.Current = strings.Join(args, ""); none && len(args) > 0 {
			return tool.Errorf(tool.CodeInvalidInput, "context use takes a name or --none, not both; leave one out")
		} else if len(args) > 0 {
			_, err = known.get(known.Current)
		}
		return err
	})
	use.Flags().BoolVar(&none, "none", false, "use no context, as without NAME: commands use the config again")
	c.AddCommand(add, use, a.changing("removed", &cobra.Command{
		Use: "remove NAME", Short: "Forget a context and its token", Args: words(1, 1),
	}, func(known *contexts, args []string) error {
		_, err := known.get(args[0])
		if delete(known.Contexts, args[0]); known.Current == args[0] {
			known.Current = ""
		}
		return err
	}))
	return c
}

// changing makes c a command that changes the contexts.
func (a *app) changing(done string, c *cobra.Command, change func(known *contexts, args []string) error) *cobra.Command {
	c.ValidArgsFunction = completeContext
	c.RunE = func(_ *cobra.Command, args []string) error {
		known, err := readContexts()
		if err == nil {
			err = change(&known, args)
		}
		if err == nil {
			err = config.WritePrivate(config.ContextsFile(), raw(known))
		}
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
	known, err := readContexts()
	all := []shownContext{}
	for _, name := range slices.Sorted(maps.Keys(known.Contexts)) {
		one := known.Contexts[name]
		use := map[bool]string{true: "*"}[name == known.Current]
		all = append(all, shownContext{use, name, withoutPassword(one.URL), one.Token != ""})
	}
	if url := os.Getenv("TOOLPOST_URL"); url != "" {
		a.note("TOOLPOST_URL comes first: " + withoutPassword(url))
	}
	if err != nil {
		return err
	}
	return list(a, "contexts", all, columns[shownContext]("use name url token", nil))
}
