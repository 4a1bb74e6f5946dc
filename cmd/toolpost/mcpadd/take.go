package mcpadd

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/cmd/toolpost/connect"
	"toolpost/config/offlimits"
	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/regex"
)

// An Import takes servers from the settings of another program.
type Import struct {
	Dry, Scripts bool
	Plain        []string // variables whose values are no secrets
	Only         []string // names of servers; empty means all
	File         string   // absolute; Read sets it
}

// Read reads the servers in the settings of another program.
func (q *Import) Read(path string) (list []connect.Listed, err error) {
	text, err := connect.Read(path)
	if err != nil {
		return nil, err
	}
	if q.File, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if list, err = connect.Servers(path, text); err != nil {
		return nil, err
	}
	var names []string
	for _, l := range list {
		names = append(names, l.Name)
	}
	for _, name := range q.Only {
		if !slices.Contains(names, name) {
			return nil, tool.Errorf(tool.CodeNotFound, "%s has no server %q%s", path, name,
				nearest.Suggest(name, names, "; it has "+strings.Join(names, ", ")))
		}
	}
	return slices.DeleteFunc(list, func(l connect.Listed) bool {
		return len(q.Only) > 0 && !slices.Contains(q.Only, l.Name)
	}), nil
}

// ReasonHere is the reason of an error about a server that the config needs no source for.
const ReasonHere = "already_here"

// Take makes a source from one server, whose remarks are set in any case. If it fails, nothing of the server stays in the
// config.
func (q *Import) Take(ctx context.Context, e *Edit, l connect.Listed) (*Server, error) {
	s := &Server{Name: numbered(slug(l.Name), e.Taken), scripts: q.Scripts, env: map[string]string{}}
	read := q.program
	if l.URL != "" {
		read = q.remote
	}
	switch {
	case l.Problem != "":
		return s, tool.Errorf(tool.CodeInvalidInput, "%s", l.Problem)
	case isToolpost(l):
		return s, tool.Errorf(tool.CodeConflict, "it is Toolpost itself").Because(ReasonHere)
	}
	if err := read(s, l); err != nil {
		return s, err
	}
	if e.has(s, slug(l.Name)) {
		return s, tool.Errorf(tool.CodeConflict, "the source %s is this server already", slug(l.Name)).Because(ReasonHere)
	}
	before, made := e.text, len(e.made)
	err := e.Add(ctx, s, q.Dry)
	if err != nil {
		e.text = before
		e.takeBack(made)
	}
	return s, err
}

func isToolpost(l connect.Listed) bool {
	return len(l.Command) >= 3 && filepath.Base(l.Command[0]) == "toolpost" && l.Command[1] == "as"
}

func (q *Import) remote(s *Server, l connect.Listed) error {
	if strings.Contains(l.URL, "${") {
		return tool.Errorf(tool.CodeUnsupported, "its url is put together by the client (${...}); write it out")
	}
	if s.URL = l.URL; strings.ContainsAny(l.URL, "?@") {
		s.Remarks = append(s.Remarks, "its url may have a secret in it, and is in the config in clear; a header would not be")
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

func (q *Import) program(s *Server, l connect.Listed) (err error) {
	argv := slices.Clone(l.Command)
	for i, word := range argv {
		if argv[i] = q.inFolder(word); strings.Contains(argv[i], "${") {
			return tool.Errorf(tool.CodeUnsupported, "its command has %s, which the client fills in; write it out", word)
		}
		if secretFlag().MatchString(word) {
			s.Remarks = append(s.Remarks, "an argument of its command looks like a secret, and is in the config in clear; most servers "+
				"take a variable instead")
		}
	}
	if s.dir = q.inFolder(l.Dir); s.dir != "" {
		s.dir = offlimits.Under(filepath.Dir(q.File), s.dir)
		if home, err := os.UserHomeDir(); err == nil && below(home, s.dir) {
			s.Remarks = append(s.Remarks, fmt.Sprintf("it runs in %s, so that it may read all that is in there; "+
				"if that is too much, give it another `dir` in the config", s.dir))
		}
	}
	if s.pkg, err = parseFetched(argv); err != nil {
		return err
	}
	if s.box, s.command, err = parseBoxed(argv); err != nil {
		return err
	}
	switch {
	case s.box != nil:
		for _, pair := range s.box.env { // a name alone is the client's own variable
			if name, value, given := strings.Cut(pair, "="); given {
				l.Env[name] = value
			}
		}
	case s.pkg == nil:
		s.command = argv
		if why := fetches(argv); why != "" {
			s.Remarks = append(s.Remarks, why)
		}
	}
	return q.variables(s, l)
}

// below reports whether a path is a folder or below it.
func below(path, folder string) bool {
	rest, err := filepath.Rel(folder, path)
	return err == nil && rest != ".." && !strings.HasPrefix(rest, "../")
}

// inFolder fills in the folder of a project's file.
func (q *Import) inFolder(word string) string {
	folder := filepath.Dir(q.File)
	if base := filepath.Base(folder); base == ".vscode" || base == ".cursor" {
		folder = filepath.Dir(folder)
	}
	return strings.ReplaceAll(word, "${workspaceFolder}", folder)
}

// isPlain reports whether the value of a variable is clearly a path, or a URL without credentials. A name that promises a
// credential is believed, unless the value is a file of this machine. A long part of a URL may be a token, as of a webhook.
func isPlain(name, value string) bool {
	if _, err := os.Stat(value); err == nil && filepath.IsAbs(value) {
		return true
	}
	root, _, deep := strings.Cut(strings.TrimPrefix(value, "/"), "/")
	_, err := os.Stat("/" + root)
	u, bad := url.Parse(value)
	switch {
	case isCredential(name, value) || strings.Contains(value, "$"):
		return false
	case strings.HasPrefix(value, "/"): // so may a key in Base64
		return deep && root != "" && err == nil
	case strings.HasPrefix(value, "./"), strings.HasPrefix(value, "../"), strings.HasPrefix(value, "~/"):
		return true
	}
	return bad == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" &&
		!slices.ContainsFunc(strings.Split(u.Path, "/"), func(part string) bool { return len(part) >= 16 })
}

// variables makes secrets from the server's variables. A variable that cannot be a secret is left out and reported.
func (q *Import) variables(s *Server, l connect.Listed) error {
	for _, name := range slices.Sorted(maps.Keys(l.Env)) {
		value := l.Env[name]
		switch {
		case secretName(name) != strings.ToUpper(name):
			return tool.Errorf(tool.CodeInvalidInput, "%q cannot be the name of a variable", name)
		case value == "":
			continue
		case slices.Contains(q.Plain, name), isPlain(name, value):
			s.env[name] = value
			continue
		}
		kept, err := newSecret(name, value)
		if err != nil {
			s.Remarks = append(s.Remarks, fmt.Sprintf("its variable %s was left out: %v; --plain %s keeps it in the config in clear",
				name, err, name))
			continue
		}
		s.secrets = append(s.secrets, kept)
	}
	return nil
}
