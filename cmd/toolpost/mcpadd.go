package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/config"
	"toolpost/host/offlimits"
	"toolpost/host/secret"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// An mcpAdding is one run of `toolpost mcp add`.
type mcpAdding struct {
	*app
	name, dir                    string
	env, secrets, headers        []string
	read, write, network         []string
	scripts, noTry, dry, replace bool
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
	f.StringVar(&q.name, "name", "", "name of the source (default: from the server)")
	f.StringArrayVar(&q.env, "env", nil, "NAME=VALUE that the program gets, in clear in the config; may be given again")
	f.StringArrayVar(&q.secrets, "secret", nil,
		"NAME of a variable of this shell that the program gets; its value is kept as a secret; may be given again")
	f.StringArrayVar(&q.headers, "header", nil, "\"NAME: VALUE\" for a URL; tokens are kept as secrets; may be given again")
	f.StringArrayVar(&q.read, "read", nil, "file or folder that the program may read; may be given again")
	f.StringArrayVar(&q.write, "write", nil, "file or folder that the program may change; may be given again")
	f.StringArrayVar(&q.network, "network", nil, "host that the program may reach, or all; may be given again")
	f.StringVar(&q.dir, "dir", "", "folder that the program runs in (default: the config's)")
	f.BoolVar(&q.scripts, "scripts", false, "run the install scripts of the package")
	f.BoolVar(&q.replace, "replace", false, "replace the source of this name")
	f.BoolVar(&q.noTry, "no-try", false, "write the source without starting the server")
	f.BoolVar(&q.dry, "dry-run", false, "only show what would be written")
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return tool.Errorf(tool.CodeInvalidInput, "%w\na program and its flags come behind --: `toolpost mcp add -- npx -y PACKAGE`", err)
	})
	return a.withJSON("print the source and its tools as JSON", c)
}

func (q *mcpAdding) run(ctx context.Context, args []string, program bool) error {
	s, err := q.server(args, program)
	if err != nil {
		return err
	}
	e, err := q.editConfig()
	if err != nil {
		return err
	}
	defer e.close()
	if err := q.walls(e, s); err != nil {
		return err
	}
	if q.replace && e.taken(s.name) {
		src, err := mcpSource(e.cfg, s.name)
		if err == nil {
			_, err = e.forget(src)
		}
		if err != nil {
			return err
		}
	}
	if err := e.add(ctx, s, q.dry); err != nil {
		return err
	}
	if q.dry {
		return q.show(e, s)
	}
	tried := trial{Name: s.name}
	if !q.noTry {
		if tried, err = q.try(ctx, e, s); err != nil {
			return err
		}
	}
	if err := e.write(); err != nil {
		return err
	}
	return q.tellAdded(e, s, tried)
}

// server reads the command line.
func (q *mcpAdding) server(args []string, program bool) (*mcpServer, error) {
	s := &mcpServer{name: q.name, dir: q.dir, network: q.network, scripts: q.scripts}
	if !program {
		return s, q.remote(s, args)
	}
	var err error
	if s.pkg, err = parseNPX(args); err != nil {
		return nil, err
	}
	if s.name == "" {
		s.name = named(args, s.pkg)
	}
	switch s.command = args; {
	case s.pkg != nil && q.dir != "":
		return nil, tool.Errorf(tool.CodeInvalidInput, "--dir does not go with npx: the server runs where it is installed")
	case s.pkg != nil:
		s.pkg.args = absolute(s.pkg.args)
	case len(q.headers) > 0:
		return nil, tool.Errorf(tool.CodeInvalidInput, "--header is for a server at a URL; a program gets --secret and --env")
	default:
		if why := fetches(args); why != "" {
			s.remarks = append(s.remarks, why)
		}
		if _, err := exec.LookPath(args[0]); err != nil && !strings.Contains(args[0], "/") {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s is not a program on PATH; install it, or give its path%s", args[0],
				strings.Join(append([]string{""}, s.remarks...), "\n  "))
		}
	}
	return s, q.variables(s)
}

