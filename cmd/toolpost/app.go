package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"toolpost/config"
	"toolpost/engine/cassette"
	"toolpost/fleet"
	"toolpost/identity"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/duration"
	"toolpost/wire/nearest"
	"toolpost/wire/strictjson"
)

// closeTimeout bounds how long a command waits at its end for the sources to close.
const closeTimeout = 10 * time.Second

// An app is one run of the program: its streams, and the flags that every command has.
type app struct {
	in       io.Reader
	out, err *screen

	config  string
	state   string
	verbose bool
	logJSON bool
	json    bool // errors go to out as JSON
	server  server

	recorder *cassette.Recorder  // of what commands call in this process; nil if nothing is recorded
	check    *cassette.Checklist // of the cassette that is played; nil if it is not checked
	played   *config.Config      // replaces the config
	called   bool                // a tool may have been called in this process
}

func newApp() *app {
	return &app{in: os.Stdin, out: newScreen(os.Stdout), err: newScreen(os.Stderr)}
}

func (a *app) run(ctx context.Context, args []string) int {
	err := a.execute(ctx, args)
	var code exit
	if err == nil || errors.As(err, &code) {
		return int(code)
	}
	a.complain(err)
	return exitCode(err)
}

// execute runs the command that the arguments name. It gives errors of cobra a class: cobra did not understand the command
// line. Our own errors have a class already.
func (a *app) execute(ctx context.Context, args []string) error {
	root := a.root(args)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	var code exit
	if _, ok := errors.AsType[*tool.Error](err); ok || err == nil || errors.As(err, &code) {
		return err
	}
	return tool.Errorf(tool.CodeInvalidInput, "%w\nsee `%s --help`", plain(err), c.CommandPath())
}

// plain rewrites cobra's error about flags that exclude each other.
func plain(err error) error {
	_, given, exclusive := strings.Cut(err.Error(), "are set none of the others can be; [")
	if !exclusive {
		return err
	}
	given, _, _ = strings.Cut(given, "]")
	return fmt.Errorf("--%s cannot be used together", strings.ReplaceAll(given, " ", " and --"))
}

func (a *app) root(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "toolpost",
		Short: "Runs tools for AI agents and applications",
		Long: "Toolpost runs tools for AI agents and applications: Python functions, programs, skills, MCP servers, and\n" +
			"built-in tools. Start with `toolpost init`, then `toolpost tools` and `toolpost call`.",
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
	flags.StringVar(&a.config, "config", "",
		"config file (default: $TOOLPOST_CONFIG, otherwise ./toolpost.yaml if it exists)")
	flags.StringVar(&a.state, "state", "",
		"folder for Toolpost's data (default: $TOOLPOST_STATE, then the config's state, then .toolpost beside the config)")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "write a log to stderr")
	flags.BoolP("help", "h", false, "print this help")
	root.Flags().Bool("version", false, "print the version")
	classify(group(root, a.commands(root, args)...))
	root.SetFlagErrorFunc(noSuchFlag)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() { // cobra's own would show the general help for an unknown command or shell
		switch c.Name() {
		case "help":
			c.Args = func(c *cobra.Command, args []string) error {
				about, rest, _ := c.Root().Find(args)
				return noSuchCommand(about, rest)
			}
		case "completion":
			c.Use, c.Short, c.Long, c.DisableFlagsInUseLine = "completion SHELL", "Print a completion script for a shell", "", true
			c.Args, c.RunE = noSuchCommand, func(c *cobra.Command, _ []string) error { return c.Help() }
			for _, shell := range c.Commands() {
				shell.Long = strings.ReplaceAll(shell.Long, "#### ", "")
			}
		}
	}
	return root
}

// noSuchFlag suggests flags that are similar to one that c does not have.
func noSuchFlag(c *cobra.Command, err error) error {
	wrong, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var names []string
	otherwise := map[string]string{"call": "; arguments of a tool are name=value, without --"}[c.Name()]
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return fmt.Errorf("%w%s", err, nearest.Suggest("--"+wrong.GetSpecifiedName(), names, otherwise))
}

