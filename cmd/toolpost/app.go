package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/config"
	"toolpost/identity"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/strictjson"
)

// closeTimeout is how long the end of a command waits for its sources.
const closeTimeout = 10 * time.Second

// An app is one run of the program: its streams, and the flags that every command has.
type app struct {
	in       io.Reader
	out, err *screen

	config  string
	verbose bool
	logJSON bool
	json    bool // errors go to out as JSON
}

func newApp() *app {
	return &app{in: os.Stdin, out: newScreen(os.Stdout), err: newScreen(os.Stderr)}
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root(args)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code exit
	if err == nil || errors.As(err, &code) {
		return int(code)
	}
	a.complain(err)
	return exitCode(err)
}

func (a *app) root(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "toolpost",
		Short: "Runs tools for AI agents and applications",
		Long: "Toolpost runs tools for AI agents and applications: Python functions, programs that report events,\n" +
			"built-in ones. Start with `toolpost init`, then `toolpost tools` and `toolpost call`.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
	}
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetHelpFunc(a.help)
	flags := root.PersistentFlags()
	flags.StringVar(&a.config, "config", "", "config file (default: $TOOLPOST_CONFIG, else ./toolpost.yaml if it is there)")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "log what happens to stderr")
	onlyCommands(root)
	for _, make := range a.commands(args) {
		root.AddCommand(make())
	}
	root.InitDefaultCompletionCmd()
	return root
}

// commands gives what makes the commands, in the order of the help. Where the first word names one, that one is enough:
// making all of them takes a program as long as many a command.
func (a *app) commands(args []string) []func() *cobra.Command {
	all := []struct {
		name string
		make func() *cobra.Command
	}{
		{"call", a.callCommand}, {"tools", a.toolsCommand}, {"serve", a.serveCommand}, {"as", a.asCommand},
		{"init", a.initCommand}, {"select", a.selectCommand}, {"pack", a.packCommand}, {"skill", a.skillCommand},
		{"policy", a.policyCommand}, {"audit", a.auditCommand}, {"state", a.stateCommand}, {"lease", a.leaseCommand},
		{"token", a.tokenCommand}, {"jobs", a.jobsCommand}, {"ps", a.psCommand}, {"sources", a.sourcesCommand},
		{"config", a.configCommand}, {"doctor", a.doctorCommand},
		{"version", a.versionCommand},
	}
	var makers []func() *cobra.Command
	for _, c := range all {
		if len(args) > 0 && args[0] == c.name {
			return []func() *cobra.Command{c.make}
		}
		makers = append(makers, c.make)
	}
	return makers
}

// onlyCommands makes a command that does nothing but hold others.
func onlyCommands(c *cobra.Command) {
	c.Use += " COMMAND"
	c.DisableFlagsInUseLine = true
	c.Args = noSuchCommand
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

// noSuchCommand is for commands that take no words but those of their subcommands.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	hint := ""
	if near := nearest.Of(args[0], names); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("%s has no command %q%s", c.CommandPath(), args[0], hint)
}

// words asks for a number of words; most below zero: any number.
func words(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return fmt.Errorf("usage: %s", c.UseLine())
		}
		return nil
	}
}

// work wraps what a command does, so that an error without a class is our fault and not one of usage.
func work(f func(c *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		err := f(c, args)
		var code exit
		if err == nil || errors.As(err, &code) {
			return err
		}
		return tool.AsError(err)
	}
}

// jsonFlag adds --json to a command.
func (a *app) jsonFlag(c *cobra.Command, usage string) {
	c.Flags().BoolVar(&a.json, "json", false, usage)
}

// complain tells what went wrong: in words on stderr, or with --json as JSON on stdout.
func (a *app) complain(err error) {
	var e *tool.Error
	if !errors.As(err, &e) { // cobra's: it did not understand the command line
		e = tool.Errorf(tool.CodeInvalidInput, "%w\nsee `toolpost --help`", err)
	}
	if a.json {
		_ = a.printJSON(map[string]any{"error": e})
		return
	}
	fmt.Fprintf(a.err, "%s %s\n", a.err.red("toolpost:"), cleanLines(e.Message))
}

func (a *app) printJSON(v any) error {
	b, err := strictjson.Marshal(v)
	if err != nil {
		return err
	}
	return a.printIndented(b)
}

func (a *app) printIndented(b []byte) error {
	text, err := indent(b)
	if err == nil {
		_, err = fmt.Fprintln(a.out, text)
	}
	return err
}

