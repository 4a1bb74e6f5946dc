package connect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

var (
	program = Server{Name: "toolpost", Command: "/opt/toolpost", Args: []string{"as", "mcp", "--config", "/w/toolpost.yaml"}}
	address = Server{Name: "toolpost", URL: "http://127.0.0.1:8700/mcp", Token: "tp_" + strings.Repeat("x", 43)}
)

func nobody(string) string { return "" }

func noProgram(string) (string, error) { return "", errors.New("none") }

// do applies a change; it returns false if there was nothing to do.
func do(t *testing.T, ch *Change, err error) bool {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer ch.Close()
	if ch.Nothing() {
		return false
	}
	kit.OK(t, ch.Apply(false))
	return true
}

func TestEveryClientIsConnectedOnceAndUndoneExactly(t *testing.T) {
	for _, c := range Clients() {
		texts := map[string]string{"nothing": "", "others": "{\n    \"z\": [1.50, \"//\"],\n    \"KEY\": {\n        \"mine\": {\"command\": \"x\"}\n    }\n}\n", "empty key": "{\"KEY\": {}}", "one line": "{\"a\":1}"}
		switch f := c.format.(type) {
		case jsonFormat:
			if !f.comments {
				break
			}
			texts["remarks"] = "// mine\n{\n\t// and this\n\t\"KEY\": {\n\t\t\"mine\": {}, // last\n\t},\n}\n"
		case yamlFormat:
			texts = map[string]string{"nothing": "", "others": "# mine\nGOOSE_MODEL: x # why\nKEY:\n  mine:\n    enabled: true\n    cmd: x\n\n# the end\nz: 1.50\n", "none": "a: 1\n", "no newline": "a: 1", "flow": "KEY: {mine: {cmd: x}}\n"}
		case tomlFormat:
			texts = map[string]string{"nothing": "", "others": "# mine\nmodel = \"x\" # why\n\n[mcp_servers.mine]\ncommand = \"x\"\n\n# the end\n[z]\na = 1.50\n", "no newline": "a = 1", "several lines": "a = [\n  1, # one\n]\n"}
		}
		for name, before := range texts {
			before = strings.ReplaceAll(before, "KEY", c.Key)
			file := filepath.Join(t.TempDir(), "sub", filepath.Base(c.paths.linux))
			if before != "" {
				kit.Write(t, file, before)
			}
			for _, s := range []Server{program, address} {
				if s.URL != "" && c.http == nil {
					continue
				}
				ch, err := Connect(c, file, s)
				if !do(t, ch, err) {
					t.Fatalf("%s, %s: nothing was written", c.ID, name)
				}
				text := kit.Read(t, file)
				if ch, err := Connect(c, file, s); do(t, ch, err) || kit.Read(t, file) != text {
					t.Errorf("%s, %s: the second time changed something:\n%s", c.ID, name, kit.Read(t, file))
				}
				for _, kept := range []string{"mine", "// and this", "// last", "# why", "# the end", "1.50"} {
					if strings.Contains(before, kept) && !strings.Contains(text, kept) {
						t.Errorf("%s, %s: %q is gone:\n%s", c.ID, name, kept, text)
					}
				}
			}
			ch, err := Disconnect(c, file, "toolpost")
			if !do(t, ch, err) {
				t.Errorf("%s, %s: nothing was taken out", c.ID, name)
			}
			left, _ := os.ReadDir(filepath.Dir(file))
			if before == "" && len(left) != 0 || before != "" && (len(left) != 1 || kit.Read(t, file) != before) {
				t.Errorf("%s, %s: %v is left:\n%q\nof\n%q", c.ID, name, left, kit.Read(t, file), before)
			}
			if ch, err := Disconnect(c, file, "toolpost"); do(t, ch, err) {
				t.Errorf("%s, %s: undone twice", c.ID, name)
			}
		}
	}
}

