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
	return []Client{
		{
			ID: "claude-code", Name: "Claude Code", Key: "mcpServers", Then: "type /mcp in it to see the server",
			paths: everywhere("{home}/.claude.json"), variable: "CLAUDE_CONFIG_DIR",
			marks: []string{"{home}/.claude"}, programs: []string{"claude"}, format: jsonFormat{},
			stdio: typed("stdio", command), http: typed("http", urlAs("url", "headers")),
		},
		{
			ID: "claude-desktop", Name: "Claude Desktop", Key: "mcpServers", Then: "restart it",
			paths: paths{
				linux:   "{config}/Claude/claude_desktop_config.json",
				mac:     "{home}/Library/Application Support/Claude/claude_desktop_config.json",
				windows: "{appdata}/Claude/claude_desktop_config.json",
			},
			programs: []string{"claude-desktop"}, format: jsonFormat{}, stdio: command,
		},
		{
			ID: "cursor", Name: "Cursor", Key: "mcpServers", Then: "the server is in its settings, under MCP",
			paths: everywhere("{home}/.cursor/mcp.json"), programs: []string{"cursor"}, format: jsonFormat{comments: true},
			stdio: command, http: urlAs("url", "headers"),
		},
		{
			ID: "vscode", Name: "VS Code", Key: "servers", Then: "run `MCP: List Servers` in it and start the server",
			paths: paths{
				linux:   "{config}/Code/User/mcp.json",
				mac:     "{home}/Library/Application Support/Code/User/mcp.json",
				windows: "{appdata}/Code/User/mcp.json",
			},
			programs: []string{"code"}, format: jsonFormat{comments: true},
			stdio: typed("stdio", command), http: typed("http", urlAs("url", "headers")),
		},
		{
			ID: "codex", Name: "Codex", Key: "mcp_servers", Then: "restart it; /mcp lists the server",
			paths: everywhere("{home}/.codex/config.toml"), variable: "CODEX_HOME", programs: []string{"codex"},
			format: tomlFormat{}, stdio: command,
			http: urlAs("url", "http_headers"),
		},
		{
			ID: "gemini", Name: "Gemini CLI", Key: "mcpServers", Then: "restart it; /mcp lists the server",
			paths: everywhere("{home}/.gemini/settings.json"), programs: []string{"gemini"},
			format: jsonFormat{comments: true}, stdio: command, http: urlAs("httpUrl", "headers"),
		},
		{
			ID: "zed", Name: "Zed", Key: "context_servers", Then: "the server is in the settings of its agent panel",
			paths: paths{
				linux: "{config}/zed/settings.json", mac: "{home}/.config/zed/settings.json",
				windows: "{appdata}/Zed/settings.json",
			},
			programs: []string{"zed", "zeditor"}, format: jsonFormat{comments: true},
			// Earlier versions take an entry for that of an extension unless it is marked as the user's own.
			stdio: func(s Server) config.Fields {
				return append(config.Fields{{Name: "source", Value: "custom"}}, command(s)...)
			},
			http: urlAs("url", "headers"),
		},
		{
			ID: "windsurf", Name: "Windsurf", Key: "mcpServers", Then: "refresh the list of plugins in its Cascade panel",
			paths: everywhere("{home}/.codeium/windsurf/mcp_config.json"), programs: []string{"windsurf"},
			format: jsonFormat{}, stdio: command, http: urlAs("serverUrl", "headers"),
		},
	}
}

func everywhere(path string) paths { return paths{linux: path, mac: path, windows: path} }

func command(s Server) config.Fields {
	return config.Fields{{Name: "command", Value: s.Command}, {Name: "args", Value: s.Args}}
}

func urlAs(name, headers string) func(Server) config.Fields {
	return func(s Server) config.Fields {
		shows := config.Fields{{Name: "Authorization", Value: "Bearer " + s.Token}}
		return config.Fields{{Name: name, Value: s.URL}, {Name: headers, Value: shows}}
	}
}

func typed(kind string, rest func(Server) config.Fields) func(Server) config.Fields {
	return func(s Server) config.Fields { return append(config.Fields{{Name: "type", Value: kind}}, rest(s)...) }
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
	return m.path(p)
}

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
	return slices.ContainsFunc(there, func(path string) bool { _, err := os.Stat(path); return err == nil }) ||
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
