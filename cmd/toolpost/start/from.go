package start

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"toolpost/builtin/define"
	"toolpost/cmd/toolpost/connect"
	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A proposal is something in a folder that can be a source: with its fields, or with the command that adds it.
type proposal struct {
	found  string
	source config.Fields
	next   string
}

// A project is the folder of --from. Its paths are shown as the config names them.
type project struct {
	dir, home string
	skipped   []string // scripts that are not proposed
}

func (p project) path(name string) string {
	full := filepath.Join(p.dir, name)
	rel, err := filepath.Rel(p.home, full)
	switch {
	case err != nil || strings.HasPrefix(rel, "../../../"):
		return full
	case rel == "." || strings.HasPrefix(rel, ".."):
		return rel
	}
	return "./" + rel
}

// A Found is a part of the folder of From, and what becomes of it: a source, or the command that adds it.
type Found struct{ What, Becomes string }

// propose adds a config with a source for each part of the folder of From that can be one.
func (p *Plan) propose() (err error) {
	if info, err := os.Stat(p.o.From); err != nil || !info.IsDir() {
		return tool.Errorf(tool.CodeInvalidInput, "--from %s is not a folder; name the folder to look into", p.o.From)
	}
	var in project
	if in.dir, err = filepath.Abs(p.o.From); err == nil {
		in.home, err = filepath.Abs(p.o.Dir)
	}
	if err != nil {
		return err
	}
	text := fmt.Appendf([]byte(emptyConfig), "  - name: files # reads and searches the folder\n    protocol: builtin\n    roots: [{path: %s}]\n",
		strconv.Quote(in.path(".")))
	p.Next = []string{"toolpost config check", "toolpost tools"}
	for _, one := range slices.Concat(in.clientSettings(), in.apiDocuments(), in.skillFolders(), in.packageScripts()) {
		what := one.next
		if one.source != nil {
			what = fmt.Sprintf("source %s", one.source[0].Value)
			if text, err = config.AddSource(config.FileName, text, one.found, one.source); err != nil {
				return err
			}
		} else {
			p.Next = append(p.Next, one.next)
		}
		p.Found = append(p.Found, Found{one.found, what})
	}
	p.Skipped = in.skipped
	p.files = []file{{config.FileName, text}}
	return nil
}

// clientSettings finds MCP servers in the settings of other programs. They may hold secrets, so `mcp import` reads them.
func (p project) clientSettings() (found []proposal) {
	for _, name := range []string{
		".mcp.json", "mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json", ".codex/config.toml",
		".zed/settings.json", "opencode.json", "claude_desktop_config.json",
	} {
		text, err := connect.Read(filepath.Join(p.dir, name))
		if err != nil {
			continue
		}
		if list, err := connect.Servers(name, text); err == nil && len(list) > 0 {
			found = append(found, proposal{found: define.Count(len(list), "MCP server") + " in " + name, next: "toolpost mcp import " + p.path(name)})
		}
	}
	return found
}

// apiDocuments finds OpenAPI documents of version 3.
func (p project) apiDocuments() (found []proposal) {
	for _, dir := range []string{".", "api", "docs", "openapi"} {
		for _, name := range []string{"openapi.json", "openapi.yaml", "openapi.yml", "api.json", "api.yaml", "api.yml"} {
			name = filepath.Join(dir, name)
			text, err := connect.Read(filepath.Join(p.dir, name))
			if err == nil && (bytes.Contains(text, []byte(`"openapi"`)) || bytes.Contains(text, []byte("openapi:"))) {
				found = append(found, proposal{found: "the API of " + name, source: proposedSource("api", len(found), "openapi",
					config.Field{Name: "document", Value: p.path(name)})})
			}
		}
	}
	return found
}

func (p project) skillFolders() (found []proposal) {
	for _, name := range []string{"skills", ".claude/skills", ".agents/skills"} {
		if list, err := (node.Skills{}).List(filepath.Join(p.dir, name)); err == nil && len(list) > 0 {
			found = append(found, proposal{found: define.Count(len(list), "skill") + " in " + name, source: proposedSource("skills", len(found),
				"alphahuman", config.Field{Name: "skills", Value: p.path(name)})})
		}
	}
	return found
}

// packageScripts proposes the scripts of a package.json that look at the code: others may publish or deploy.
func (p *project) packageScripts() (found []proposal) {
	var pkg struct {
		Scripts map[string]string `json:"scripts"`
	}
	text, err := connect.Read(filepath.Join(p.dir, "package.json"))
	if err != nil || strictjson.Unmarshal(text, &pkg) != nil {
		return nil
	}
	looks := []string{"test", "lint", "check", "typecheck"}
	for _, name := range slices.Sorted(maps.Keys(pkg.Scripts)) {
		if !slices.Contains(looks, name) {
			p.skipped = append(p.skipped, name)
		}
	}
	for _, name := range looks {
		if script := pkg.Scripts[name]; script != "" {
			found = append(found, proposal{found: "the script " + name + " in package.json", source: proposedSource("npm-"+name, 0, "command",
				config.Field{Name: "tool", Value: "npm_" + name}, config.Field{Name: "description", Value: "Runs `npm run " + name + "`."},
				config.Field{Name: "command", Value: []string{"npm", "run", "--silent", "--no-update-notifier", name}}, config.Field{Name: "dir", Value: p.path(".")})})
		}
	}
	return found
}

// proposedSource returns a source; those after the first with this name have a number.
func proposedSource(name string, before int, protocol string, more ...config.Field) config.Fields {
	if before > 0 {
		name += "-" + strconv.Itoa(before+1)
	}
	return append(config.Fields{{Name: "name", Value: name}, {Name: "protocol", Value: protocol}}, more...)
}