// Later changes by people and their programs stay: only the entry is removed.
func TestUndoKeepsLaterChanges(t *testing.T) {
	for id, c := range map[string]struct{ before, change, to, after string }{
		"zed": {
			"{\n  // theme\n  \"theme\": \"dark\"\n}\n", "\"dark\"", "\"light\" /* since then */",
			"{\n  // theme\n  \"theme\": \"light\" /* since then */\n}\n",
		},
		"vscode": {"{\n}\n", "{\n", "{\n  // mine\n", "{\n  // mine\n}\n"},
		"codex": {
			"a = 1\n", "a = 1\n", "a = 2 # since then\n", "a = 2 # since then\n",
		},
		"gemini": {"", "\"mcpServers\": {", "\"mcpServers\": {\n    \"other\": {},", "{\n  \"mcpServers\": {\n    \"other\": {}\n  }\n}\n"},
	} {
		client, _ := Find(id)
		file := filepath.Join(t.TempDir(), "settings")
		if c.before != "" {
			kit.Write(t, file, c.before)
		}
		ch, err := Connect(client, file, program)
		do(t, ch, err)
		kit.Write(t, file, strings.Replace(kit.Read(t, file), c.change, c.to, 1))
		ch, err = Disconnect(client, file, "toolpost")
		if do(t, ch, err); kit.Read(t, file) != c.after {
			t.Errorf("%s: %q", id, kit.Read(t, file))
		}
	}
}

func TestATomlTableIsFoundAmongOthers(t *testing.T) {
	codex, _ := Find("codex")
	file := filepath.Join(t.TempDir(), "config.toml")
	kit.Write(t, file, "[mcp_servers.toolpost]\ncommand = \"/old\"\nargs = [\n  \"as\", # x\n  \"mcp\"\n]\n\n[mcp_servers.toolpost.env]\nA = \"1\"\n\n# about b\n[b]\nc = 1\n")
	ch, err := Connect(codex, file, program)
	do(t, ch, err)
	const want = "[mcp_servers.toolpost]\ncommand = \"/opt/toolpost\"\nargs = [\"as\", \"mcp\", \"--config\", \"/w/toolpost.yaml\"]\n\n# about b\n[b]\nc = 1\n"
	kit.Equal(t, kit.Read(t, file), want)
	ch, err = Disconnect(codex, file, "toolpost")
	if do(t, ch, err); kit.Read(t, file) != "# about b\n[b]\nc = 1\n" {
		t.Errorf("%q", kit.Read(t, file))
	}
	for text, why := range map[string]string{
		"mcp_servers = { toolpost = { command = \"x\", args = [\"as\", \"mcp\"] } }\n": "by hand",
		"[mcp_servers]\ntoolpost = { command = \"x\", args = [\"as\", \"mcp\"] }\n":    "by hand",
		"mcp_servers = 1\n":                   "not an object",
		"a = 1\na = 2\n":                      "line 2",
		"[mcp_servers.toolpost]\ncommand = x": "line 2",
	} {
		kit.Write(t, file, text)
		kit.Fails(t, kit.Err(Connect(codex, file, program)), why, text)
		kit.Fails(t, kit.Err(Disconnect(codex, file, "toolpost")), why, text)
		kit.Equal(t, kit.Read(t, file), text, "was changed")
	}
}

func TestBrokenSettingsAndForeignEntriesAreRefused(t *testing.T) {
	vscode, _ := Find("vscode")
	for text, want := range map[string]string{
		"{\n  \"servers\": {\n    \"a\": 1\n    \"b\": 2\n  }\n}": "line 4, column 5",
		"{\"servers\": []}": "\"servers\" is not an object",
		"[]":                "expected a JSON object",
		"{\"servers\": {\"toolpost\": {\"command\": \"other\"}}}": "did not write",
		"{\"servers\": {\"toolpost\": 7}}":                        "did not write",
	} {
		file := filepath.Join(t.TempDir(), "mcp.json")
		kit.Write(t, file, text)
		for _, err := range []error{second(Connect(vscode, file, program)), second(Disconnect(vscode, file, "toolpost"))} {
			kit.Fails(t, err, want, text)
		}
		if left, _ := os.ReadDir(filepath.Dir(file)); kit.Read(t, file) != text || len(left) != 1 {
			t.Errorf("%q was changed", text)
		}
	}
	claude, _ := Find("claude-code")
	file := filepath.Join(t.TempDir(), ".claude.json")
	kit.Write(t, file, "{} // no")
	kit.Fails(t, kit.Err(Connect(claude, file, program)), "", "Claude Code reads no comments")
	desktop, _ := Find("claude-desktop")
	kit.Refused(t, kit.Err(Connect(desktop, file, address)), tool.CodeUnsupported, "")
}

