// Package mcpadd makes MCP servers sources of a config: from the words of a command line, or from the settings of another
// program. It installs packages, fetches images, keeps secrets out of the config, and changes the config in one step.
package mcpadd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"toolpost/cmd/toolpost/form"
	"toolpost/cmd/toolpost/format"
	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// Protocol is the protocol of a source with an MCP server.
const Protocol = "mcp"

// An Server is a server that is to become a source.
type Server struct {
	Name    string
	note    string // a comment beside it
	command []string
	dir     string
	URL     string
	headers map[string]string
	env     map[string]string // in clear
	secrets []secretValue

	Read, Write, Network []string // of its walls

	pkg     *fetched // a package that is installed first
	box     *boxed   // the container that it runs in
	scripts bool
	Remarks []string // what its owner should know
}

// An secretValue is a value that must not be shown.
type secretValue struct {
	variable string // of the program, or a name in its place if there is none
	name     string // in the config
	header   bool   // part of a header, not a variable
	value    string
	env      string // the variable of this program that provides it; empty if the value is kept
}

// Source writes the server as a source of the config.
func (s *Server) Source() config.Fields {
	fields := config.Fields{{Name: "name", Value: s.Name}, {Name: "protocol", Value: Protocol}}
	add := func(name string, value any, there bool) {
		if there {
			fields = append(fields, config.Field{Name: name, Value: value})
		}
	}
	add("url", s.URL, s.URL != "")
	add("headers", texts(s.filledHeaders()), len(s.headers) > 0)
	add("command", s.command, len(s.command) > 0)
	if s.box != nil {
		add("container", s.box.fields(s.Network), true)
	}
	add("dir", s.dir, s.dir != "")
	add("env", texts(s.env), len(s.env) > 0)
	var names []string
	for _, one := range s.secrets {
		switch {
		case one.header:
		case one.name == one.variable:
			names = append(names, one.name)
		default:
			names = append(names, one.variable+"="+one.name)
		}
	}
	add("secrets", names, len(names) > 0)
	var walls config.Fields
	for _, w := range []struct {
		name string
		list []string
	}{{"read", s.Read}, {"write", s.Write}} {
		if len(w.list) > 0 {
			walls = append(walls, config.Field{Name: w.name, Value: w.list})
		}
	}
	switch {
	case s.box != nil:
	case slices.Equal(s.Network, []string{"all"}):
		walls = append(walls, config.Field{Name: "network", Value: "all"})
	case len(s.Network) > 0:
		walls = append(walls, config.Field{Name: "network", Value: s.Network})
	}
	add("walls", walls, len(walls) > 0)
	return fields
}

// filledHeaders returns the headers with the final names of their secrets.
func (s *Server) filledHeaders() map[string]string {
	filled := maps.Clone(s.headers)
	for _, one := range s.secrets {
		for name, value := range filled {
			if one.header {
				filled[name] = strings.ReplaceAll(value, "${secret:"+one.variable+"}", "${secret:"+one.name+"}")
			}
		}
	}
	return filled
}

// texts returns a map as fields, sorted by name.
func texts(m map[string]string) config.Fields {
	var fields config.Fields
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fields = append(fields, config.Field{Name: name, Value: m[name]})
	}
	return fields
}

var notInNames = regex.Lazy(`[^a-z0-9_-]+`)

// slug makes the name of a source from any name.
func slug(name string) string {
	s := strings.Trim(notInNames().ReplaceAllString(strings.ToLower(name), "-"), "-_")
	if len(s) > 40 {
		s = strings.Trim(s[:40], "-_")
	}
	return cmp.Or(s, "server")
}

// secretName makes the name of a secret from any name.
func secretName(name string) string {
	s := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' {
			return r - 'a' + 'A'
		}
		if 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '_'
	}, name)
	if s == "" || s[0] <= '9' {
		s = "_" + s
	}
	return s
}

