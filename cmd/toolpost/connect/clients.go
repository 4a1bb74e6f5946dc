// Package connect adds a Toolpost to the agents on this machine: it knows in which file each keeps its list of MCP servers,
// and adds one entry or removes it again. The rest of those files stays as it is.
package connect

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"toolpost/config"
	"toolpost/tool"
)

// A Client is an agent, or an editor with one.
type Client struct {
	ID   string // for the command line
	Name string
	Key  string // the object in its file that holds the servers
	Then string // what to do after its file was changed

	paths    paths
	variable string   // environment variable that overrides the folder of the file
	older    string   // location of an earlier version, used if the file exists only there
	marks    []string // folders that exist if it is installed, beside that of the file
	programs []string // likewise, programs on PATH
	format   format
	stdio    func(Server) config.Fields
	http     func(Server) config.Fields // nil if its file cannot name HTTP servers
}

// paths are the file's locations on each system. {home}, {config} and {appdata} are replaced by the user's folders.
type paths struct{ linux, mac, windows string }

// Clients lists the known clients.
func Clients() []Client {
	inURL, mcp := urlAs("url", "headers"), "mcpServers"
	return []Client{
		{
			ID: "claude-code", Name: "Claude Code", Key: mcp, Then: "type /mcp in it to see the server", programs: []string{"claude"},
			paths: everywhere("{home}/.claude.json"), variable: "CLAUDE_CONFIG_DIR", marks: []string{"{home}/.claude"},
			format: jsonFormat{}, stdio: typed("stdio", command), http: typed("http", inURL),
		},
		{
			ID: "claude-desktop", Name: "Claude Desktop", Key: mcp, Then: "restart it", programs: []string{"claude-desktop"},
			paths: perUser("Claude/claude_desktop_config.json"), format: jsonFormat{}, stdio: command,
		},
		{
			ID: "cursor", Name: "Cursor", Key: mcp, Then: "the server is in its settings, under MCP", programs: []string{"cursor"},
			paths: everywhere("{home}/.cursor/mcp.json"), format: jsonFormat{comments: true}, stdio: command, http: inURL,
		},
		{
			ID: "vscode", Name: "VS Code", Key: "servers", Then: "run `MCP: List Servers` in it and start the server", programs: []string{"code"},
			paths: perUser("Code/User/mcp.json"), format: jsonFormat{comments: true}, stdio: typed("stdio", command), http: typed("http", inURL),
		},
		{
			ID: "codex", Name: "Codex", Key: "mcp_servers", Then: "restart it; /mcp lists the server", programs: []string{"codex"},
			paths: everywhere("{home}/.codex/config.toml"), variable: "CODEX_HOME", format: tomlFormat{}, stdio: command,
			http: urlAs("url", "http_headers"),
		},
		{
			ID: "gemini", Name: "Gemini CLI", Key: mcp, Then: "restart it in a folder that it trusts; /mcp lists the server", programs: []string{"gemini"},
			paths: everywhere("{home}/.gemini/settings.json"), format: jsonFormat{comments: true}, stdio: command,
			http: urlAs("httpUrl", "headers"),
		},
		{
			ID: "zed", Name: "Zed", Key: "context_servers", Then: "the server is in the settings of its agent panel", programs: []string{"zed", "zeditor"},
			paths: paths{"{config}/zed/settings.json", "{home}/.config/zed/settings.json", "{appdata}/Zed/settings.json"},
			// Earlier versions take an entry for that of an extension unless it is marked as the user's own.
			format: jsonFormat{comments: true}, stdio: with(config.Fields{{Name: "source", Value: "custom"}}, command), http: inURL,
		},
		{
			ID: "windsurf", Name: "Windsurf", Key: mcp, Then: "refresh the list of plugins in its Cascade panel", programs: []string{"windsurf"},
			paths: everywhere("{home}/.codeium/windsurf/mcp_config.json"), format: jsonFormat{}, stdio: command, http: urlAs("serverUrl", "headers"),
		},
		{
			ID: "opencode", Name: "OpenCode", Key: "mcp", Then: "restart it; `opencode mcp list` lists the server", programs: []string{"opencode"},
			paths: everywhere("{config}/opencode/opencode.json"), variable: "OPENCODE_CONFIG_DIR", older: "{config}/opencode/opencode.jsonc",
			format: jsonFormat{comments: true}, stdio: typed("local", commandList), http: typed("remote", inURL), // version 2 reads this form too
		},
		{
			ID: "cline", Name: "Cline", Key: mcp, Then: "the server is in its MCP panel", programs: []string{"cline"},
			paths:  everywhere("{home}/.cline/data/settings/cline_mcp_settings.json"),
			marks:  []string{"{home}/.cline", "{config}/Code/User/globalStorage/saoudrizwan.claude-dev"},
			format: jsonFormat{}, stdio: command, http: typed("streamableHttp", inURL),
		},
		{
			ID: "goose", Name: "Goose", Key: "extensions", Then: "start a new session", programs: []string{"goose"},
			paths:  paths{"{config}/goose/config.yaml", "{home}/.config/goose/config.yaml", "{appdata}/Block/goose/config/config.yaml"},
			format: yamlFormat{}, stdio: extension("stdio", commandAs("cmd")), http: extension("streamable_http", urlAs("uri", "headers")),
		},
		{ // a file of its own, which Continue reads beside its config.yaml
			ID: "continue", Name: "Continue", Key: mcp, Then: "reload its config", programs: []string{"cn"}, marks: []string{"{home}/.continue"},
			paths: everywhere("{home}/.continue/mcpServers/toolpost.json"), format: jsonFormat{comments: true}, stdio: command, http: typed("http", inURL),
		},
		{
			ID: "copilot-cli", Name: "Copilot CLI", Key: mcp, Then: "restart it; /mcp show lists the server", programs: []string{"copilot"},
			paths: everywhere("{home}/.copilot/mcp-config.json"), variable: "COPILOT_HOME", format: jsonFormat{},
			stdio: typed("local", allTools(command)), http: typed("http", allTools(inURL)),
		},
		{
			ID: "jetbrains", Name: "JetBrains Junie", Key: mcp, Then: "the server is in Settings | Tools | Junie | MCP Settings", programs: []string{"junie"},
			paths: everywhere("{home}/.junie/mcp/mcp.json"), marks: []string{"{home}/.junie"}, format: jsonFormat{}, stdio: command, http: inURL,
		},
		{
			ID: "lmstudio", Name: "LM Studio", Key: mcp, Then: "switch the server on in its Program tab", programs: []string{"lms"},
			paths: everywhere("{home}/.lmstudio/mcp.json"), older: "{home}/.cache/lm-studio/mcp.json", format: jsonFormat{}, stdio: command, http: inURL,
		},
		{
			ID: "antigravity", Name: "Antigravity", Key: mcp, Then: "refresh its list of MCP servers", programs: []string{"antigravity", "agy"},
			paths: everywhere("{home}/.gemini/config/mcp_config.json"), older: "{home}/.gemini/antigravity/mcp_config.json",
			format: jsonFormat{}, stdio: command, http: urlAs("serverUrl", "headers"),
		},
	}
}