func second(_ *Change, err error) error { return err }

func TestFileWithATokenIsPrivate(t *testing.T) {
	cursor, _ := Find("cursor")
	file := filepath.Join(t.TempDir(), "mcp.json")
	kit.Write(t, file, "{}")
	ch := kit.Must(Connect(cursor, file, address))(t)
	defer ch.Close()
	kit.OK(t, ch.Apply(true))
	for _, path := range []string{file, file + backupSuffix} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Error(path, info, err)
		}
	}
	for _, line := range ch.Diff() {
		if strings.Contains(line, address.Token) {
			t.Errorf("the token is shown: %s", line)
		}
	}
}

func TestSettingsPathsPerSystem(t *testing.T) {
	env := map[string]string{"XDG_CONFIG_HOME": "/x", "APPDATA": "/a", "CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/d", "COPILOT_HOME": "/p"}
	for _, c := range []struct {
		system, id string
		env        func(string) string
		want       string
	}{
		{"linux", "vscode", nobody, "/h/.config/Code/User/mcp.json"},
		{"linux", "vscode", func(n string) string { return env[n] }, "/x/Code/User/mcp.json"},
		{"darwin", "vscode", nobody, "/h/Library/Application Support/Code/User/mcp.json"},
		{"windows", "vscode", func(n string) string { return env[n] }, "/a/Code/User/mcp.json"},
		{"windows", "zed", nobody, "/h/AppData/Roaming/Zed/settings.json"},
		{"darwin", "zed", nobody, "/h/.config/zed/settings.json"},
		{"darwin", "claude-desktop", nobody, "/h/Library/Application Support/Claude/claude_desktop_config.json"},
		{"linux", "codex", func(n string) string { return env[n] }, "/c/config.toml"},
		{"linux", "claude-code", func(n string) string { return env[n] }, "/d/.claude.json"},
		{"linux", "claude-code", nobody, "/h/.claude.json"},
		{"linux", "windsurf", nobody, "/h/.codeium/windsurf/mcp_config.json"},
		{"linux", "opencode", func(n string) string { return env[n] }, "/x/opencode/opencode.json"},
		{"darwin", "opencode", nobody, "/h/.config/opencode/opencode.json"},
		{"linux", "cline", nobody, "/h/.cline/data/settings/cline_mcp_settings.json"},
		{"linux", "goose", nobody, "/h/.config/goose/config.yaml"},
		{"windows", "goose", func(n string) string { return env[n] }, "/a/Block/goose/config/config.yaml"},
		{"linux", "continue", nobody, "/h/.continue/mcpServers/toolpost.json"},
		{"linux", "copilot-cli", nobody, "/h/.copilot/mcp-config.json"},
		{"linux", "copilot-cli", func(n string) string { return env[n] }, "/p/mcp-config.json"},
		{"linux", "jetbrains", nobody, "/h/.junie/mcp/mcp.json"},
		{"linux", "lmstudio", nobody, "/h/.lmstudio/mcp.json"},
		{"linux", "antigravity", nobody, "/h/.gemini/config/mcp_config.json"},
	} {
		client, _ := Find(c.id)
		kit.Equal(t, client.File(Machine{System: c.system, Home: "/h", Env: c.env}), c.want, "%s, %s", c.system, c.id)
	}
}

func TestAClientIsFoundByItsFileItsFolderOrItsProgram(t *testing.T) {
	found := func(m Machine) (ids []string) {
		for _, c := range Clients() {
			if c.Found(m) {
				ids = append(ids, c.ID)
			}
		}
		return ids
	}
	m := Machine{System: "linux", Home: t.TempDir(), Env: nobody, Look: noProgram}
	if ids := found(m); ids != nil {
		t.Error(ids)
	}
	kit.Write(t, m.Home+"/.claude.json", "{}")
	kit.Write(t, m.Home+"/.cursor/extensions.json", "{}")
	kit.Write(t, m.Home+"/.junie/AGENTS.md", "")
	m.Look = func(name string) (string, error) {
		if name == "codex" {
			return "/bin/codex", nil
		}
		return noProgram(name)
	}
	kit.Equal(t, strings.Join(found(m), " "), "claude-code cursor codex jetbrains")
}