// absolute makes paths absolute if they are written as paths, because the server runs in another folder.
func absolute(args []string) []string {
	var all []string
	for _, arg := range args {
		if arg == "." || arg == ".." || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") {
			if full, err := filepath.Abs(arg); err == nil {
				arg = full
			}
		}
		all = append(all, arg)
	}
	return all
}

// withoutScheme matches a host with a port or a dot, and what may follow: a URL typed as browsers accept it.
var withoutScheme = regex.Lazy(`^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*):[0-9]+(/.*)?$|^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+/.*$`)

// remote reads the command line of a server at a URL.
func (q *mcpAdding) remote(s *mcpServer, args []string) error {
	u, err := url.Parse(args[0])
	switch {
	case len(args) == 1 && withoutScheme().MatchString(args[0]):
		return tool.Errorf(tool.CodeInvalidInput, "%q is not a whole URL; write http://%s or https://%s", args[0], args[0], args[0])
	case err == nil && u.Host != "" && u.Scheme != "http" && u.Scheme != "https":
		return tool.Errorf(tool.CodeInvalidInput, "%q is not the URL of an MCP server: it must begin with https:// or http://", args[0])
	case err != nil || u.Host == "":
		return tool.Errorf(tool.CodeInvalidInput, "%q is not a URL; a program comes behind --, such as `toolpost mcp add -- %s`", args[0],
			strings.Join(args, " "))
	case len(args) > 1:
		return tool.Errorf(tool.CodeInvalidInput, "a URL stands alone; %q does not belong there", args[1])
	case len(q.env)+len(q.secrets)+len(q.read)+len(q.write)+len(q.network) > 0 || q.dir != "" || q.scripts:
		return tool.Errorf(tool.CodeInvalidInput, "--env, --secret, --read, --write, --network, --dir and --scripts are for a "+
			"program that is started here; a server at a URL gets --header")
	}
	if s.url = args[0]; s.name == "" {
		s.name = hostName(u)
	}
	for _, h := range q.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return tool.Errorf(tool.CodeInvalidInput, "a header is written \"NAME: VALUE\"; what was given has no colon")
		}
		if err := s.addHeader(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			return err
		}
	}
	return nil
}

// variables sets the environment of the program.
func (q *mcpAdding) variables(s *mcpServer) error {
	s.env = map[string]string{}
	for _, pair := range q.env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return tool.Errorf(tool.CodeInvalidInput, "--env is NAME=VALUE, not %q", name)
		}
		s.env[name] = value
	}
	for _, name := range q.secrets {
		if name, _, ok := strings.Cut(name, "="); ok {
			return tool.Errorf(tool.CodeInvalidInput, "--secret takes a name alone, so that no process list shows its value: "+
				"export %s in your shell and say --secret %s", name, name)
		}
		value := os.Getenv(name)
		if value == "" {
			return tool.Errorf(tool.CodeInvalidInput, "the variable %s is not set; export it in your shell: its value is kept as a "+
				"secret", name)
		}
		if len(value) < secret.MinSize {
			return tool.Errorf(tool.CodeInvalidInput, "the value of %s is shorter than %d bytes, and no secret can be: it could not be "+
				"told from other text and be redacted; --env keeps it in clear", name, secret.MinSize)
		}
		s.secrets = append(s.secrets, mcpSecret{variable: name, value: value})
	}
	return nil
}

// walls converts paths from the command line to the form of the config: those below its folder become relative to it.
func (q *mcpAdding) walls(e *configEdit, s *mcpServer) error {
	for _, list := range []struct {
		flag string
		from []string
		to   *[]string
	}{{"--read", q.read, &s.read}, {"--write", q.write, &s.write}} {
		for _, path := range list.from {
			full, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			if _, err := os.Stat(full); err != nil && !q.noTry {
				return tool.Errorf(tool.CodeInvalidInput, "%s %s: %w; make it first", list.flag, path, offlimits.Plain(err))
			}
			*list.to = append(*list.to, fromConfig(e.cfg, full))
		}
	}
	if s.dir != "" {
		full, err := filepath.Abs(s.dir)
		if err != nil {
			return err
		}
		s.dir = fromConfig(e.cfg, full)
	}
	return nil
}

