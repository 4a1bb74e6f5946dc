package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/format"
	"toolpost/cmd/toolpost/mcpadd"
	"toolpost/config"
	"toolpost/host/secret"
	"toolpost/node"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
)

func isMCP(s config.Source) bool { return s.Protocol == mcpadd.Protocol }

func (a *app) mcpCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "mcp", SuggestFor: []string{"add", "install"}, Short: "Add, import, list and remove MCP servers as sources of tools",
		Long: "An MCP server becomes a source of the config: policy, walls, record and limits apply to its tools as to\n" +
			"all others. A program is started behind walls: it reads its own folder, writes only to a private /tmp,\n" +
			"and has no network, unless the source says otherwise.",
		Example: "  toolpost mcp add -- npx -y @modelcontextprotocol/server-everything\n  toolpost mcp add https://mcp.example.com/mcp\n" +
			"  toolpost mcp import ~/.cursor/mcp.json --dry-run",
	}, a.mcpAddCommand(), a.mcpImportCommand(), a.mcpListCommand(), a.mcpRemoveCommand(), a.mcpLoginCommand())
}

// editConfig opens the config for a change.
func (a *app) editConfig() (*mcpadd.Edit, error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	if cfg.Path == "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, nowhere+"; `toolpost init --empty` writes one, and --config "+
			"names another")
	}
	return mcpadd.Open(cfg, mcpadd.Screen{
		Warn: func(text string) { fmt.Fprintln(a.err, cleanLines(text)) },
		Progress: func(text, name string) (done func()) {
			if !a.json {
				fmt.Fprintln(a.err, text)
			}
			shown := a.err.progress(name)
			return func() { shown.End() }
		},
	})
}

// A trial is the result of opening a source.
type trial struct {
	Name  string      `json:"name"`
	Tools []triedTool `json:"tools,omitempty"`
	Error string      `json:"error,omitempty"`

	source config.Source
	held   int // tools that wait for a review
	err    error
}

