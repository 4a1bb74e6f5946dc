package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/mcpadd"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
)

// An mcpAdding is one run of `toolpost mcp add`.
type mcpAdding struct {
	*app
	mcpadd.Request
	dry, replace bool
}

func (a *app) mcpAddCommand() *cobra.Command {
	q := &mcpAdding{app: a}
	c := &cobra.Command{
		Use: "add [flags] (URL | -- COMMAND [ARG ...])", Short: "Write an MCP server into the config as a source",
		Args: words(1, -1), DisableFlagsInUseLine: true,
		Long: "Writes the source, checks the config, starts the server and lists its tools; if any of that fails, nothing\n" +
			"is written, unless the server only asks for a login. A server that is run with npx is installed once, into the state folder, at the version that npm\n" +
			"finds now, and started from there: behind its walls it has no network. Install scripts of packages are not\n" +
			"run unless --scripts says so.",
		Example: "  toolpost mcp add -- npx -y @modelcontextprotocol/server-memory\n" +
			"  toolpost mcp add --write ./notes -- npx -y @modelcontextprotocol/server-filesystem ./notes\n" +
			"  toolpost mcp add --secret GITHUB_TOKEN --network api.github.com -- ./github-server\n" +
			"  toolpost mcp add https://mcp.example.com/mcp\n" +
			"  toolpost mcp add --header \"Authorization: Bearer $TOKEN\" https://tools.example.com/mcp",
		RunE: func(c *cobra.Command, args []string) error { return q.run(c.Context(), args, c.ArgsLenAtDash() == 0) },
	}
	f := c.Flags()
	f.StringVar(&q.Name, "name", "", "name of the source (default: from the server)")
	f.StringArrayVar(&q.Env, "env", nil, "NAME=VALUE that the program gets, in clear in the config; may be given again")
	f.StringArrayVar(&q.Secrets, "secret", nil,
		"NAME of a variable of this shell that the program gets; its value is kept as a secret; may be given again")
	f.StringArrayVar(&q.Headers, "header", nil, "\"NAME: VALUE\" for a URL; tokens are kept as secrets; may be given again")
	f.StringArrayVar(&q.Read, "read", nil, "file or folder that the program may read; may be given again")
	f.StringArrayVar(&q.Write, "write", nil, "file or folder that the program may change; may be given again")
	f.StringArrayVar(&q.Network, "network", nil, "host that the program may reach, or all; may be given again")
	f.StringVar(&q.Dir, "dir", "", "folder that the program runs in (default: the config's)")
	f.BoolVar(&q.Scripts, "scripts", false, "run the install scripts of the package")
	f.BoolVar(&q.replace, "replace", false, "replace the source of this name")
	f.BoolVar(&q.NoTry, "no-try", false, "write the source without starting the server")
	f.BoolVar(&q.dry, "dry-run", false, "only show what would be written")
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return tool.Errorf(tool.CodeInvalidInput, "%w\na program and its flags come behind --: `toolpost mcp add -- npx -y PACKAGE`", err)
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
	if err := q.Walls(e.Config, s); err != nil {
		return err
	}
	if q.replace && e.Taken(s.Name) {
		src, err := mcpadd.Source(e.Config, s.Name)
		if err == nil {
			_, err = e.Forget(src)
		}
		if err != nil {
			return err
		}
	}
	if err := e.Add(ctx, s, q.dry); err != nil {
		return err
	}
	if q.dry {
		return q.show(e, s)
	}
	tried := trial{Name: s.Name}
	if !q.NoTry {
		if tried, err = q.try(ctx, e, s); err != nil {
			return err
		}
	}
	if err := e.Write(); err != nil {
		return err
	}
	return q.tellAdded(e, s, tried)
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
	if s.URL == "" {
		hints = append(hints, cmp.Or(s.Unseen(e.Config.Dir), mcpadd.WallsHint(one.Error)))
	}
	if s.URL == "" && s.Bare() {
		hints = append(hints, "it gets no variables but PATH, HOME, LANG and TMPDIR; --env and --secret give it more")
	}
	for _, hint := range hints {
		if hint != "" {
			message += "\n  " + hint
		}
	}
	return one, tool.Errorf(tool.CodeOf(one.err), "%s\n  --no-try writes it all the same", message)
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
		fmt.Fprintf(q.out, "next: it wants to know who you are: toolpost mcp login %s; or, with a token of yours:\n"+
			"  toolpost mcp add --replace --name %[1]s --header \"Authorization: Bearer TOKEN\" %s\n", s.Name, shellWord(s.URL))
		return
	case q.NoTry:
		fmt.Fprintf(q.out, "next: see whether it starts: toolpost mcp list\n")
		return
	case s.URL == "":
		fmt.Fprintf(q.out, "walls: it reads %s, writes %s and reaches %s; --read, --write and --network give more\n",
			orNothing(append([]string{"its own folder"}, s.Read...)), orNothing(s.Write), orNothing(s.Network))
	}
	if len(tried.Tools) > 0 {
		first := shellWord(s.Name + "." + tried.Tools[0].Name)
		fmt.Fprintf(q.out, "next: toolpost tools show %s; toolpost call %s; or `toolpost connect`, and your agent has them\n", first, first)
	}
}

func orNothing(all []string) string {
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}