// commands makes the commands in their groups, in the order of the help. If the first word names a command, it makes only
// that one: making all of them takes as long as many a command runs.
func (a *app) commands(root *cobra.Command, args []string) (made []*cobra.Command) {
	type maker struct {
		name string
		make func() *cobra.Command
	}
	type part struct {
		title  string
		makers []maker
	}
	parts := []part{
		{"Set up", []maker{
			{"init", a.initCommand}, {"connect", a.connectCommand}, {"mcp", a.mcpCommand}, {"wrap", a.wrapCommand},
			{"skill", a.skillCommand}, {"pack", a.packCommand}, {"config", a.configCommand}, {"doctor", a.doctorCommand},
		}},
		{"Find and call tools", []maker{
			{"tools", a.toolsCommand}, {"call", a.callCommand}, {"plan", a.planCommand}, {"jobs", a.jobsCommand},
			{"story", a.storyCommand}, {"select", a.selectCommand}, {"record", a.recordCommand}, {"replay", a.replayCommand},
		}},
		{"Serve", []maker{
			{"serve", a.serveCommand}, {"as", a.asCommand}, {"console", a.consoleCommand}, {"reload", a.reloadCommand},
			{"context", a.contextCommand}, {"login", a.loginCommand}, {"logout", a.logoutCommand}, {"fleet", a.fleetCommand}, {"worker", a.workerCommand},
		}},
		{"Decide who may do what", []maker{
			{"approvals", a.approvalsCommand}, {"approve", a.approveCallCommand}, {"deny", a.denyCallCommand},
			{"policy", a.policyCommand}, {"lease", a.leaseCommand}, {"token", a.tokenCommand}, {"callers", a.callersCommand},
			{"connections", a.connectionsCommand},
		}},
		{"See what happens", []maker{
			{"ps", a.psCommand}, {"calls", a.callsCommand}, {"top", a.topCommand}, {"logs", a.logsCommand}, {"sources", a.sourcesCommand},
			{"usage", a.usageCommand}, {"audit", a.auditCommand}, {"state", a.stateCommand}, {"store", a.storeCommand},
		}},
		{"About this program", []maker{{"version", a.versionCommand}, {"man", a.manCommand}}},
	}
	if len(args) > 2 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		args = args[1:]
	}
	named := func(m maker) bool { return len(args) > 0 && args[0] == m.name }
	one := slices.ContainsFunc(parts, func(p part) bool { return slices.ContainsFunc(p.makers, named) })
	for _, p := range parts {
		root.AddGroup(&cobra.Group{ID: p.title, Title: p.title})
		for _, m := range p.makers {
			if !one || named(m) {
				c := m.make()
				c.GroupID = p.title
				made = append(made, c)
			}
		}
	}
	last := parts[len(parts)-1].title
	root.SetHelpCommandGroupID(last)
	root.SetCompletionCommandGroupID(last)
	return made
}

// group makes c a command that only holds others.
func group(c *cobra.Command, others ...*cobra.Command) *cobra.Command {
	c.Use += " COMMAND"
	c.DisableFlagsInUseLine = true
	c.Args = noSuchCommand
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.AddCommand(others...)
	return c
}

// noSuchCommand is the Args function of commands that take nothing but a subcommand.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 || !c.HasSubCommands() {
		return nil
	}
	otherwise := ""
	if !c.HasParent() {
		otherwise = "; a tool is called with `toolpost call NAME`"
	}
	return noSubcommand(c, args[0], otherwise)
}