// logger writes to stderr what is at least as grave as level.
func (a *app) logger(level slog.Level) *slog.Logger {
	if a.verbose {
		level = slog.LevelDebug
	}
	o := &slog.HandlerOptions{Level: level}
	if a.logJSON {
		return slog.New(slog.NewJSONHandler(a.err, o))
	}
	return slog.New(slog.NewTextHandler(a.err, o))
}

// load reads the config that the flag, the environment or the folder names, or gives the defaults.
func (a *app) load() (*config.Config, error) {
	path := a.config
	if path == "" {
		path = os.Getenv("TOOLPOST_CONFIG")
	}
	if path != "" {
		return node.Load(path)
	}
	if _, err := os.Lstat(config.FileName); err == nil {
		return node.Load(config.FileName)
	}
	dir, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	return config.Default(dir), nil
}

// A backend is where calls go: the tools of the config, in this process, or a server.
type backend struct {
	tool.Handler
	tool.Catalog
	close func()
}

// A server says which backend is wanted; empty: this process.
type server struct{ url, token string }

func (s *server) flags(c *cobra.Command) {
	c.Flags().StringVar(&s.url, "server", "", "use the Toolpost that serves at this URL, not the config's tools")
	c.Flags().StringVar(&s.token, "token", "", "token for --server (better: $TOOLPOST_TOKEN, which no process list shows)")
}

func (a *app) open(ctx context.Context, s server) (*backend, error) {
	return a.openAt(ctx, s, node.Options{})
}

// openAt opens a server, or the config's tools in this process with the options.
func (a *app) openAt(ctx context.Context, s server, o node.Options) (*backend, error) {
	if s.url != "" {
		if s.token == "" {
			s.token = os.Getenv("TOOLPOST_TOKEN")
		}
		remote, err := node.Dial(s.url, s.token)
		return &backend{remote, remote, func() {}}, err
	}
	return a.openNode(ctx, o)
}

// openNode opens the config's tools in this process, for who runs it.
func (a *app) openNode(ctx context.Context, o node.Options) (*backend, error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	return a.openNodeAt(ctx, cfg, me().Door, o)
}

// openNodeAt opens the tools of a config for who runs this process and comes in by a door.
func (a *app) openNodeAt(ctx context.Context, cfg *config.Config, door string, o node.Options) (*backend, error) {
	o.Log = a.logger(slog.LevelError)
	n, err := node.Open(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	who, err := n.Admit(ctx, identity.Credentials{Door: door, Peer: identity.Self()})
	if err != nil {
		closeNode(ctx, n, o.Log)
		return nil, err
	}
	in := admitted{n.Handler(), n.Catalog(), who}
	return &backend{in, in, func() { closeNode(ctx, n, o.Log) }}, nil
}

// admitted lets a command call and see tools as who runs it, with the rights that the config gives them.
type admitted struct {
	handler tool.Handler
	catalog tool.Catalog
	who     tool.Principal
}

// Invoke implements tool.Handler.
func (a admitted) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	own := *c
	own.Caller = a.who
	return a.handler.Invoke(ctx, &own, out)
}

// Lookup implements tool.Catalog.
func (a admitted) Lookup(ctx context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	return a.catalog.Lookup(ctx, a.who, name)
}

// Specs implements tool.Catalog.
func (a admitted) Specs(ctx context.Context, _ tool.Principal) iter.Seq2[*tool.Spec, error] {
	return a.catalog.Specs(ctx, a.who)
}

// WhyNot implements tool.Reasoner.
func (a admitted) WhyNot(ctx context.Context, _ tool.Principal, name string) error {
	return tool.WhyNot(ctx, a.catalog, a.who, name)
}

// Changed implements tool.Changing.
func (a admitted) Changed() <-chan struct{} { return tool.Changed(a.catalog) }

func closeNode(ctx context.Context, n *node.Node, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		log.Error("not everything ended in good order", "error", err)
	}
}

// me is who calls from the command line, unless the config lists the user who runs it.
func me() tool.Principal { return tool.Principal{ID: identity.Local, Door: "cli"} }

// raw marshals what cannot fail to be JSON.
func raw(v any) json.RawMessage {
	b, err := strictjson.Marshal(v)
	if err != nil {
		b, _ = strictjson.Marshal(err.Error())
	}
	return b
}