type triedTool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`

	example string // a call of it, with a word in capitals for each argument that it requires
	plain   bool   // all of these are strings
}

// tryAdded checks the config as it will be, and opens its new sources.
func (a *app) tryAdded(ctx context.Context, e *mcpadd.Edit) ([]trial, error) {
	cfg, err := e.Parsed()
	if err != nil {
		return nil, err
	}
	return a.tryThose(ctx, cfg, func(s config.Source) bool { return slices.Contains(e.Added, s.Name) }, true)
}

// tryThose opens only the selected sources of a config. If they are added, none may endanger another.
func (a *app) tryThose(ctx context.Context, cfg *config.Config, those func(config.Source) bool, added bool) ([]trial, error) {
	sources := slices.DeleteFunc(slices.Clone(cfg.Sources), func(s config.Source) bool { return !those(s) })
	if len(sources) == 0 {
		return nil, nil
	}
	defer a.err.progress("starting " + clean(strings.Join((&config.Config{Sources: sources}).SourceNames()[1:], ", "))).End()
	n, end, err := a.openNode(ctx, cfg, slog.LevelError+1, node.Options{Version: version, Only: those})
	if err != nil {
		return nil, err
	}
	defer end()
	held := map[string]int{}
	for _, h := range n.Held() {
		held[h.Now.Source]++
	}
	var all []trial
	for i, s := range n.Sources() {
		if added && s.Err == nil {
			s.Err = n.Endangers(s.Name)
		}
		one := trial{Name: s.Name, source: sources[i], held: held[s.Name], err: s.Err}
		if s.Err != nil {
			one.Error = because(s.Err)
		}
		for spec, err := range n.Catalog().Specs(ctx, me()) {
			if spec != nil && spec.Source == s.Name && s.Err == nil && err == nil {
				example, plain := mcpadd.ExampleCall(spec)
				one.Tools = append(one.Tools, triedTool{spec.Name, spec.Description, example, plain})
			}
		}
		all = append(all, one)
	}
	return all, nil
}

func (a *app) mcpListCommand() *cobra.Command {
	return a.withJSON("print JSON", &cobra.Command{
		Use: "list", Short: "List the MCP servers of the config, with their state",
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			a.noteDefault()
			tried, err := a.tryThose(c.Context(), cfg, isMCP, false)
			if err != nil {
				return err
			}
			all := []mcpRow{}
			for _, t := range tried {
				row := mcpRow{
					Name: t.Name, State: "open", Tools: len(t.Tools), Held: t.held, Server: shownServer(t.source), Error: t.Error,
				}
				if t.err != nil {
					row.State = "failed"
				}
				if row.Held > 0 && row.Error == "" {
					row.Error = fmt.Sprintf("%d held back: %s", row.Held, reviewHint)
				}
				all = append(all, row)
			}
			return list(a, "servers", all, columns[mcpRow]("name state tools server error", nil))
		},
	})
}

// An mcpRow is a server as the list shows it.
type mcpRow struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Tools  int    `json:"tools"`
	Held   int    `json:"held,omitzero"` // how many more are held back
	Server string `json:"server"`        // its command or its address
	Error  string `json:"error,omitempty"`
}

// shownServer returns the server of a source, without possible secrets.
func shownServer(src config.Source) string {
	var o runner.SourceOptions
	if err := src.Decode(&o); err != nil {
		return ""
	}
	if u, err := url.Parse(o.URL); err == nil && o.URL != "" {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		return u.String()
	}
	return cmp.Or(strings.Join(o.Command, " "), o.Container.Image)
}

func (a *app) mcpRemoveCommand() *cobra.Command {
	return a.withJSON("print what was removed as JSON", &cobra.Command{
		Use: "remove NAME", Short: "Remove an MCP server from the config, with its package, login and secrets",
		Long: "Removes the source from the config, with its installed package, its login, and the secrets in the state\n" +
			"folder that no other source uses.",
		Args: words(1, 1), DisableFlagsInUseLine: true, ValidArgsFunction: a.completeMCP,
		RunE: func(_ *cobra.Command, args []string) error {
			e, err := a.editConfig()
			if err != nil {
				return err
			}
			defer e.Close()
			secrets, err := e.Remove(args[0])
			if err != nil {
				return err
			}
			return a.tell(map[string]any{"removed": args[0], "secrets": append([]string{}, secrets...)}, "%s %s%s",
				a.out.green("removed"), args[0], withSecrets(secrets))
		},
	})
}

// completeMCP completes the names of MCP servers.
func (a *app) completeMCP(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	if cfg, err := a.load(); err == nil {
		for _, s := range cfg.Sources {
			if isMCP(s) {
				names = append(names, s.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func withSecrets(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", with its secrets " + strings.Join(names, ", ")
}

func (a *app) mcpLoginCommand() *cobra.Command {
	return &cobra.Command{
		Use: "login NAME", Short: "Log in to an MCP server, in a browser", Args: words(1, 1),
		Long: "Prints a link. Open it in a browser on this machine and agree; then Toolpost can use the server in your\n" +
			"name. Over ssh, first forward the port in the link's redirect_uri to your own machine (ssh -L\n" +
			"PORT:127.0.0.1:PORT). The tokens are kept in the state folder, readable only by its owner; `toolpost mcp\n" +
			"remove` deletes them.",
		DisableFlagsInUseLine: true, ValidArgsFunction: a.completeMCP,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			src, err := mcpadd.Source(cfg, args[0])
			if err != nil {
				return err
			}
			var from map[string]secret.From
			if err := cfg.Secrets.Decode(&from); err != nil {
				return err
			}
			src.Secrets = secret.Open(c.Context(), cfg.Dir, from, nil)
			err = runner.Login(c.Context(), src, func(link string) {
				fmt.Fprintf(a.out, "open this link in a browser on this machine:\n  %s\n", clean(link))
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "%s %s; `toolpost tools` lists its tools\n", a.out.green("logged in to"), src.Name)
			return err
		},
	}
}

// An mcpAdding is one run of `toolpost mcp add`.
type mcpAdding struct {
	*app
	mcpadd.Request
	dry, replace bool
}