// named returns a short name for a command.
func named(argv []string, call *fetched, box *boxed) string {
	switch {
	case call != nil:
		return shortName(filepath.Base(call.name()))
	case box != nil:
		image, _, _ := strings.Cut(path.Base(box.image), ":")
		image, _, _ = strings.Cut(image, "@")
		return shortName(image)
	}
	words := slices.DeleteFunc(slices.Clone(argv[1:]), func(w string) bool { return strings.HasPrefix(w, "-") || w == "run" })
	program := filepath.Base(argv[0])
	interpreters := regexp.MustCompile(`^(python[0-9.]*|node|uv|deno|bunx?|pnpx|ruby|java|sh|bash)$`)
	if interpreters.MatchString(program) && len(words) > 0 {
		program = filepath.Base(words[0])
	}
	return shortName(strings.TrimSuffix(program, filepath.Ext(program)))
}

// shortName drops the parts that the names of all servers have in common.
func shortName(name string) string {
	short := name
	for _, prefix := range []string{"mcp-server-", "server-", "mcp-"} {
		short = strings.TrimPrefix(short, prefix)
	}
	for _, suffix := range []string{"-mcp-server", "-server", "-mcp"} {
		short = strings.TrimSuffix(short, suffix)
	}
	return slug(cmp.Or(short, name))
}

// hostName returns a short name for an address: "server" for an IP address, whose parts name nothing.
func hostName(u *url.URL) string {
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return "server"
	}
	labels := strings.Split(u.Hostname(), ".")
	if len(labels) > 1 {
		labels = labels[:len(labels)-1]
	}
	kept := slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return slices.Contains([]string{"mcp", "www", "api"}, l) })
	return slug(append(append(kept, labels...), "server")[0])
}

// isCredential reports whether a header is a credential.
func isCredential(name, value string) bool {
	lower := strings.ToLower(name)
	for _, word := range []string{"auth", "token", "key", "secret", "cookie", "password", "credential", "signature"} {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return strings.HasPrefix(value, "Bearer ") || strings.HasPrefix(value, "Basic ")
}

// reference matches a value that only refers to another variable, as clients write it: ${NAME}, ${env:NAME} or $NAME.
var reference = regex.Lazy(`^\$(?:\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))$`)

// addHeader gives the server a header, and keeps the secret part apart.
func (s *Server) addHeader(name, value string) error {
	if s.headers == nil {
		s.headers = map[string]string{}
	}
	if !isCredential(name, value) && !strings.Contains(value, "${") {
		s.headers[name] = value
		return nil
	}
	before, rest := "", value
	for _, scheme := range []string{"Bearer ", "Basic "} {
		if after, ok := strings.CutPrefix(value, scheme); ok {
			before, rest = scheme, after
		}
	}
	one, err := newSecret(secretName(s.Name+"_"+name), rest)
	if err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "the header %s: %w; write it into `headers` of the source by hand", name, err)
	}
	one.header = true
	s.headers[name] = before + "${secret:" + one.variable + "}"
	s.secrets = append(s.secrets, one)
	return nil
}

// newSecret makes a secret from a value, or from the variable that it refers to.
func newSecret(variable, value string) (secretValue, error) {
	if m := reference().FindStringSubmatch(value); m != nil {
		return secretValue{variable: variable, env: cmp.Or(m[1], m[2])}, nil
	}
	switch {
	case strings.Contains(value, "${"):
		return secretValue{}, fmt.Errorf("its value is put together by the client (${...}), which cannot be imported")
	case len(value) < secret.MinSize:
		return secretValue{}, fmt.Errorf("its value is shorter than %d bytes, and no secret can be", secret.MinSize)
	}
	return secretValue{variable: variable, value: value}, nil
}

// SecretNames lists the secrets of a server.
func (s *Server) SecretNames() []string {
	names := []string{}
	for _, one := range s.secrets {
		names = append(names, one.name)
	}
	return names
}

// Contained reports whether the server runs in a container.
func (s *Server) Contained() bool { return s.box != nil }

// Bare reports whether the program gets no variables of its own.
func (s *Server) Bare() bool { return len(s.secrets)+len(s.env) == 0 }