// noSubcommand returns the error for a word that is not a subcommand of c; otherwise ends it if no name is similar.
func noSubcommand(c *cobra.Command, word, otherwise string) error {
	var names []string
	for _, sub := range c.Commands() {
		if names = append(names, sub.Name()); slices.Contains(sub.SuggestFor, word) {
			otherwise = "; did you mean " + sub.Name() + "?"
		}
	}
	return fmt.Errorf("%s has no command %q%s", c.CommandPath(), word, nearest.Suggest(word, names, otherwise))
}

// words requires between least and most words; a negative most means no limit.
func words(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch listing := most == 0 && c.HasSubCommands(); { // commands that do something without a subcommand list
		case listing && len(args) == 1 && args[0] == "list": // as in groups that have a command of this name
			return nil
		case listing && len(args) > 0:
			return noSubcommand(c, args[0], "; `"+c.CommandPath()+"` alone lists")
		case len(args) < least || most >= 0 && len(args) > most:
			return fmt.Errorf("usage: %s", c.UseLine())
		}
		return nil
	}
}

// classify wraps the commands so that an error without a class counts as our fault and not as a usage error. Commands
// without Args take no words.
func classify(c *cobra.Command) {
	if c.Args == nil {
		c.Args = words(0, 0)
	}
	do := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		err := do(c, args)
		var code exit
		if err == nil || errors.As(err, &code) {
			return err
		}
		return tool.AsError(err)
	}
	for _, sub := range c.Commands() {
		classify(sub)
	}
}

// withJSON adds --json to a command.
func (a *app) withJSON(usage string, c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.json, "json", false, usage)
	return c
}

// durationVar adds a flag for a duration, such as 90s or 30d. The current value of the variable is the default.
func durationVar(c *cobra.Command, d *time.Duration, name, usage string) {
	c.Flags().Var((*duration.Flag)(d), name, usage)
}