func everywhere(path string) paths { return paths{linux: path, mac: path, windows: path} }

// perUser returns a file among a user's settings of desktop programs.
func perUser(file string) paths {
	return paths{"{config}/" + file, "{home}/Library/Application Support/" + file, "{appdata}/" + file}
}

func command(s Server) config.Fields { return commandAs("command")(s) }

func commandAs(name string) func(Server) config.Fields {
	return func(s Server) config.Fields {
		return config.Fields{{Name: name, Value: s.Command}, {Name: "args", Value: s.Args}}
	}
}

func commandList(s Server) config.Fields {
	return config.Fields{{Name: "command", Value: append([]string{s.Command}, s.Args...)}, {Name: "enabled", Value: true}}
}

func urlAs(name, headers string) func(Server) config.Fields {
	return func(s Server) config.Fields {
		shows := config.Fields{{Name: "Authorization", Value: "Bearer " + s.Token}}
		return config.Fields{{Name: name, Value: s.URL}, {Name: headers, Value: shows}}
	}
}

// with puts fields before those of an entry.
func with(first config.Fields, rest func(Server) config.Fields) func(Server) config.Fields {
	return func(s Server) config.Fields { return slices.Concat(first, rest(s)) }
}

func typed(kind string, rest func(Server) config.Fields) func(Server) config.Fields {
	return with(config.Fields{{Name: "type", Value: kind}}, rest)
}