// AbsentHint says that a file of the command is not there, if the message is about it, or returns "". The walls would look
// like the reason, because they hide files too.
func (s *Server) AbsentHint(message string) string {
	for _, word := range s.command[min(1, len(s.command)):] {
		if _, err := os.Stat(word); filepath.IsAbs(word) && strings.Contains(message, word) && errors.Is(err, fs.ErrNotExist) {
			return "this machine has no " + word + ": check the path"
		}
	}
	return ""
}

// WallsHint names the option that a server may need after it failed behind its walls: a flag of `mcp add`, or else a line of
// its source. It returns "" if the message does not tell, or tells of files and the hidden one is known.
func WallsHint(message, hidden string, flags bool) string {
	for _, hint := range []struct{ words, fact, flag, line string }{
		{
			`could put code for its program`, "the folders of two sources overlap: give another one with ",
			"--dir DIR or --write DIR", "`dir: DIR` or `walls: {write: [DIR]}`",
		},
		{
			`sockets?|eai_again|enotfound|enetunreach|econnrefused|getaddrinfo|name resolution|network is unreachable|fetch failed|dns error`,
			"it has no network: allow the hosts that it needs with ", "--network HOST", "`walls: {network: [HOST]}`",
		},
		{
			`erofs|read-only file system|eacces|permission denied|eperm`,
			"it writes nothing: allow the folder that it needs with ", "--write DIR", "`walls: {write: [DIR]}`",
		},
		{
			`enoent|no such file|err_module_not_found|cannot find (module|package)|modulenotfounderror|can't open file`,
			"it sees its own folder alone, by default the config's: name another, or allow what it needs, with ",
			"--dir DIR or --read PATH", "`dir: DIR` or `walls: {read: [PATH]}`",
		},
		{`heap out of memory|memoryerror`, "it has 512 MiB: allow more with ", "", "`walls: {memory: BYTES}`"},
	} {
		if !regexp.MustCompile(`(?i)\b(`+hint.words+`)\b`).MatchString(message) || strings.HasPrefix(hint.line, "`dir") && hidden != "" {
			continue
		}
		if flags && hint.flag != "" {
			return hint.fact + hint.flag + " (" + hint.line + ")"
		}
		return hint.fact + hint.line + " in its source"
	}
	return ""
}

// Hidden returns a file or folder that the command or a variable of the server names and that its walls hide from it, or "".
// The walls show a program the files of its command that have absolute paths, but nothing beside them: unless the program has
// started without it, that is the folder of such a file. It is not, if the home of the user is in there.
func (s *Server) Hidden(base string, started bool) (beside string) {
	dir := offlimits.Under(base, s.dir)
	seen := []string{dir, "/usr", "/bin", "/sbin", "/lib", "/lib64", "/dev", "/proc"}
	for _, path := range slices.Concat(s.Read, s.Write) {
		seen = append(seen, offlimits.Under(base, path))
	}
	args := s.command[min(1, len(s.command)):]
	for i, word := range slices.Concat(args, slices.Sorted(maps.Values(s.env))) {
		if strings.HasPrefix(word, "-") {
			_, word, _ = strings.Cut(word, "=")
		}
		path := offlimits.Under(dir, word)
		info, err := os.Stat(path)
		within := func(folder string) bool { return offlimits.Within(path, folder) }
		if word == "" || err != nil || slices.ContainsFunc(seen, within) {
			continue
		}
		if i >= len(args) || !info.Mode().IsRegular() || !filepath.IsAbs(word) {
			return path
		}
		if folder := filepath.Dir(path); beside == "" && !started && !offlimits.Within(os.Getenv("HOME"), folder) {
			beside = folder
		}
	}
	return beside
}

// ExampleCall returns the words of a call, after `toolpost call`, and whether its arguments are strings: a word that stands
// for an array or a number would be refused.
func ExampleCall(spec *tool.Spec) (words string, plain bool) {
	words, plain = format.ShellWord(spec.Ref().String()), true
	for _, in := range form.Inputs(spec.Input) {
		if in.Need == "required" {
			words += " " + format.ShellWord(in.Name) + "=" + format.ShellWord(strings.ToUpper(in.Name))
			plain = plain && in.Type == "string"
		}
	}
	return words, plain
}
