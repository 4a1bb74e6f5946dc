package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/connect"
	"toolpost/host/offlimits"
	"toolpost/host/process"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// An mcpImporting is one run of `toolpost mcp import`.
type mcpImporting struct {
	*app
	dry, noTry, scripts bool
	only, plain         []string
	file                string
}

func (a *app) mcpImportCommand() *cobra.Command {
	q := &mcpImporting{app: a}
	c := &cobra.Command{
		Use: "import FILE [flags]", Short: "Import the MCP servers from another program's settings", Args: words(1, 1),
		DisableFlagsInUseLine: true,
		Long: "Reads the servers in a file such as mcp.json, claude_desktop_config.json, .vscode/mcp.json, Zed's settings or\n" +
			"Codex's config.toml, and makes each one a source. Values of `env`, and tokens in headers, become secrets: they\n" +
			"are kept in files of the state folder, and never written to the config or shown. Servers that are run with\n" +
			"npx are installed once. What cannot be imported is reported with the reason. The file is not changed.",
		Example: "  toolpost mcp import ~/.cursor/mcp.json --dry-run\n  toolpost mcp import .vscode/mcp.json --only github",
		RunE:    func(c *cobra.Command, args []string) error { return q.run(c.Context(), args[0]) },
	}
	f := c.Flags()
	f.BoolVar(&q.dry, "dry-run", false, "only show what would be written")
	f.StringArrayVar(&q.only, "only", nil, "import the server of this name; may be given again (default: all)")
	f.StringArrayVar(&q.plain, "plain", nil,
		"NAME of a variable whose value is not a secret and goes into the config in clear; may be given again")
	f.BoolVar(&q.scripts, "scripts", false, "run the install scripts of packages")
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
	Problem string         `json:"problem,omitempty"` // why it was not imported, or does not start
	Tools   int            `json:"tools"`

	server *mcpServer
}

func (q *mcpImporting) run(ctx context.Context, path string) error {
	list, err := q.read(path)
	if err != nil {
		return err
	}
	e, err := q.editConfig()
	if err != nil {
		return err
	}
	defer e.close()
	var all []*importedServer
	for _, l := range list {
		one := &importedServer{Name: l.Name}
		if err := q.take(ctx, e, l, one); err != nil {
			one.Source, one.Problem = "", tool.AsError(err).Message
		}
		all = append(all, one)
	}
	if len(e.added) > 0 && !q.dry {
		if err := e.write(); err != nil {
			return err
		}
	}
	if err := q.tryAll(ctx, e, all); err != nil {
		return err
	}
	failed := !q.dry && slices.ContainsFunc(all, func(o *importedServer) bool { return o.Problem != "" })
	return q.conclude(map[string]any{"config": e.cfg.Path, "servers": all}, func() { q.show(e, all) }, failed)
}

// read reads the file.
func (q *mcpImporting) read(path string) ([]connect.Listed, error) {
	text, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	if q.file, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	list, err := connect.Servers(path, text)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range list {
		names = append(names, l.Name)
	}
	for _, name := range q.only {
		if !slices.Contains(names, name) {
			return nil, tool.Errorf(tool.CodeNotFound, "%s has no server %q%s", path, name,
				meant(name, names, "; it has "+strings.Join(names, ", ")))
		}
	}
	return slices.DeleteFunc(list, func(l connect.Listed) bool {
		return len(q.only) > 0 && !slices.Contains(q.only, l.Name)
	}), nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s cannot be read: %w", path, offlimits.Plain(err))
	}
	defer f.Close()
	text, err := process.ReadDocument(f, maxArguments)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s cannot be read: %w", path, offlimits.Plain(err))
	}
	return text, nil
}

// take makes a source from one server. If that fails, nothing of the server stays in the config.
func (q *mcpImporting) take(ctx context.Context, e *configEdit, l connect.Listed, one *importedServer) error {
	if l.Problem != "" {
		return tool.Errorf(tool.CodeInvalidInput, "%s", l.Problem)
	}
	s := &mcpServer{name: numbered(slug(l.Name), e.taken), scripts: q.scripts, env: map[string]string{}}
	if isToolpost(l) {
		return tool.Errorf(tool.CodeInvalidInput, "it is Toolpost itself")
	}
	var err error
	if l.URL != "" {
		err = q.remote(s, l, one)
	} else {
		err = q.program(s, l, one)
	}
	if err != nil {
		return err
	}
	if has := e.has(s, slug(l.Name)); has {
		return tool.Errorf(tool.CodeConflict, "the source %s is this server already", slug(l.Name))
	}
	before, made := e.text, len(e.made)
	if err := e.add(ctx, s, q.dry); err != nil {
		e.text = before
		e.takeBack(made)
		return err
	}
	one.Source, one.server, one.Config, one.Secrets = s.name, s, s.source().JSON(), s.secretNames()
	one.Notes = append(one.Notes, s.remarks...)
	return nil
}

// has reports whether the config has the server already, under the name that it would get.
func (e *configEdit) has(s *mcpServer, name string) bool {
	src, err := mcpSource(e.cfg, name)
	var o runner.SourceOptions
	if err != nil || src.Decode(&o) != nil {
		return false
	}
	switch {
	case s.url != "":
		return o.URL == s.url
	case s.pkg == nil:
		return slices.Equal(o.Command, s.command)
	}
	spec := s.pkg.spec
	if at := strings.LastIndex(spec, "@"); at > 0 {
		spec = spec[:at]
	}
	return len(o.Command) > 1 && strings.HasPrefix(o.Command[1], "node_modules/"+spec+"/") &&
		slices.Equal(o.Command[2:], s.pkg.args)
}

