package connect

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"toolpost/tool"
	"toolpost/wire/bounded"
)

// A Listed is a server in the file of a client.
type Listed struct {
	Name    string
	Command []string
	Dir     string
	Env     map[string]string
	URL     string
	Headers map[string]string
	Problem string // why it cannot be used; empty if it can
}

// maxFile bounds a file of another program, in bytes.
const maxFile = 8 << 20

// Read reads a file of another program.
func Read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s cannot be read: %w", path, tool.WithoutPath(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s cannot be read: it is no file", path)
	}
	text, err := bounded.ReadDocument(f, maxFile)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s cannot be read: %w", path, tool.WithoutPath(err))
	}
	return text, nil
}

// Servers reads the servers in the file of any client: the clients use different words for them. Comments are accepted
// wherever one client allows them.
func Servers(path string, text []byte) ([]Listed, error) {
	var f format = jsonFormat{comments: true}
	if filepath.Ext(path) == ".toml" {
		f = tomlFormat{}
	}
	doc, err := f.decode(text)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s cannot be read: %w", path, err)
	}
	all, key := servers(doc)
	if all == nil {
		if inner, ok := doc["mcp"].(map[string]any); ok { // settings of earlier versions of VS Code
			all, key = servers(inner)
		}
	}
	list := ofProjects(doc, listedAll(all, key))
	if all == nil && len(list) == 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s lists no MCP servers; expected one of %s", path,
			strings.Join(keys(), ", "))
	}
	return list, nil
}

func listedAll(all map[string]any, key string) (list []Listed) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, listed(name, all[name], key))
	}
	return list
}

// ofProjects adds the servers that Claude Code starts in one project, the default of `claude mcp add` unless told
// otherwise. A server that several projects have is added once.
func ofProjects(doc map[string]any, list []Listed) []Listed {
	projects, _ := doc["projects"].(map[string]any)
	for _, folder := range slices.Sorted(maps.Keys(projects)) {
		project, _ := projects[folder].(map[string]any)
		all, _ := project["mcpServers"].(map[string]any)
		for _, l := range listedAll(all, "mcpServers") {
			same := func(o Listed) bool { return o.Name == l.Name && o.URL == l.URL && slices.Equal(o.Command, l.Command) }
			if slices.ContainsFunc(list, same) {
				continue
			}
			if l.Dir == "" && l.URL == "" {
				l.Dir = folder
			}
			list = append(list, l)
		}
	}
	return list
}

func keys() []string { return []string{"mcpServers", "servers", "mcp_servers", "context_servers"} }

func servers(doc map[string]any) (map[string]any, string) {
	for _, key := range keys() {
		if all, ok := doc[key].(map[string]any); ok {
			return all, key
		}
	}
	return nil, ""
}

// An odd value has another type than expected.
type odd struct{ problem string }

func listed(name string, v any, key string) Listed {
	l := Listed{Name: name}
	m, ok := v.(map[string]any)
	if !ok {
		l.Problem = "it is not an object"
		return l
	}
	var wrong odd
	command := wrong.text(m, "command")
	if nested, ok := m["command"].(map[string]any); ok && key == "context_servers" { // earlier versions of Zed
		wrong, m = odd{}, nested
		command = wrong.text(m, "path")
	}
	if args := wrong.list(m, "args"); command != "" {
		l.Command = append([]string{command}, args...)
	}
	for _, name := range []string{"url", "httpUrl", "serverUrl"} {
		if text := wrong.text(m, name); text != "" {
			l.URL = text
		}
	}
	l.Dir = wrong.text(m, "cwd")
	l.Env = wrong.texts(m, "env")
	l.Headers = wrong.texts(m, "headers")
	maps.Copy(l.Headers, wrong.texts(m, "http_headers"))
	kind := wrong.text(m, "type")
	switch {
	case wrong.problem != "":
		l.Problem = wrong.problem
	case m["disabled"] == true || m["enabled"] == false:
		l.Problem = "it is switched off"
	case kind == "sse":
		l.Problem = "it speaks HTTP with SSE, which is deprecated; ask who runs it for its streamable HTTP address"
	case (len(l.Command) == 0) == (l.URL == ""):
		l.Problem = "it needs a command or an url, and not both"
	case m["envFile"] != nil:
		l.Problem = fmt.Sprintf("its variables are in %v; put them into `env` of the file", m["envFile"])
	}
	return l
}

func (o *odd) text(m map[string]any, name string) string {
	s, ok := m[name].(string)
	if m[name] != nil && !ok {
		o.problem = name + " is not a string"
	}
	return s
}

func (o *odd) list(m map[string]any, name string) (all []string) {
	list, ok := m[name].([]any)
	if m[name] != nil && !ok {
		o.problem = name + " is not a list"
	}
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			o.problem = name + " has something that is not a string"
		}
		all = append(all, s)
	}
	return all
}

func (o *odd) texts(m map[string]any, name string) map[string]string {
	all := map[string]string{}
	given, ok := m[name].(map[string]any)
	if m[name] != nil && !ok {
		o.problem = name + " is not an object"
	}
	for key, v := range given {
		switch v := v.(type) {
		case string:
			all[key] = v
		case bool, fmt.Stringer: // numbers are json.Number
			all[key] = fmt.Sprint(v)
		default:
			o.problem = name + "." + key + " is not a string"
		}
	}
	return all
}
