package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"toolpost/builtin/define"
	"toolpost/cmd/toolpost/mcpadd"
	"toolpost/config"
	"toolpost/tool"
)

// An mcpImporting is one run of `toolpost mcp import`.
type mcpImporting struct {
	*app
	mcpadd.Import
	noTry bool
}

func (a *app) mcpImportCommand() *cobra.Command {
	q := &mcpImporting{app: a}
	c := &cobra.Command{
		Use: "import FILE [flags]", Short: "Import the MCP servers from another program's settings", Args: words(1, 1),
		DisableFlagsInUseLine: true,
		Long: "Reads the servers in a file such as ~/.claude.json, mcp.json, claude_desktop_config.json, .vscode/mcp.json,\n" +
			"Zed's settings or Codex's config.toml, and makes each one a source. Tokens in headers and values of `env`\n" +
			"become secrets, which are kept in files in the state folder and never shown; paths, and URLs without\n" +
			"credentials, are written to the config. Servers that are run with npx, uvx or docker are fetched once.\n" +
			"Servers that cannot be imported are reported with the reason. The file is not changed. Exit code 1: one\n" +
			"was not imported, or does not start. One that is a source already, or Toolpost itself, is no failure.",
		Example: "  toolpost mcp import ~/.claude.json --dry-run\n  toolpost mcp import .vscode/mcp.json --only github",
		RunE:    func(c *cobra.Command, args []string) error { return q.run(c.Context(), args[0]) },
	}
	f := c.Flags()
	f.BoolVar(&q.Dry, "dry-run", false, "only show what would be written")
	f.StringArrayVar(&q.Only, "only", nil, "import only the server with this name; repeatable (default: all)")
	f.StringArrayVar(&q.Plain, "plain", nil,
		"NAME of a variable whose value is not a secret and may be written to the config; repeatable")
	f.BoolVar(&q.Scripts, "scripts", false, "run the install scripts of packages, or build them")
	f.BoolVar(&q.noTry, "no-try", false, "write the sources without starting the servers")
	return a.withJSON("print what was done as JSON", c)
}

// An importedServer is the report on one server of the file.
type importedServer struct {
	Name    string         `json:"name"`             // in the file
	Source  string         `json:"source,omitempty"` // in the config; empty if it was not imported
	Config  map[string]any `json:"config,omitempty"`
	Secrets []string       `json:"secrets,omitempty"`
	Notes   []string       `json:"notes,omitempty"`
	Problem string         `json:"problem,omitempty"`     // why it was not imported, or does not start
	Here    bool           `json:"already_here,omitzero"` // it needs no import: it is a source, or this program
	Tools   int            `json:"tools"`

	server *mcpadd.Server
}

func (q *mcpImporting) run(ctx context.Context, path string) error {
	list, err := q.Read(path)
	if err != nil {
		return err
	}
	e, err := q.editConfig()
	if err != nil {
		return err
	}
	defer e.Close()
	var all []*importedServer
	for _, l := range list {
		s, err := q.Take(ctx, e, l)
		one := &importedServer{Name: l.Name, Notes: s.Remarks, server: s}
		if err != nil {
			one.Problem, one.Here = tool.AsError(err).Message, tool.AsError(err).Reason == mcpadd.ReasonHere
		} else {
			one.Source, one.Config, one.Secrets = s.Name, s.Source().JSON(), s.SecretNames()
		}
		all = append(all, one)
	}
	if len(e.Added) > 0 && !q.Dry {
		if err := e.Write(); err != nil {
			return err
		}
	}
	if err := q.tryAll(ctx, e, all); err != nil {
		return err
	}
	for _, one := range all {
		if one.Source != "" && one.server.URL == "" && !one.server.Contained() {
			q.noteWalls(e, one)
		}
	}
	failed := !q.Dry && slices.ContainsFunc(all, func(o *importedServer) bool { return o.Problem != "" && !o.Here })
	return q.conclude(map[string]any{"config": e.Config.Path, "servers": all}, func() { q.show(e, all) }, failed)
}

// tryAll starts the imported servers. A server that does not start stays a source: it is tried again, and does not affect
// the others.
func (q *mcpImporting) tryAll(ctx context.Context, e *mcpadd.Edit, all []*importedServer) error {
	if q.Dry || q.noTry || len(e.Added) == 0 {
		return nil
	}
	trials, err := q.tryAdded(ctx, e)
	if err != nil {
		return err
	}
	for _, t := range trials {
		for _, one := range all {
			if one.Source != t.Name {
				continue
			}
			if one.Tools = len(t.Tools); t.Error != "" {
				one.Problem = "it does not start: " + t.Error
			}
		}
	}
	return nil
}

// noteWalls notes the line of the source that the server needs to start, or to use what its command or a variable names.
func (q *mcpImporting) noteWalls(e *mcpadd.Edit, one *importedServer) {
	path := one.server.Hidden(e.Config.Dir, !q.Dry && !q.noTry && one.Problem == "")
	if path != "" {
		one.Notes = append(one.Notes, fmt.Sprintf("its walls hide %s, which its command or a variable names; to let it read that, "+
			"add to the source %s: `walls: %s`; `write` lets it change that, too", path, one.Source,
			config.Fields{{Name: "read", Value: []string{path}}}.Flow()))
	}
	one.Notes = append(one.Notes, cmp.Or(one.server.AbsentHint(one.Problem), mcpadd.WallsHint(one.Problem, path, false)))
}

func (q *mcpImporting) show(e *mcpadd.Edit, all []*importedServer) {
	for _, one := range all {
		switch {
		case one.Source == "":
			fmt.Fprintf(q.out, "%s %s: %s\n", q.out.red("not imported"), clean(one.Name), clean(one.Problem))
		case q.Dry:
			fmt.Fprintf(q.out, "would import %s:\n%s\n", clean(one.Name), cleanLines(one.server.Source().String()))
		case one.Problem != "":
			fmt.Fprintf(q.out, "%s %s as %s, but %s\n", q.out.amber("imported"), clean(one.Name), one.Source, clean(one.Problem))
		case q.noTry:
			fmt.Fprintf(q.out, "%s %s as %s: not started\n", q.out.green("imported"), clean(one.Name), one.Source)
		default:
			fmt.Fprintf(q.out, "%s %s as %s: %s\n", q.out.green("imported"), clean(one.Name), one.Source, define.Count(one.Tools, "tool"))
		}
		for _, note := range one.Notes {
			if note != "" {
				fmt.Fprintf(q.out, "  note: %s\n", clean(note))
			}
		}
		for _, name := range one.Secrets {
			fmt.Fprintf(q.out, "  secret: %s\n", name)
		}
	}
	switch {
	case len(all) == 0:
		fmt.Fprintln(q.out, "the file lists no servers")
	case q.Dry:
		fmt.Fprintf(q.out, "nothing was written to %s\n", e.Config.Path)
	case len(e.Added) > 0:
		fmt.Fprintf(q.out, "wrote %s; %s\n", e.Config.Path, cmp.Or(map[bool]string{true: "see whether they start: toolpost mcp list"}[q.noTry],
			"`toolpost connect` lets your agents use them; then remove them from "+q.File+", or agents have them twice"))
	}
}
