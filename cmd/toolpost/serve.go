package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"toolpost/builtin/define"
	"toolpost/cmd/toolpost/format"
	"toolpost/cmd/toolpost/memory"
	"toolpost/cmd/toolpost/terminal"
	"toolpost/config"
	"toolpost/engine/member"
	"toolpost/host/sandbox"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/web"
)

func (a *app) serveCommand() *cobra.Command {
	var o node.Options
	var replace bool
	var join, name string
	c := &cobra.Command{
		Use: "serve", SuggestFor: []string{"start", "up", "server"},
		Short: "Serve the tools at every configured door",
		Long: "Serves the tools of the config at its doors until SIGINT or SIGTERM, or until its terminal is closed.\n" +
			"Running calls may finish first; new calls are refused with a time to retry. With --replace, the new\n" +
			"server takes over the sockets of the running server of the same state folder, so no client is refused.\n" +
			"The old server ends when its calls have ended, at the latest after limits.drain. --replace is refused\n" +
			"with an embedded NATS server (doors.nats without url), and on a hub of a fleet. If systemd passes\n" +
			"sockets (LISTEN_FDS), the doors with the same addresses use them.\n\n" +
			"A change to the config, or to an app, skill, pack, plugin or program that it names, takes effect within\n" +
			"a second and is logged. `toolpost reload` and SIGUSR1 apply changes at once. SIGHUP does the same\n" +
			"without a terminal; with a terminal it ends the server.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.join(c.Context(), join, name, member.Hub); err != nil {
				return err
			}
			return a.serve(c.Context(), o, replace)
		},
	}
	c.Flags().StringVar(&o.Listen, "listen", "",
		"address of the HTTP door and of doors that share it (default: the config's, or 127.0.0.1:8700)")
	c.Flags().BoolVar(&replace, "replace", false, "take over from the server that runs with this state folder, if there is one")
	joins(c, &join, &name)
	c.Flags().BoolVar(&a.logJSON, "log-json", false, "write the log as lines of JSON")
	c.Flags().BoolVar(&o.NewToken, "new-token", false,
		"make a new token for the owner and print it; the old one stops working")
	return c
}

func (a *app) serve(ctx context.Context, o node.Options, replace bool) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	a.noteDefault()
	if o.Sockets, err = web.Activated(); err != nil {
		return err
	}
	o.Listen = config.Listen(o.Listen)
	log, successor := a.logger(slog.LevelInfo), cfg.Successor()
	if replace {
		found, err := o.Sockets.Replace(ctx, successor)
		if err != nil {
			return err
		}
		if found {
			log.Info("taking over from the running server of this config")
		}
	}
	first, _ := answering(ctx, cfg)
	ctx, reload, stop := terminal.ReloadSignals(ctx)
	defer stop()
	defer terminal.WithoutReaders()()
	defer sandbox.Keep()() // so that the first confined tool does not wait for the stage
	w := &welcome{app: a, cfg: cfg, second: first != nil && !replace, shown: make(chan struct{})}
	o.Token, o.Version, o.Watch = os.Getenv("TOOLPOST_TOKEN"), version, true
	o.Early, o.AddSource = true, a.addSource
	o.Commands = a.played == nil // a cassette has no config whose commands it could answer
	o.Ready = func(l node.Listening) { w.door(ctx, l) }
	n, end, err := a.openNode(ctx, cfg, slog.LevelInfo, o)
	if err != nil {
		return err
	}
	w.node = n
	defer end()
	defer memory.Settle()()

	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { n.Watch(ctx, reload) })
	watching.Go(func() {
		// The door for commands says it if another server runs.
		if err := o.Sockets.Serve(ctx, successor, cancel); err != nil && !w.second {
			log.Info("no other server can take over from this one", "error", tool.AsError(err).Message)
		}
	})
	watching.Go(func() {
		select {
		case <-w.shown: // otherwise the first question would stand above the address
			a.approveHere(ctx, n)
		case <-ctx.Done():
		}
	})
	said := make(chan struct{})
	unsaid := context.AfterFunc(ctx, func() {
		defer close(said)
		log.Info("shutting down; calls in flight may end first")
	})
	err = n.Serve(ctx)
	if !unsaid() {
		<-said // otherwise a server without calls could end before that
	}
	return whyNot(ctx, err, cfg, o.Listen)
}

// whyNot adds to the error of a server that could not start that another one runs: of its config, or at its address.
func whyNot(ctx context.Context, err error, cfg *config.Config, listen string) error {
	if tool.CodeOf(err) != tool.CodeUnavailable {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findWithin)
	defer cancel()
	message := tool.AsError(err).Message
	switch first, _ := answering(ctx, cfg); {
	case first != nil:
		message = "a server of this config runs already: `toolpost serve --replace` takes over from it; " + message
	case errors.Is(err, syscall.EADDRINUSE) && isToolpost(ctx, cfg, listen):
		message += "; it is the Toolpost server of another config"
	default:
		return err
	}
	return tool.Errorf(tool.CodeUnavailable, "%s", message)
}

// isToolpost reports whether a Toolpost answers at an address, or at that of a config. It needs no token for a refusal.
func isToolpost(ctx context.Context, cfg *config.Config, listen string) bool {
	if listen == "" {
		listen, _ = node.HTTPAddress(cfg) // none: nothing answers
	}
	remote, err := node.Dial(listen, "", "")
	if err == nil {
		_, err = remote.Lookup(ctx, me(), "toolpost")
	}
	return slices.Contains([]tool.Code{tool.CodeAccessDenied, tool.CodeNotFound}, tool.CodeOf(err))
}