func isToolpost(l connect.Listed) bool {
	return len(l.Command) >= 3 && filepath.Base(l.Command[0]) == "toolpost" && l.Command[1] == "as"
}

func (q *mcpImporting) remote(s *mcpServer, l connect.Listed, one *importedServer) error {
	if strings.Contains(l.URL, "${") {
		return tool.Errorf(tool.CodeUnsupported, "its url is put together by the client (${...}); write it out")
	}
	if s.url = l.URL; strings.ContainsAny(l.URL, "?@") {
		one.Notes = append(one.Notes, "its url may have a secret in it, and is in the config in clear; a header would not be")
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		if err := s.addHeader(name, l.Headers[name]); err != nil {
			return err
		}
	}
	return nil
}

// secretFlag matches an argument that names a secret, or is one.
var secretFlag = regex.Lazy(`(?i)^--?[a-z-]*(api-?key|token|secret|password)|^(sk|ghp|xox[a-z]|glpat|tp)[-_][A-Za-z0-9_-]{12,}|://[^/@]*:[^/@]+@`)

func (q *mcpImporting) program(s *mcpServer, l connect.Listed, one *importedServer) (err error) {
	argv := slices.Clone(l.Command)
	for i, word := range argv {
		if argv[i] = q.inFolder(word); strings.Contains(argv[i], "${") {
			return tool.Errorf(tool.CodeUnsupported, "its command has %s, which the client fills in; write it out", word)
		}
		if secretFlag().MatchString(word) {
			one.Notes = append(one.Notes, "an argument of its command looks like a secret, and is in the config in clear; most servers "+
				"take a variable instead")
		}
	}
	if s.dir = q.inFolder(l.Dir); s.dir != "" {
		s.dir = offlimits.Under(filepath.Dir(q.file), s.dir)
		if home, err := os.UserHomeDir(); err == nil && below(home, s.dir) {
			one.Notes = append(one.Notes, fmt.Sprintf("it runs in %s, so that it may read all that is in there; "+
				"if that is too much, give it another `dir` in the config", s.dir))
		}
	}
	if s.pkg, err = parseNPX(argv); err != nil {
		return err
	}
	if s.pkg == nil {
		s.command = argv
		if why := fetches(argv); why != "" {
			if base := filepath.Base(argv[0]); base == "docker" || base == "podman" {
				return tool.Errorf(tool.CodeUnsupported, "%s", why)
			}
			one.Notes = append(one.Notes, why)
		}
	}
	return q.variables(s, l, one)
}

// below reports whether a path is a folder or below it.
func below(path, folder string) bool {
	rest, err := filepath.Rel(folder, path)
	return err == nil && rest != ".." && !strings.HasPrefix(rest, "../")
}

// inFolder fills in the folder of a project's file.
func (q *mcpImporting) inFolder(word string) string {
	folder := filepath.Dir(q.file)
	if base := filepath.Base(folder); base == ".vscode" || base == ".cursor" {
		folder = filepath.Dir(folder)
	}
	return strings.ReplaceAll(word, "${workspaceFolder}", folder)
}

// variables makes secrets from the server's variables. A variable that cannot be a secret is left out and reported.
func (q *mcpImporting) variables(s *mcpServer, l connect.Listed, one *importedServer) error {
	for _, name := range slices.Sorted(maps.Keys(l.Env)) {
		value := l.Env[name]
		switch {
		case secretName(name) != strings.ToUpper(name):
			return tool.Errorf(tool.CodeInvalidInput, "%q cannot be the name of a variable", name)
		case value == "":
			continue
		case slices.Contains(q.plain, name):
			s.env[name] = value
			continue
		}
		kept, err := newSecret(name, value)
		if err != nil {
			one.Notes = append(one.Notes, fmt.Sprintf("its variable %s was left out: %v; --plain %s keeps it in the config in clear",
				name, err, name))
			continue
		}
		s.secrets = append(s.secrets, kept)
	}
	return nil
}

// tryAll starts the imported servers. A server that does not start stays a source: it is tried again, and does not affect
// the others.
func (q *mcpImporting) tryAll(ctx context.Context, e *configEdit, all []*importedServer) error {
	if q.dry || q.noTry || len(e.added) == 0 {
		return nil
	}
	trials, err := e.try(ctx)
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
				if one.server.url == "" {
					one.Notes = append(one.Notes, wallsHint(t.Error))
				}
			}
		}
	}
	return nil
}

func (q *mcpImporting) show(e *configEdit, all []*importedServer) {
	for _, one := range all {
		switch {
		case one.Source == "":
			fmt.Fprintf(q.out, "%s %s: %s\n", q.out.red("not taken"), clean(one.Name), clean(one.Problem))
		case q.dry:
			fmt.Fprintf(q.out, "would take %s:\n%s\n", clean(one.Name), cleanLines(one.server.source().String()))
		case one.Problem != "":
			fmt.Fprintf(q.out, "%s %s as %s: %s\n", q.out.amber("took"), clean(one.Name), one.Source, clean(one.Problem))
		default:
			fmt.Fprintf(q.out, "%s %s as %s: %s\n", q.out.green("took"), clean(one.Name), one.Source, plural(one.Tools, "tool"))
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
	case q.dry:
		fmt.Fprintf(q.out, "nothing was written to %s\n", e.cfg.Path)
	case len(e.added) > 0:
		fmt.Fprintf(q.out, "wrote %s; %s\n", e.cfg.Path, cmp.Or(map[bool]string{true: "see whether they start: toolpost mcp list"}[q.noTry],
			"`toolpost mcp list` shows them, and `toolpost connect` lets your agents use them"))
	}
}
