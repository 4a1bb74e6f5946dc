package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
		Use: "mcp", Short: "Add, import, list and remove MCP servers as sources of tools",
		Long: "An MCP server becomes a source of the config: its tools are behind the same policy, walls, record and\n" +
			"limits as all others. A program is started behind walls: it reads its own folder, writes nothing and has\n" +
			"no network, unless the source says otherwise.",
		Example: "  toolpost mcp add -- npx -y @modelcontextprotocol/server-memory\n  toolpost mcp add https://mcp.example.com/mcp\n" +
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
}

// tryAdded checks the config as it will be, and opens its new sources.
func (a *app) tryAdded(ctx context.Context, e *mcpadd.Edit) ([]trial, error) {
	cfg, err := e.Parsed()
	if err != nil {
		return nil, err
	}
	return a.tryThose(ctx, cfg, func(s config.Source) bool { return slices.Contains(e.Added, s.Name) })
}

// tryThose opens only the selected sources of a config.
func (a *app) tryThose(ctx context.Context, cfg *config.Config, those func(config.Source) bool) ([]trial, error) {
	cfg.Sources = slices.DeleteFunc(slices.Clone(cfg.Sources), func(s config.Source) bool { return !those(s) })
	if len(cfg.Sources) == 0 {
		return nil, nil
	}
	n, end, err := a.openNode(ctx, cfg, slog.LevelError+1, node.Options{Version: version})
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
		one := trial{Name: s.Name, source: cfg.Sources[i], held: held[s.Name], err: s.Err}
		if s.Err != nil {
			one.Error = because(s.Err)
		}
		for spec, err := range n.Catalog().Specs(ctx, me()) {
			if spec != nil && spec.Source == s.Name && s.Err == nil && err == nil {
				one.Tools = append(one.Tools, triedTool{spec.Name, spec.Description})
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
			tried, err := a.tryThose(c.Context(), cfg, isMCP)
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
		Long: "Removes the source from the config, and what was kept only for it: its installed package, its login, and\n" +
			"the secrets that no other source names, if their values are files in the state folder.",
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
		Long: "Prints a link. Open it in a browser on this machine and agree, and Toolpost can use the server in your name.\n" +
			"The tokens are kept in the state folder, readable only by its owner; `toolpost mcp remove` deletes them.",
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
