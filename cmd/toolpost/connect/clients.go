// Package connect tells the agents on this machine about a Toolpost: it knows where each keeps its list of MCP servers,
// and puts one entry in or takes it out again. Everything else in those files is left as it is.
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
	Key  string // the object of its file that has the servers
	Then string // what to do when its file was changed

	paths    paths
	variable string   // of the environment, that names the folder of the file instead
	marks    []string // folders that are there when it is installed, beside that of the file
	programs []string // likewise, on PATH
	format   format
	stdio    func(Server) config.Fields
	http     func(Server) config.Fields // nil: it takes none from its file
}

// paths are where the file is on each system. {home}, {config} and {appdata} stand for the user's folders.
type paths struct{ linux, mac, windows string }

// Clients lists those that are known.
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
			// Earlier versions take an entry for that of an extension where it does not say that it is the user's own.
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

// A Machine is whose settings are looked for.
type Machine struct {
	System string // as runtime.GOOS has it
	Home   string
	Env    func(name string) string
	Look   func(program string) (string, error) // on PATH
}

// Here is this machine, with the settings of the user who runs the program.
func Here() (Machine, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return Machine{}, tool.Errorf(tool.CodeUnavailable, "the home folder, where agents keep their settings: %w", err)
	}
	return Machine{System: runtime.GOOS, Home: home, Env: os.Getenv, Look: exec.LookPath}, nil
}

// path puts the user's folders in place of the names that stand for them.
func (m Machine) path(p string) string {
	settings := m.Env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(settings) {
		settings = filepath.Join(m.Home, ".config")
	}
	appdata := cmp.Or(m.Env("APPDATA"), filepath.Join(m.Home, "AppData", "Roaming"))
	return filepath.FromSlash(strings.NewReplacer("{home}", m.Home, "{config}", settings, "{appdata}", appdata).Replace(p))
}

// File is where a client keeps its servers on a machine.
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

// Found reports whether the client seems to be installed: its file, its folder or its program is there.
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

// Find returns the client of an ID.
func Find(id string) (Client, bool) {
	all := Clients()
	i := slices.IndexFunc(all, func(c Client) bool { return c.ID == id })
	if i < 0 {
		return Client{}, false
	}
	return all[i], true
}