func (a *app) mcpAddCommand() *cobra.Command {
	q := &mcpAdding{app: a}
	c := &cobra.Command{
		Use: "add [flags] (URL | -- COMMAND [ARG ...])", Short: "Add an MCP server to the config as a source",
		Args: words(1, -1), DisableFlagsInUseLine: true,
		Long: "Checks the config, starts the server, lists its tools, and adds the source to the config. If a step\n" +
			"fails, the config stays unchanged; a server that needs a login is added. A server that npx or uvx runs\n" +
			"is installed once, at its current version, into the state folder, and starts from there, because its\n" +
			"walls allow no network. Install scripts and builds of packages are not run unless --scripts is given.\n" +
			"The image of a `docker run` or `podman run` is fetched once and pinned.",
		Example: "  toolpost mcp add -- npx -y @modelcontextprotocol/server-everything\n" +
			"  toolpost mcp add -- uvx mcp-server-time\n" +
			"  toolpost mcp add --network all -- docker run -i --rm -e GITHUB_PERSONAL_ACCESS_TOKEN ghcr.io/github/github-mcp-server\n" +
			"  toolpost mcp add --write ./notes -- npx -y @modelcontextprotocol/server-filesystem ./notes\n" +
			"  toolpost mcp add --secret GITHUB_TOKEN --network api.github.com -- ./github-server\n" +
			"  toolpost mcp add https://mcp.example.com/mcp\n" +
			"  toolpost mcp add --header \"Authorization: Bearer $TOKEN\" https://tools.example.com/mcp",
		RunE: func(c *cobra.Command, args []string) error { return q.run(c.Context(), args, c.ArgsLenAtDash() == 0) },
	}
	f := c.Flags()
	f.StringVar(&q.Name, "name", "", "name of the source (default: from the package, image, program or host)")
	f.StringArrayVar(&q.Env, "env", nil,
		"environment variable NAME=VALUE for the program, in clear text in the config; repeatable")
	f.StringArrayVar(&q.Secrets, "secret", nil,
		"NAME of an environment variable for the program, kept as a secret; repeatable")
	f.StringArrayVar(&q.Headers, "header", nil,
		"HTTP header \"NAME: VALUE\" for a URL; tokens are kept as secrets; repeatable")
	f.StringArrayVar(&q.Read, "read", nil, "file or folder that the program may read; repeatable")
	f.StringArrayVar(&q.Write, "write", nil, "file or folder that the program may change; repeatable")
	f.StringArrayVar(&q.Network, "network", nil, "host that the program may reach, or all; repeatable")
	f.StringVar(&q.Dir, "dir", "", "folder that the program runs in (default: the folder of the config)")
	f.BoolVar(&q.Scripts, "scripts", false, "run the install scripts of the package, or build it")
	f.BoolVar(&q.replace, "replace", false, "replace the source with this name")
	f.BoolVar(&q.NoTry, "no-try", false, "write the source without starting the server")
	f.BoolVar(&q.dry, "dry-run", false, "only show what would be written")
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return tool.Errorf(tool.CodeInvalidInput, "%w\na program and its flags come after --: `toolpost mcp add -- npx -y PACKAGE`", err)
	})
	return a.withJSON("print the source and its tools as JSON", c)
}

func (q *mcpAdding) run(ctx context.Context, args []string, program bool) error {
	s, err := q.Server(args, program)
	if err != nil {
		return err
	}
	e, err := q.editConfig()
	if err != nil {
		return err
	}
	defer e.Close()
	tried, err := q.add(ctx, e, s)
	switch {
	case err != nil:
		return err
	case q.dry:
		return q.show(e, s)
	}
	return q.tellAdded(e, s, tried)
}

// add tries the server and writes it into the config; a dry run does neither.
func (q *mcpAdding) add(ctx context.Context, e *mcpadd.Edit, s *mcpadd.Server) (tried trial, err error) {
	if err := q.Walls(e.Config, s); err != nil {
		return tried, err
	}
	if q.replace && e.Taken(s.Name) {
		src, err := mcpadd.Source(e.Config, s.Name)
		if err == nil {
			_, err = e.Forget(src)
		}
		if err != nil {
			return tried, err
		}
	}
	if err := e.Add(ctx, s, q.dry); err != nil || q.dry {
		return tried, err
	}
	tried = trial{Name: s.Name}
	if !q.NoTry {
		if tried, err = q.try(ctx, e, s); err != nil {
			return tried, err
		}
	}
	return tried, e.Write()
}