// A welcome shows the person who started the server everything needed for the first call: the sources and a new token once,
// then each door as it opens.
type welcome struct {
	app  *app
	cfg  *config.Config
	node *node.Node

	mu     sync.Mutex
	told   bool
	shown  chan struct{} // closed after the first door
	second bool          // another server of this config answers commands
	owner  string        // the owner's token as a word for a shell; empty if this program does not know it
}

func (w *welcome) door(ctx context.Context, l node.Listening) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	if !w.told {
		w.told = true
		defer close(w.shown)
		w.sources(ctx, &b)
		if why := emptiness(w.cfg); why != "" {
			fmt.Fprintf(&b, "%s\n", w.app.out.amber(why))
		}
		if !w.cfg.StateBeside() {
			fmt.Fprintf(&b, "%s %s\n", w.app.out.bold("state in"), w.cfg.StateDir())
		}
		switch {
		case l.Token != "":
			w.token(&b, l.Token)
		case os.Getenv("TOOLPOST_TOKEN") != "" && w.node.HasOwner():
			w.owner = "$TOOLPOST_TOKEN"
			fmt.Fprintln(&b, "the owner's token is the value of TOOLPOST_TOKEN")
		}
	}
	fmt.Fprintf(&b, "%s %s\n", w.app.out.bold("serving on"), l.URL)
	if clients := clientsOf[l.Door]; clients != "" {
		fmt.Fprintf(&b, "  %s\n", w.app.out.dim("for "+clients))
	}
	if l.Door == "http" {
		w.everywhere(&b, l)
	}
	if slices.ContainsFunc(append(l.Also, l.URL), web.InClear) {
		fmt.Fprintf(&b, "  %s\n", w.app.out.amber(web.EncryptAdvice))
	}
	if l.Anonymous.Name != "" {
		fmt.Fprintf(&b, "  %s\n", w.app.out.amber(clean(l.Anonymous.String())))
	}
	if l.Door == "http" {
		fmt.Fprintf(&b, "%s\n  curl %s/v1/tools\n", w.app.out.bold("try"), w.toldTo(l))
	}
	if l.Console && w.app.out.terminal {
		w.console(ctx, &b, l)
	}
	_, _ = io.WriteString(w.app.out, b.String())
}

// clientsOf names the clients of doors whose address does not show it.
var clientsOf = map[string]string{"mcp": "MCP clients", "openai": "clients of OpenAI's and Anthropic's APIs"}

// token shows the owner's token, or the file that holds it.
func (w *welcome) token(b *strings.Builder, token string) {
	shown, file, err := disclose(w.cfg, token, isKept(os.Stdout, true))
	switch {
	case err != nil:
		fmt.Fprintf(b, "%s\n", w.app.out.red("the owner's token is lost: "+because(err)))
	case file != "":
		w.owner = "$(cat " + format.ShellWord(file) + ")"
		fmt.Fprintf(b, "the owner's token is in %s\n  take it from there and delete the file; `toolpost token new-owner` replaces it\n",
			file)
	default:
		w.owner = shown
		fmt.Fprintf(b, "%s %s\n  shown this once; `toolpost token new-owner` replaces it\n", w.app.out.bold("token"), shown)
	}
}

// console shows the person at the terminal a link to the console. It is shown only on a terminal: a reader of a log or a
// journal could use it first.
func (w *welcome) console(ctx context.Context, b *strings.Builder, l node.Listening) {
	path, err := w.node.ConsolePath(ctx)
	if err != nil || strings.HasPrefix(l.URL, "unix:") { // the config grants this user nothing, or browsers cannot reach it
		return
	}
	fmt.Fprintf(b, "%s %s%s\n  signs you in, once and within a minute; `toolpost console` makes another\n",
		w.app.out.bold("console"), l.URL, path)
}

// everywhere lists the other addresses of a door that listens on every address of the machine.
func (w *welcome) everywhere(b *strings.Builder, l node.Listening) {
	if len(l.Also) == 0 {
		return
	}
	name, err := os.Hostname()
	if err != nil {
		name = "NAME"
	}
	fmt.Fprintf(b, "  also %s\n  to use a name, such as %s, list it: doors: {http: {hosts: [%s]}}\n",
		strings.Join(l.Also, " "), clean(name), clean(name))
}

// toldTo returns the arguments for curl: the address and the credentials. At a Unix socket the kernel identifies the caller;
// the one for commands is for a person who has the token no more.
func (w *welcome) toldTo(l node.Listening) string {
	path, ok := strings.CutPrefix(l.URL, "unix:")
	switch {
	case !ok && (w.owner != "" || w.second):
		return fmt.Sprintf("-H \"Authorization: Bearer %s\" %s", cmp.Or(w.owner, "$TOOLPOST_TOKEN"), l.URL)
	case !ok:
		path = w.cfg.Socket()
	}
	return "--unix-socket " + format.ShellWord(path) + " http://localhost"
}

func (w *welcome) sources(ctx context.Context, b *strings.Builder) {
	tools := map[string]int{}
	for spec, err := range w.node.Catalog().Specs(ctx, me()) {
		if err == nil {
			tools[spec.Source]++
		}
	}
	for _, s := range w.node.Sources() {
		state := define.Count(tools[s.Name], "tool")
		switch {
		case s.Opening:
			state = w.app.out.amber("still opening") + "; calls of its tools wait for it"
		case s.Err != nil:
			state = w.app.out.red("unavailable: ") + because(s.Err)
		}
		fmt.Fprintf(b, "%-16s %-12s %s\n", s.Name, clean(s.Protocol), state)
	}
}