// fromConfig returns a path in the form of the config.
func fromConfig(cfg *config.Config, full string) string {
	if rel, err := filepath.Rel(cfg.Dir, full); err == nil && filepath.IsLocal(rel) {
		return "./" + filepath.ToSlash(rel)
	}
	return full
}

// try starts the server. A server that wants a login counts as started; one that fails otherwise is not written.
func (q *mcpAdding) try(ctx context.Context, e *configEdit, s *mcpServer) (trial, error) {
	all, err := e.try(ctx)
	if err != nil {
		return trial{}, err
	}
	one := all[0]
	failed, _ := errors.AsType[*tool.Error](one.err)
	if one.err == nil || failed != nil && failed.Reason == runner.ReasonLogin {
		return one, nil
	}
	message := "the server did not start, so nothing was written: " + one.Error
	if s.url != "" {
		message = "the server cannot be used, so nothing was written: " + one.Error
	}
	hints := s.remarks
	if s.url == "" {
		hints = append(hints, cmp.Or(s.unseen(e.cfg.Dir), wallsHint(one.Error)))
	}
	if s.url == "" && len(s.secrets)+len(s.env) == 0 {
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
func (q *mcpAdding) show(e *configEdit, s *mcpServer) error {
	if q.json {
		return q.printJSON(map[string]any{"config": e.cfg.Path, "source": s.source().JSON(), "secrets": s.secretNames()})
	}
	fmt.Fprintf(q.out, "would write to %s:\n%s\n", e.cfg.Path, cleanLines(s.source().String()))
	for _, name := range s.secretNames() {
		fmt.Fprintf(q.out, "  and keep the secret %s\n", name)
	}
	return nil
}

// secretNames lists the secrets of a server.
func (s *mcpServer) secretNames() []string {
	names := []string{}
	for _, one := range s.secrets {
		names = append(names, one.name)
	}
	return names
}

func (q *mcpAdding) tellAdded(e *configEdit, s *mcpServer, tried trial) error {
	if q.json {
		return q.printJSON(map[string]any{
			"config": e.cfg.Path, "source": s.source().JSON(), "secrets": s.secretNames(), "tools": tried.Tools, "error": tried.Error,
			"remarks": append([]string{}, s.remarks...),
		})
	}
	fmt.Fprintf(q.out, "%s %s to %s\n", q.out.green("added"), q.out.bold(s.name), e.cfg.Path)
	q.showTrial(tried)
	for _, r := range s.remarks {
		fmt.Fprintf(q.out, "note: %s\n", clean(r))
	}
	for _, name := range s.secretNames() {
		fmt.Fprintf(q.out, "note: the secret %s is kept in %s\n", name, filepath.Join(e.secretsDir(), name))
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

func (q *mcpAdding) tellNext(s *mcpServer, tried trial) {
	switch {
	case tried.err != nil:
		fmt.Fprintf(q.out, "next: it wants to know who you are: toolpost mcp login %s; or, with a token of yours:\n"+
			"  toolpost mcp add --replace --name %[1]s --header \"Authorization: Bearer TOKEN\" %s\n", s.name, shellWord(s.url))
		return
	case q.noTry:
		fmt.Fprintf(q.out, "next: see whether it starts: toolpost mcp list\n")
		return
	case s.url == "":
		fmt.Fprintf(q.out, "walls: it reads %s, writes %s and reaches %s; --read, --write and --network give more\n",
			orNothing(append([]string{"its own folder"}, s.read...)), orNothing(s.write), orNothing(s.network))
	}
	if len(tried.Tools) > 0 {
		first := shellWord(s.name + "." + tried.Tools[0].Name)
		fmt.Fprintf(q.out, "next: toolpost tools show %s; toolpost call %s; or `toolpost connect`, and your agent has them\n", first, first)
	}
}

func orNothing(all []string) string {
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}