// try starts the server. A server that wants a login counts as started; one that fails otherwise is not written.
func (q *mcpAdding) try(ctx context.Context, e *mcpadd.Edit, s *mcpadd.Server) (trial, error) {
	all, err := q.tryAdded(ctx, e)
	if err != nil {
		return trial{}, err
	}
	one := all[0]
	failed, _ := errors.AsType[*tool.Error](one.err)
	if one.err == nil || failed != nil && failed.Reason == runner.ReasonLogin {
		return one, nil
	}
	message := "the server did not start, so nothing was written: " + one.Error
	if s.URL != "" {
		message = "the server cannot be used, so nothing was written: " + one.Error
	}
	hints := s.Remarks
	if s.URL == "" && !s.Contained() {
		path := s.Hidden(e.Config.Dir, false)
		if path != "" {
			hints = append(hints, fmt.Sprintf("its walls hide %s, which its command or a variable names: --read %[1]s lets it look, "+
				"--write %[1]s also change what is there", format.ShellWord(path)))
		}
		hints = append(hints, cmp.Or(s.AbsentHint(one.Error), mcpadd.WallsHint(one.Error, path, true)))
	}
	if s.URL == "" && s.Bare() {
		hints = append(hints, "it gets no variables but PATH, HOME, LANG and TMPDIR; --env and --secret give it more")
	}
	for _, hint := range hints {
		if hint != "" {
			message += "\n  " + hint
		}
	}
	return one, tool.Errorf(tool.CodeOf(one.err), "%s\n  --no-try writes it anyway", message)
}

// show prints what would be written.
func (q *mcpAdding) show(e *mcpadd.Edit, s *mcpadd.Server) error {
	if q.json {
		return q.printJSON(map[string]any{"config": e.Config.Path, "source": s.Source().JSON(), "secrets": s.SecretNames()})
	}
	fmt.Fprintf(q.out, "would write to %s:\n%s\n", e.Config.Path, cleanLines(s.Source().String()))
	for _, name := range s.SecretNames() {
		fmt.Fprintf(q.out, "  and keep the secret %s\n", name)
	}
	return nil
}

func (q *mcpAdding) tellAdded(e *mcpadd.Edit, s *mcpadd.Server, tried trial) error {
	if q.json {
		return q.printJSON(map[string]any{
			"config": e.Config.Path, "source": s.Source().JSON(), "secrets": s.SecretNames(), "tools": tried.Tools, "error": tried.Error,
			"remarks": append([]string{}, s.Remarks...),
		})
	}
	fmt.Fprintf(q.out, "%s %s to %s\n", q.out.green("added"), q.out.bold(s.Name), e.Config.Path)
	q.showTrial(tried)
	for _, r := range s.Remarks {
		fmt.Fprintf(q.out, "note: %s\n", clean(r))
	}
	for _, name := range s.SecretNames() {
		fmt.Fprintf(q.out, "note: the secret %s is kept in %s\n", name, filepath.Join(e.SecretsDir(), name))
	}
	q.tellNext(s, tried)
	return nil
}

func (a *app) showTrial(tried trial) {
	if len(tried.Tools) == 0 {
		return
	}
	columns("tool=name description", cells[triedTool]{
		"description": func(t triedTool) string { return short(clean(t.Description), 100) },
	}).print(a, "tools", tried.Tools)
}

func (q *mcpAdding) tellNext(s *mcpadd.Server, tried trial) {
	switch {
	case tried.err != nil:
		fmt.Fprintf(q.out, "next: it needs a login: toolpost mcp login %s; or, with a token of yours:\n"+
			"  toolpost mcp add --replace --name %[1]s --header \"Authorization: Bearer TOKEN\" %s\n", s.Name, format.ShellWord(s.URL))
		return
	case q.NoTry:
		fmt.Fprintln(q.out, "next: see whether it starts: toolpost mcp list")
		return
	case s.Contained():
		fmt.Fprintf(q.out, "container: it has nothing of this machine and %s network; -v and --network all give more\n",
			map[bool]string{true: "no", false: "a"}[len(s.Network) == 0])
	case s.URL == "":
		fmt.Fprintf(q.out, "walls: it reads %s, writes %s and %s; --read, --write and --network give more\n",
			strings.Join(append([]string{"its own folder"}, s.Read...), ", "), cmp.Or(strings.Join(s.Write, ", "), "nothing"),
			s.Reach())
	}
	if len(tried.Tools) > 0 {
		call := tried.Tools[max(0, slices.IndexFunc(tried.Tools, func(t triedTool) bool { return t.plain }))].example
		fmt.Fprintf(q.out, "next: toolpost tools show %s; toolpost call %s; or `toolpost connect`, and your agent has them\n",
			strings.Fields(call)[0], call)
	}
}
