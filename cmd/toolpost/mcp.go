package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/config"
	"toolpost/host/offlimits"
	"toolpost/host/secret"
	"toolpost/node"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
)

// mcpProtocol is the protocol of a source with an MCP server.
const mcpProtocol = "mcp"

func isMCP(s config.Source) bool { return s.Protocol == mcpProtocol }

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

// A configEdit changes the config in one step: nothing of it is visible until it is written.
type configEdit struct {
	*app
	own   *config.Own
	cfg   *config.Config // as it is
	text  []byte         // as it will be
	added []string       // names of sources
	made  []string       // files and folders to remove if the change is abandoned
	gone  []string       // those to remove once it is written
}

// editConfig opens the config for a change.
func (a *app) editConfig() (*configEdit, error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	if cfg.Path == "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, nowhere+"; `toolpost init --empty` writes one, and --config "+
			"names another")
	}
	own, err := config.OpenOwn(cfg.Path)
	if err != nil {
		return nil, err
	}
	return &configEdit{app: a, own: own, cfg: cfg, text: own.Text}, nil
}

// close releases the config, and removes what was made for a change that was not written.
func (e *configEdit) close() {
	e.own.Close()
	e.takeBack(0)
}

// takeBack removes what was made, except for the first n.
func (e *configEdit) takeBack(n int) {
	for _, path := range slices.Backward(e.made[n:]) {
		_ = os.RemoveAll(path)
	}
	e.made = e.made[:n]
}

// parsed returns the config as it will be.
func (e *configEdit) parsed() (*config.Config, error) {
	cfg, err := config.Parse(e.cfg.Path, e.text)
	if err != nil {
		return nil, err
	}
	return cfg, cfg.KeepStateIn(e.cfg.StateDir())
}

// written returns a path of the state folder as the config spells it.
func (e *configEdit) written(path string) string {
	return strings.TrimPrefix(fromConfig(e.cfg, path), "./")
}

// write puts the change into effect. A running server notices it.
func (e *configEdit) write() error {
	if _, err := e.parsed(); err != nil {
		return err
	}
	if err := e.own.Replace(e.text, e.own.Mode); err != nil {
		return err
	}
	e.made = nil
	for _, path := range e.gone {
		if err := os.RemoveAll(path); err != nil {
			fmt.Fprintf(e.err, "%s is left: %s\n", path, because(err))
		}
	}
	return nil
}

// taken reports whether a source has the name.
func (e *configEdit) taken(name string) bool {
	return slices.Contains(e.cfg.SourceNames(), name) || slices.Contains(e.added, name)
}

// add adds a server: its package, its secrets, and its source.
func (e *configEdit) add(ctx context.Context, s *mcpServer, dry bool) error {
	if e.taken(s.name) {
		return tool.Errorf(tool.CodeConflict, "there is a source %q already; --replace replaces it, and --name NAME adds this one "+
			"beside it", s.name)
	}
	if err := e.install(ctx, s, dry); err != nil {
		return err
	}
	if err := e.keepSecrets(ctx, s, dry); err != nil {
		return err
	}
	text, err := config.AddSource(e.cfg.Path, e.text, s.note, s.source())
	if err != nil {
		return err
	}
	e.text, e.added = text, append(e.added, s.name)
	return nil
}

// secretsDir holds imported values, each in a file of its own. No tool sees the state folder.
func (e *configEdit) secretsDir() string { return filepath.Join(e.cfg.StateDir(), "secrets") }

// keepSecrets stores the secret values of a server, and names them in the config.
func (e *configEdit) keepSecrets(ctx context.Context, s *mcpServer, dry bool) error {
	for i := range s.secrets {
		if err := e.keepSecret(ctx, s, &s.secrets[i], dry); err != nil {
			return err
		}
	}
	return nil
}

func (e *configEdit) keepSecret(ctx context.Context, s *mcpServer, one *mcpSecret, dry bool) error {
	var known map[string]secret.From
	now, err := e.parsed()
	if err == nil {
		err = now.Secrets.Decode(&known)
	}
	if err != nil {
		return err
	}
	for _, name := range []string{one.variable, secretName(s.name + "_" + one.variable)} {
		one.name = name
		from, there := known[name]
		if !there {
			return e.newSecret(one, dry)
		}
		vault := secret.Open(ctx, e.cfg.Dir, map[string]secret.From{name: from}, nil)
		if value, err := vault.Secret(name); err == nil && value == one.value && one.env == "" || from.Env == one.env && one.env != "" {
			return nil
		}
	}
	return tool.Errorf(tool.CodeConflict, "the config has the secrets %s and %s already, with other values; rename one of them",
		one.variable, one.name)
}

// newSecret writes a value to a file of its own, or names the variable that provides it.
func (e *configEdit) newSecret(one *mcpSecret, dry bool) (err error) {
	from := config.Fields{{Name: "env", Value: one.env}}
	if one.env == "" {
		path := unused(filepath.Join(e.secretsDir(), one.name))
		from = config.Fields{{Name: "file", Value: e.written(path)}}
		if !dry {
			if err := e.writeSecret(path, one.value); err != nil {
				return err
			}
		}
	}
	e.text, err = config.AddSecret(e.cfg.Path, e.text, one.name, from)
	return err
}

// unused returns a path that does not exist yet: an existing file may be needed until the change is written.
func unused(path string) string {
	return numbered(path, func(try string) bool { _, err := os.Lstat(try); return !errors.Is(err, fs.ErrNotExist) })
}

// numbered returns the first of name, name-2, name-3 and so on that is not taken.
func numbered(name string, taken func(string) bool) string {
	try := name
	for i := 2; taken(try); i++ {
		try = fmt.Sprintf("%s-%d", name, i)
	}
	return try
}

