package mcpadd

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/config"
	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// A Request is a server as a command line describes it.
type Request struct {
	Name, Dir            string
	Env, Secrets         []string // NAME=VALUE; NAME of a variable of this process
	Headers              []string // NAME: VALUE
	Read, Write, Network []string // of its walls
	Scripts, NoTry       bool
}

// Server reads the command line: a URL, or a program.
func (q *Request) Server(args []string, program bool) (*Server, error) {
	s := &Server{Name: q.Name, dir: q.Dir, Network: q.Network, scripts: q.Scripts}
	if !program {
		return s, q.remote(s, args)
	}
	var err error
	if s.pkg, err = parseFetched(args); err != nil {
		return nil, err
	}
	if s.box, s.command, err = parseBoxed(args); err != nil {
		return nil, err
	}
	if s.Name == "" {
		s.Name = named(args, s.pkg, s.box)
	}
	if len(q.Headers) > 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "--header is for a server at a URL; a program gets --secret and --env")
	}
	switch {
	case (s.pkg != nil || s.box != nil) && q.Dir != "":
		return nil, tool.Errorf(tool.CodeInvalidInput, "--dir does not go with %s: the server runs where it is installed", args[0])
	case s.box != nil:
		if err := q.contained(s); err != nil {
			return nil, err
		}
	case s.pkg != nil:
		s.pkg.args = absolute(s.pkg.args)
	default:
		s.command = args
		if why := fetches(args); why != "" {
			s.Remarks = append(s.Remarks, why)
		}
		if _, err := exec.LookPath(args[0]); err != nil && !strings.Contains(args[0], "/") {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s is not a program on PATH; install it, or give its path%s", args[0],
				strings.Join(append([]string{""}, s.Remarks...), "\n  "))
		}
	}
	return s, q.variables(s)
}

// contained checks the walls of a container, and takes its variables over.
func (q *Request) contained(s *Server) error {
	switch {
	case len(q.Read)+len(q.Write) > 0:
		return tool.Errorf(tool.CodeInvalidInput, "--read and --write do not go with a container; mount a folder: `%s run -v DIR:DIR:ro`", s.box.engine)
	case len(q.Network) > 0 && !slices.Equal(q.Network, []string{"all"}):
		return tool.Errorf(tool.CodeInvalidInput, "a container has a network or none; write --network all, or leave it out")
	}
	for _, pair := range s.box.env {
		switch name, value, given := strings.Cut(pair, "="); {
		case !given:
			q.Secrets = append(q.Secrets, name)
		case isCredential(name, value):
			return tool.Errorf(tool.CodeInvalidInput, "-e %s=VALUE would be in the config in clear; export %[1]s in your shell and write "+
				"-e %[1]s alone: its value is kept as a secret", name)
		default:
			q.Env = append(q.Env, pair)
		}
	}
	return nil
}

// absolute makes paths absolute if they are written as paths, because the server runs in another folder.
func absolute(args []string) []string {
	var all []string
	for _, arg := range args {
		if arg == "." || arg == ".." || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") {
			if full, err := filepath.Abs(arg); err == nil {
				arg = full
			}
		}
		all = append(all, arg)
	}
	return all
}

// withoutScheme matches a host with a port or a dot, and what may follow: a URL typed as browsers accept it.
var withoutScheme = regex.Lazy(`^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*):[0-9]+(/.*)?$|^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+/.*$`)

// remote reads the command line of a server at a URL.
func (q *Request) remote(s *Server, args []string) error {
	u, err := url.Parse(args[0])
	switch {
	case len(args) == 1 && withoutScheme().MatchString(args[0]):
		return tool.Errorf(tool.CodeInvalidInput, "%q is not a whole URL; write http://%s or https://%s", args[0], args[0], args[0])
	case err == nil && u.Host != "" && u.Scheme != "http" && u.Scheme != "https":
		return tool.Errorf(tool.CodeInvalidInput, "%q is not the URL of an MCP server: it must begin with https:// or http://", args[0])
	case err != nil || u.Host == "":
		return tool.Errorf(tool.CodeInvalidInput, "%q is not a URL; a program comes behind --, such as `toolpost mcp add -- %s`", args[0],
			strings.Join(args, " "))
	case len(args) > 1:
		return tool.Errorf(tool.CodeInvalidInput, "a URL stands alone; %q does not belong there", args[1])
	case len(q.Env)+len(q.Secrets)+len(q.Read)+len(q.Write)+len(q.Network) > 0 || q.Dir != "" || q.Scripts:
		return tool.Errorf(tool.CodeInvalidInput, "--env, --secret, --read, --write, --network, --dir and --scripts are for a "+
			"program that is started here; a server at a URL gets --header")
	}
	if s.URL = args[0]; s.Name == "" {
		s.Name = hostName(u)
	}
	for _, h := range q.Headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return tool.Errorf(tool.CodeInvalidInput, "a header is written \"NAME: VALUE\"; what was given has no colon")
		}
		if err := s.addHeader(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			return err
		}
	}
	return nil
}

// variables sets the environment of the program.
func (q *Request) variables(s *Server) error {
	s.env = map[string]string{}
	for _, pair := range q.Env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return tool.Errorf(tool.CodeInvalidInput, "--env is NAME=VALUE, not %q", name)
		}
		s.env[name] = value
	}
	for _, name := range q.Secrets {
		if name, _, ok := strings.Cut(name, "="); ok {
			return tool.Errorf(tool.CodeInvalidInput, "--secret takes a name alone, so that no process list shows its value: "+
				"export %s in your shell and say --secret %s", name, name)
		}
		value := os.Getenv(name)
		if value == "" {
			return tool.Errorf(tool.CodeInvalidInput, "the variable %s is not set; export it in your shell: its value is kept as a "+
				"secret", name)
		}
		if len(value) < secret.MinSize {
			return tool.Errorf(tool.CodeInvalidInput, "the value of %s is shorter than %d bytes, and no secret can be: it could not be "+
				"told from other text and be redacted; --env keeps it in clear", name, secret.MinSize)
		}
		s.secrets = append(s.secrets, secretValue{variable: name, value: value})
	}
	return nil
}

// Walls converts paths from the command line to the form of the config: those below its folder become relative to it.
func (q *Request) Walls(cfg *config.Config, s *Server) error {
	for _, list := range []struct {
		flag string
		from []string
		to   *[]string
	}{{"--read", q.Read, &s.Read}, {"--write", q.Write, &s.Write}} {
		for _, path := range list.from {
			full, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			if _, err := os.Stat(full); err != nil && !q.NoTry {
				return tool.Errorf(tool.CodeInvalidInput, "%s %s: %w; make it first", list.flag, path, tool.WithoutPath(err))
			}
			*list.to = append(*list.to, fromConfig(cfg, full))
		}
	}
	if s.dir != "" {
		full, err := filepath.Abs(s.dir)
		if err != nil {
			return err
		}
		s.dir = fromConfig(cfg, full)
	}
	return nil
}

// fromConfig returns a path in the form of the config.
func fromConfig(cfg *config.Config, full string) string {
	if rel, err := filepath.Rel(cfg.Dir, full); err == nil && filepath.IsLocal(rel) {
		return "./" + filepath.ToSlash(rel)
	}
	return full
}

// Reach says which hosts the server may reach.
func (s *Server) Reach() string {
	if len(s.Network) == 0 {
		return "has no network"
	}
	return "reaches " + strings.Join(s.Network, ", ")
}