// allTools adds the list of tools that the client offers to its model.
func allTools(rest func(Server) config.Fields) func(Server) config.Fields {
	return func(s Server) config.Fields {
		return append(rest(s), config.Field{Name: "tools", Value: []string{"*"}})
	}
}

// extension returns an entry for Goose.
func extension(kind string, rest func(Server) config.Fields) func(Server) config.Fields {
	return with(config.Fields{{Name: "enabled", Value: true}, {Name: "type", Value: kind}}, func(s Server) config.Fields {
		return with(config.Fields{{Name: "name", Value: s.Name}, {Name: "description", Value: "Toolpost"}}, rest)(s)
	})
}

// A Machine describes the user and system whose settings are looked for.
type Machine struct {
	System string // as runtime.GOOS has it
	Home   string
	Env    func(name string) string
	Look   func(program string) (string, error) // on PATH
}

// Here returns this machine, with the settings of the user who runs the program.
func Here() (Machine, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return Machine{}, tool.Errorf(tool.CodeUnavailable, "the home folder, where agents keep their settings: %w", err)
	}
	return Machine{System: runtime.GOOS, Home: home, Env: os.Getenv, Look: exec.LookPath}, nil
}

// Program returns the path of this program as the user started it: a link to it stays if its target moves, as after an update.
func Program() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "where this program is: %w", err)
	}
	if started, err := exec.LookPath(os.Args[0]); err == nil && same(started, path) {
		return filepath.Abs(started)
	}
	return path, nil
}

func same(a, b string) bool {
	one, err := os.Stat(a)
	other, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(one, other)
}

// path replaces the placeholders in p by the user's folders.
func (m Machine) path(p string) string {
	settings := m.Env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(settings) {
		settings = filepath.Join(m.Home, ".config")
	}
	appdata := cmp.Or(m.Env("APPDATA"), filepath.Join(m.Home, "AppData", "Roaming"))
	return filepath.FromSlash(strings.NewReplacer("{home}", m.Home, "{config}", settings, "{appdata}", appdata).Replace(p))
}

// File returns the path at which a client keeps its servers on a machine.
func (c Client) File(m Machine) string {
	p := c.paths.linux
	switch m.System {
	case "darwin":
		p = c.paths.mac
	case "windows":
		p = c.paths.windows
	}
	if dir := m.Env(c.variable); c.variable != "" && dir != "" {
		return filepath.Join(dir, filepath.Base(p))
	}
	if older := m.path(c.older); c.older != "" && exists(older) && !exists(m.path(p)) {
		return older
	}
	return m.path(p)
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// Found reports whether the client seems to be installed: its file, its folder or its program exists.
func (c Client) Found(m Machine) bool {
	file := c.File(m)
	there := []string{file}
	if dir := filepath.Dir(file); filepath.Clean(dir) != filepath.Clean(m.Home) {
		there = append(there, dir)
	}
	for _, mark := range c.marks {
		there = append(there, m.path(mark))
	}
	return slices.ContainsFunc(there, exists) ||
		slices.ContainsFunc(c.programs, func(name string) bool { _, err := m.Look(name); return err == nil })
}

// Find returns the client with an ID.
func Find(id string) (Client, bool) {
	all := Clients()
	i := slices.IndexFunc(all, func(c Client) bool { return c.ID == id })
	if i < 0 {
		return Client{}, false
	}
	return all[i], true
}