func (e *configEdit) writeSecret(path, value string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the folder of secrets: %w", err)
	}
	f, err := config.OpenOwn(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Replace([]byte(value+"\n"), 0o600); err != nil {
		return err
	}
	e.made = append(e.made, path)
	return nil
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

// try checks the config as it will be, and opens its new sources.
func (e *configEdit) try(ctx context.Context) ([]trial, error) {
	cfg, err := e.parsed()
	if err != nil {
		return nil, err
	}
	return e.tryThose(ctx, cfg, func(s config.Source) bool { return slices.Contains(e.added, s.Name) })
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

// wallsHint names the option that a server may need after it failed behind its walls, or returns "".
func wallsHint(message string) string {
	for _, hint := range []struct{ words, option string }{
		{
			`sockets?|eai_again|enotfound|enetunreach|econnrefused|getaddrinfo|name resolution|network is unreachable|fetch failed|dns error`,
			"it has no network: allow the hosts that it needs with --network HOST (`walls: {network: [HOST]}`)",
		},
		{
			`erofs|read-only file system|eacces|permission denied|eperm`,
			"it writes nothing: allow the folder that it needs with --write DIR (`walls: {write: [DIR]}`)",
		},
		{
			`enoent|no such file|err_module_not_found|cannot find (module|package)|modulenotfounderror|can't open file`,
			"it sees its own folder alone, by default the config's: name another with --dir DIR, or allow what it needs with " +
				"--read PATH (`walls: {read: [PATH]}`)",
		},
		{`heap out of memory|memoryerror`, "it has 512 MiB: allow more with `walls: {memory: BYTES}`"},
	} {
		if regexp.MustCompile(`(?i)\b(` + hint.words + `)\b`).MatchString(message) {
			return hint.option
		}
	}
	return ""
}

// unseen names the flag that gives the server a folder that its command names, as that of a file server does. It returns ""
// if the server has all of them.
func (s *mcpServer) unseen(base string) string {
	given := append(slices.Concat(s.read, s.write), s.dir)
	for _, word := range s.command {
		info, err := os.Stat(word)
		if err != nil || !info.IsDir() || !filepath.IsAbs(word) || slices.ContainsFunc(given, func(path string) bool {
			return offlimits.Within(word, offlimits.Under(base, path))
		}) {
			continue
		}
		return fmt.Sprintf("its command names %s, which it does not see: --write %[1]s lets it change what is there, --read %[1]s only look", word)
	}
	return ""
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
			defer e.close()
			return e.remove(args[0])
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

// mcpSource returns the source of an MCP server.
func mcpSource(cfg *config.Config, name string) (config.Source, error) {
	var names []string
	for _, s := range cfg.Sources {
		switch {
		case !isMCP(s) && s.Name == name:
			return s, tool.Errorf(tool.CodeNotFound, "the source %q is not an MCP server, but of the protocol %s", name, s.Protocol)
		case !isMCP(s):
		case s.Name == name:
			return s, nil
		default:
			names = append(names, s.Name)
		}
	}
	known := "; the config has none"
	if len(names) > 0 {
		known = "; there are " + strings.Join(names, ", ")
	}
	return config.Source{}, tool.Errorf(tool.CodeNotFound, "no MCP server is called %q%s", name, meant(name, names, known))
}

func (e *configEdit) remove(name string) error {
	src, err := mcpSource(e.cfg, name)
	if err != nil {
		return err
	}
	secrets, err := e.forget(src)
	if err != nil {
		return err
	}
	e.gone = append(e.gone, runner.TokenFile(src))
	if err := e.write(); err != nil {
		return err
	}
	return e.tell(map[string]any{"removed": name, "secrets": append([]string{}, secrets...)}, "%s %s%s", e.out.green("removed"), name,
		withSecrets(secrets))
}

// forget removes a source and what was kept for it alone: its package, and its secrets, whose names it returns.
func (e *configEdit) forget(src config.Source) (secrets []string, err error) {
	known, err := e.onlyOf(src.Name)
	if err != nil {
		return nil, err
	}
	if e.text, err = config.RemoveSource(e.cfg.Path, e.text, src.Name); err != nil {
		return nil, err
	}
	var o runner.SourceOptions
	packages := filepath.Join(e.cfg.StateDir(), "npm")
	if err := src.Decode(&o); err == nil && filepath.Dir(offlimits.Under(src.Dir, o.Dir)) == packages {
		e.gone = append(e.gone, offlimits.Under(src.Dir, o.Dir))
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if e.text, err = config.RemoveSecret(e.cfg.Path, e.text, name); err != nil {
			return nil, err
		}
		secrets, e.gone = append(secrets, name), append(e.gone, known[name])
	}
	e.cfg, err = e.parsed()
	return secrets, err
}

func withSecrets(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", with its secrets " + strings.Join(names, ", ")
}

// onlyOf returns the secrets that only this source mentions and whose values are files of ours: a map of names to files.
func (e *configEdit) onlyOf(source string) (map[string]string, error) {
	var known map[string]secret.From
	if err := e.cfg.Secrets.Decode(&known); err != nil {
		return nil, err
	}
	only := map[string]string{}
	for name, from := range known {
		path := offlimits.Under(e.cfg.Dir, from.File)
		if from.File == "" || filepath.Dir(path) != e.secretsDir() {
			continue
		}
		word := regexp.MustCompile(`\b` + name + `\b`)
		var users []string
		for _, s := range e.cfg.Sources {
			if word.Match(s.JSON()) {
				users = append(users, s.Name)
			}
		}
		if slices.Equal(users, []string{source}) {
			only[name] = path
		}
	}
	return only, nil
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
			src, err := mcpSource(cfg, args[0])
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
