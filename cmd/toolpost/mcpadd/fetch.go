package mcpadd

import (
	"path/filepath"
	"slices"
	"strings"

	"toolpost/cmd/toolpost/packages"
	"toolpost/host/spawn"
	"toolpost/tool"
)

// A fetched package is one that its command would fetch at each start. It is installed once instead.
type fetched struct {
	index     packages.Index
	spec, bin string
	args      []string
}

// A launcher is a command that fetches a package and runs it.
type launcher struct {
	index packages.Index
	usage string
	idle  string // flags without effect on an installation
	from  string // flags that name the package, if its program has another name
}

// parseFetched reads a command that fetches a package and runs it, or returns nil for any other command.
func parseFetched(argv []string) (*fetched, error) {
	npx := launcher{packages.NPM, "npx -y PACKAGE", "-y --yes -q --quiet --prefer-online --prefer-offline", "-p --package"}
	uvx := launcher{packages.PyPI, "uvx PACKAGE", "-q --quiet -n --no-cache --isolated --refresh --upgrade -U", "--from --spec"}
	line := strings.Join(append([]string{filepath.Base(argv[0])}, argv[1:min(len(argv), 3)]...), " ") + " "
	for name, l := range map[string]launcher{"npx": npx, "npm exec": npx, "npm x": npx, "uvx": uvx, "uv tool run": uvx, "pipx run": uvx} {
		if strings.HasPrefix(line, name+" ") {
			return l.parse(name, argv[len(strings.Fields(name)):])
		}
	}
	return nil, nil //nolint:nilnil // another command is no mistake
}

func (l launcher) parse(name string, rest []string) (*fetched, error) {
	call := &fetched{index: l.index}
	for end := false; !end && len(rest) > 0 && strings.HasPrefix(rest[0], "-"); {
		flag, value, given := strings.Cut(rest[0], "=")
		rest = rest[1:]
		switch {
		case flag == "--":
			end = true
		case slices.Contains(strings.Fields(l.idle), flag):
		case slices.Contains(strings.Fields(l.from), flag):
			if !given && len(rest) > 0 {
				value, rest = rest[0], rest[1:]
			}
			if value == "" || call.spec != "" {
				return nil, tool.Errorf(tool.CodeUnsupported, "%s %s names one package; if a server needs several, install them "+
					"yourself, and add the program that they bring", name, flag)
			}
			call.spec = value
		default:
			return nil, tool.Errorf(tool.CodeUnsupported, "%s %s is not understood here; write `%s ARGUMENTS`", name, flag, l.usage)
		}
	}
	if len(rest) == 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s has no package to run; write `%s`", name, l.usage)
	}
	if call.spec == "" {
		call.spec = rest[0]
	} else {
		call.bin = rest[0]
	}
	call.args = rest[1:]
	return call, nil
}

// name returns the package without its version and extras.
func (f *fetched) name() string {
	name := f.spec
	for _, suffix := range []string{".tgz", ".whl", ".tar.gz"} {
		name = strings.TrimSuffix(name, suffix)
	}
	at := strings.LastIndex(name, "@")
	if f.index == packages.PyPI {
		at = strings.IndexAny(name, "@=<>~![;")
	}
	if at > 0 {
		name = name[:at]
	}
	return name
}

// fetches advises against a program that needs more than its walls at each start, or returns "" for other programs.
func fetches(argv []string) string {
	if may, _ := spawn.Fetches(argv[0]); !may {
		return ""
	}
	return filepath.Base(argv[0]) + " may fetch what it runs, and behind its walls a server has no network: add it with `npx -y PACKAGE`, `uvx PACKAGE` or " +
		"`docker run -i --rm IMAGE`, which are fetched once; or let it reach out at each start, with `walls: {network: [HOST]}`"
}