// Each client's own words, as its documentation has them.
func TestEntriesAreInTheWordsOfEachClient(t *testing.T) {
	const argv = `"/opt/toolpost","as","mcp","--config","/w/toolpost.yaml"`
	const stdio = `"command":"/opt/toolpost","args":["as","mcp","--config","/w/toolpost.yaml"]`
	const bearer = `"headers":{"Authorization":"Bearer TOKEN"}`
	const at = `"http://127.0.0.1:8700/mcp",` + bearer
	for id, want := range map[string][2]string{
		"opencode": {`{"type":"local","command":[` + argv + `],"enabled":true}`, `{"type":"remote","url":` + at + `}`},
		"cline":    {`{` + stdio + `}`, `{"type":"streamableHttp","url":` + at + `}`},
		"goose": {
			`{"enabled":true,"type":"stdio","name":"toolpost","description":"Toolpost",` + strings.Replace(stdio, "command", "cmd", 1) + `}`,
			`{"enabled":true,"type":"streamable_http","name":"toolpost","description":"Toolpost","uri":` + at + `}`,
		},
		"continue":    {`{` + stdio + `}`, `{"type":"http","url":` + at + `}`},
		"copilot-cli": {`{"type":"local",` + stdio + `,"tools":["*"]}`, `{"type":"http","url":` + at + `,"tools":["*"]}`},
		"jetbrains":   {`{` + stdio + `}`, `{"url":` + at + `}`},
		"lmstudio":    {`{` + stdio + `}`, `{"url":` + at + `}`},
		"antigravity": {`{` + stdio + `}`, `{"serverUrl":` + at + `}`},
	} {
		c, ok := Find(id)
		if !ok {
			t.Errorf("%s is unknown", id)
			continue
		}
		for i, s := range []Server{program, address} {
			entry, err := c.entry(s)
			if got := strings.ReplaceAll(string(entry.Encode()), address.Token, "TOKEN"); err != nil || got != want[i] {
				t.Errorf("%s: %v\n%s\n%s", id, err, got, want[i])
			}
		}
	}
}

// A file at the place of an earlier version is used, unless there is one at the new place.
func TestFilesOfEarlierVersionsAreUsed(t *testing.T) {
	m := Machine{System: "linux", Home: t.TempDir(), Env: nobody, Look: noProgram}
	for id, files := range map[string][2]string{
		"opencode":    {".config/opencode/opencode.jsonc", ".config/opencode/opencode.json"},
		"lmstudio":    {".cache/lm-studio/mcp.json", ".lmstudio/mcp.json"},
		"antigravity": {".gemini/antigravity/mcp_config.json", ".gemini/config/mcp_config.json"},
	} {
		c, _ := Find(id)
		for _, file := range files {
			kit.Write(t, filepath.Join(m.Home, file), "{}")
			kit.Equal(t, c.File(m), filepath.Join(m.Home, file), id)
		}
	}
}

// Values around the entry are not ours to show: such files contain tokens of other servers.
func TestTheDifferenceShowsNoValuesOfOthers(t *testing.T) {
	const secret = "ghp_a-secret"
	for name, text := range map[string]string{
		"cursor": "{\n  \"mcpServers\": {\n    \"github\": {\n      \"env\": {\"TOKEN\": \"" + secret + "\"}\n    }\n  }\n}\n",
		"gemini": `{"mcpServers":{"github":{"env":{"TOKEN":"` + secret + `"}}}}`,
		"goose":  "extensions:\n  github:\n    envs:\n      TOKEN: " + secret + "\n    note: |\n      " + secret + "\n",
		"codex": "[mcp_servers.github]\ncommand = \"x\"\n[mcp_servers.github.env]\nA = '" + secret + "'\nB = \"" + secret + "\"\nC = \"\"\"" +
			secret + "\n\"\"\"\n",
	} {
		for _, c := range Clients() {
			if c.ID != name {
				continue
			}
			file := filepath.Join(t.TempDir(), "settings")
			kit.Write(t, file, text)
			ch := kit.Must(Connect(c, file, program))(t)
			all := strings.Join(ch.Diff(), "\n")
			if strings.Contains(all, secret) || !strings.Contains(all, "/opt/toolpost") || !strings.Contains(all, "/w/toolpost.yaml") {
				t.Errorf("%s shows\n%s", name, all)
			}
			ch.Close()
		}
	}
}