// complain reports an error: in words on stderr, or with --json as JSON on stdout.
func (a *app) complain(err error) {
	e := *tool.AsError(err)
	switch s := a.server; {
	case s.url == "" || !strings.Contains(e.Message, s.url):
	case s.byVar:
		e.Message += "; TOOLPOST_URL names it: unset it to call the tools of this folder"
	case s.context != "":
		e.Message += "; it is the server of the context " + s.context
	}
	e.Message = a.here(e.Message)
	if a.json {
		_ = a.printJSON(map[string]any{"error": &e})
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

// printIndented prints JSON for people. Characters that could harm a terminal are escaped, which JSON allows.
func (a *app) printIndented(b []byte) error {
	var text bytes.Buffer
	err := json.Indent(&text, bytes.TrimSpace(b), "", "  ")
	if err == nil {
		_, err = fmt.Fprintln(a.out, cleanLines(text.String()))
	}
	return err
}

// printList prints the same as printJSON for an object with this one list, but item by item: the schemas of many tools take
// tens of megabytes.
func printList[T any](a *app, kind string, all []T) error {
	const deep = "    "
	before := fmt.Sprintf("{\n  %q: [\n", kind)
	for _, one := range all {
		b, err := strictjson.Marshal(one)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := json.Indent(&text, b, deep, "  "); err != nil {
			return err
		}
		if _, err := fmt.Fprint(a.out, before, deep, cleanLines(text.String())); err != nil {
			return err
		}
		before = ",\n"
	}
	_, err := fmt.Fprint(a.out, "\n  ]\n}\n")
	return err
}

// tell prints a sentence, or the value with --json.
func (a *app) tell(v any, format string, args ...any) error {
	if a.json {
		return a.printJSON(v)
	}
	_, err := fmt.Fprintf(a.out, format+"\n", args...)
	return err
}

// conclude shows the findings, or prints them with --json, and fails if bad is set.
func (a *app) conclude(v any, show func(), bad bool) error {
	if !a.json {
		show()
	} else if err := a.printJSON(v); err != nil {
		return err
	}
	if bad {
		return exitFailed
	}
	return nil
}

// logger returns a logger that writes records of at least this level to stderr.
func (a *app) logger(level slog.Level) *slog.Logger {
	if a.verbose {
		level = slog.LevelDebug
	}
	o := &slog.HandlerOptions{Level: level}
	if a.logJSON {
		return slog.New(slog.NewJSONHandler(a.err, o))
	}
	o.ReplaceAttr = visibleText
	return slog.New(slog.NewTextHandler(a.err, o))
}

// visibleText escapes the characters of a text that a terminal does not show.
func visibleText(_ []string, at slog.Attr) slog.Attr {
	switch v := at.Value.Any().(type) {
	case string:
		at.Value = slog.StringValue(tool.Visible(v))
	case error:
		at.Value = slog.StringValue(tool.Visible(v.Error()))
	}
	return at
}

// load reads the config that the flag, the environment or the folder names, or returns the defaults.
func (a *app) load() (*config.Config, error) {
	cfg, err := a.read()
	if err != nil {
		return nil, err
	}
	return cfg, cfg.FindState(a.givenState())
}

// givenState returns the state folder from the command line or the environment, or "" if neither names one.
func (a *app) givenState() string { return cmp.Or(a.state, os.Getenv("TOOLPOST_STATE")) }

func (a *app) read() (*config.Config, error) {
	if a.played != nil {
		return a.played, nil
	}
	if path := cmp.Or(a.config, os.Getenv("TOOLPOST_CONFIG")); path != "" {
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

// nowhere begins the errors and notes about a folder without a config.
const nowhere = "there is no " + config.FileName + " in this folder"

// note tells people something beside the output.
func (a *app) note(text string) {
	fmt.Fprintf(a.err, "%s %s\n", a.err.amber("note:"), cleanLines(text))
}

// builtInOnly explains that there are only the built-in tools, because there is no config.
const builtInOnly = nowhere + ", so its tools are the built-in ones, read-only"

// unconfigured reports whether commands run here without a config.
func (a *app) unconfigured() bool {
	if a.server.url != "" || a.played != nil {
		return false
	}
	cfg, err := a.load()
	return err == nil && cfg.Path == ""
}

// noteDefault says that the built-in tools are shown because there is no config.
func (a *app) noteDefault() {
	if !a.json && a.unconfigured() {
		fmt.Fprintln(a.err, builtInOnly)
	}
}

// emptiness reports that a config names no tools, or returns "" if it names some, or is that of a hub: its nodes bring tools.
func emptiness(cfg *config.Config) string {
	if cfg.Path == "" || len(cfg.Sources) > 0 || !cfg.Section(fleet.Section().Name).Equal(config.Section{}) {
		return ""
	}
	return cfg.Path + " names no sources, so there are no tools; list some under `sources`, or add an MCP server with " +
		"`toolpost mcp add`"
}

// A backend is the target of calls: the config's tools, in this process, or a server.
type backend struct {
	tool.Handler
	tool.Catalog
	close func()
	empty string // why it has no tools, if its config names none
	agent func(identity.Agent) (tool.Principal, error)
}

// openAt opens the tools of a config for the user who runs this process, as a caller at a door.
func (a *app) openAt(ctx context.Context, cfg *config.Config, door string, o node.Options) (*backend, error) {
	n, end, err := a.openNode(ctx, cfg, slog.LevelError, o)
	if err != nil {
		return nil, err
	}
	who, err := n.Admit(ctx, identity.Credentials{Door: door, Peer: identity.Self()})
	if err != nil {
		end()
		return nil, err
	}
	in := &admitted{n.Handler(), n.Catalog(), who}
	if o.Client {
		end = runJobs(ctx, n, end)
	}
	return &backend{in, in, end, emptiness(cfg), func(a identity.Agent) (tool.Principal, error) {
		agent, err := n.Agent(who, a)
		if err == nil {
			in.who = agent
			in.who.Process = tool.NewID()
		}
		return agent, err
	}}, nil
}

// runJobs runs the jobs of a node until end, which then calls then.
func runJobs(ctx context.Context, n *node.Node, then func()) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { n.RunJobs(ctx) })
	return func() { stop(); running.Wait(); then() }
}

// openNode opens a node that logs records of at least this level; end closes it.
func (a *app) openNode(
	ctx context.Context, cfg *config.Config, level slog.Level, o node.Options,
) (n *node.Node, end func(), err error) {
	switch o.Log, a.called = a.logger(level), true; {
	case a.recorder != nil:
		o.Tape = a.recorder
	case a.check != nil:
		o.Tape = a.check
	}
	if n, err = node.Open(ctx, cfg, o); err != nil {
		return nil, nil, err
	}
	return n, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			o.Log.Error("not everything ended in good order", "error", err)
		}
	}, nil
}

// admitted calls and lists tools as the user who runs the command, or as an agent of that user, with the rights that the
// config grants.
type admitted struct {
	handler tool.Handler
	catalog tool.Catalog
	who     tool.Principal
}

// Invoke implements tool.Handler.
func (a *admitted) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	own := *c
	own.Caller, own.Run = a.who, cmp.Or(c.Run, a.who.Process)
	return a.handler.Invoke(ctx, &own, out)
}

// Lookup implements tool.Catalog.
func (a *admitted) Lookup(ctx context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	return a.catalog.Lookup(ctx, a.who, name)
}

// Specs implements tool.Catalog.
func (a *admitted) Specs(ctx context.Context, _ tool.Principal) iter.Seq2[*tool.Spec, error] {
	return a.catalog.Specs(ctx, a.who)
}

// Offers implements tool.Offering.
func (a *admitted) Offers(ctx context.Context, _ tool.Principal) iter.Seq2[*tool.Spec, tool.Follower] {
	return tool.Offers(ctx, a.catalog, a.who)
}

// Changed implements tool.Changing.
func (a *admitted) Changed() <-chan struct{} { return tool.Changed(a.catalog) }

// WhyNot implements tool.Reasoner.
func (a *admitted) WhyNot(ctx context.Context, _ tool.Principal, name string) error {
	return tool.WhyNot(ctx, a.catalog, a.who, name)
}

// me is the caller on the command line, unless the config lists the user who runs it.
func me() tool.Principal { return tool.Principal{ID: identity.Local, Door: "cli"} }

// raw marshals a value that always can be marshalled.
func raw(v any) json.RawMessage {
	b, err := strictjson.Marshal(v)
	if err != nil {
		b, _ = strictjson.Marshal(err.Error())
	}
	return b
}

// help replaces cobra's, whose templates would take half of the program's start time.
func (a *app) help(c *cobra.Command, _ []string) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(a.out, "%s\n\n%s\n  %s\n", text, a.out.bold("Usage:"), c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(a.out, "\n%s\n%s\n", a.out.bold("Examples:"), c.Example)
	}
	for _, part := range append([]*cobra.Group{{Title: "Commands"}}, c.Groups()...) {
		head := "\n" + a.out.bold(part.Title+":") + "\n"
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.GroupID == part.ID {
				fmt.Fprintf(a.out, "%s  %-12s %s\n", head, sub.Name(), sub.Short)
				head = ""
			}
		}
	}
	a.flagHelp("Flags:", c.LocalNonPersistentFlags().FlagUsagesWrapped(a.out.width()))
	every := c.InheritedFlags() // without flags that have another meaning for the command
	if !c.HasParent() {
		every = c.PersistentFlags()
	}
	a.flagHelp("Flags of every command:", every.FlagUsagesWrapped(a.out.width()))
}

func (a *app) flagHelp(title, flags string) {
	if flags = strings.TrimRight(flags, "\n"); flags != "" {
		fmt.Fprintf(a.out, "\n%s\n%s\n", a.out.bold(title), flags)
	}
}
