package alphahuman

import (
	_ "embed"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/regex"
)

// A launch describes how a skill is started.
type launch struct {
	argv []string
	dir  string   // the working folder: the skill's, or for a package the one above its parent
	code []string // files that it needs to run, beside its folder

	root     string            // for a package: ROOT, where its imports start; otherwise empty
	reads    []string          // for a package: what else it sees
	withheld map[string]string // for a package: hidden modules by name, and their paths
}

// launch returns how to start the skill in a folder. A Python skill uses the Python of its own environment if it has one.
func (m *Manifest) launch(dir string) (launch, error) {
	command, args := m.Runtime.Command, m.Runtime.Args
	switch m.Runtime.Type {
	case "python":
		command, args = "python3", []string{m.Runtime.Entry}
	case "node":
		command, args = "node", []string{m.Runtime.Entry}
	}
	l := launch{dir: dir}
	var err error
	if command == "python" || command == "python3" {
		command, err = venvPython(dir, command)
	}
	if err == nil && m.python() {
		args, err = l.asPackage(args)
	}
	l.argv = append([]string{command}, args...)
	return l, err
}

// asPackage makes a skill that is a Python package run as one, with python -m skills.NAME from above its parent. Its host
// does the same, and its relative imports work in no other way.
func (l *launch) asPackage(args []string) ([]string, error) {
	parent := filepath.Dir(l.dir)
	name := filepath.Base(parent) + "." + filepath.Base(l.dir)
	flags := 0 // of the interpreter; flags with a value are unknown here, and make it a script
	for flags < len(args) && slices.Contains([]string{"-u", "-B", "-E", "-s", "-q", "-O", "-OO"}, args[flags]) {
		flags++
	}
	module, rest := packageModule(l.dir, name, args[flags:])
	if module == "" {
		return args, nil
	}
	for _, folder := range []string{parent, l.dir} {
		if base := filepath.Base(folder); base == "/" || strings.Contains(base, ".") {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s has relative imports and is run as %s, "+
				"but a folder whose name has a dot cannot be a Python package; rename %s", l.dir, name, folder)
		}
	}
	l.dir = filepath.Dir(parent)
	l.root = l.dir
	if init := filepath.Join(parent, "__init__.py"); exists(init) {
		l.code = append(l.code, init)
	}
	return slices.Concat(args[:flags], []string{"-c", packageProgram, module}, rest), nil
}

//go:embed package.py
var packageProgram string

// packageModule returns the module that starts a Python skill and the arguments after it, or "" if it is a script.
func packageModule(dir, name string, args []string) (module string, rest []string) {
	switch {
	case len(args) > 1 && args[0] == "-m" && (args[1] == name || strings.HasPrefix(args[1], name+".")):
		return args[1], args[2:]
	case len(args) == 0 || !filepath.IsLocal(args[0]) || filepath.Ext(args[0]) != ".py":
		return "", nil
	}
	entry := filepath.Clean(args[0])
	inPackage := importsPackage(dir, entry, name)
	if entry == "__main__.py" || entry == "__init__.py" { // these two belong together
		inPackage = inPackage || importsPackage(dir, "__init__.py", name)
	}
	switch {
	case !inPackage:
		return "", nil
	case entry == "__main__.py", entry == "__init__.py" && exists(filepath.Join(dir, "__main__.py")):
		return name, args[1:]
	}
	return name + "." + strings.ReplaceAll(strings.TrimSuffix(entry, ".py"), "/", "."), args[1:]
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// maxSource bounds how much of a program is read to find its imports.
const maxSource = 1 << 20

var relativeImport = regex.Lazy(`(?m)(?:^|[;:])[ \t]*from[ \t]*\.`)

// importsPackage reports whether a file of a skill has a relative import, or imports its package or the SDK by name.
func importsPackage(dir, entry, name string) bool {
	source, err := readFile(filepath.Join(dir, entry), maxSource)
	if err != nil {
		return false // starting it will report why
	}
	code := pythonText().ReplaceAll(source, nil) // comments and strings may mention imports
	names := regexp.QuoteMeta(name)
	if sdkIn(filepath.Dir(filepath.Dir(dir))) != "" {
		names += "|" + sdkFolder
	}
	own := regexp.MustCompile(`(?m)(?:^|[;:])[ \t]*(?:from|import)[ \t]+(?:` + names + `)\b`)
	return relativeImport().Match(code) || own.Match(code)
}

// pythonText matches a comment or a string of Python. A string that is not closed ends with its line, or with the file.
var pythonText = regex.Lazy(`(?s)#[^\n]*` +
	`|"""(?:\\.|.)*?(?:"""|\z)|'''(?:\\.|.)*?(?:'''|\z)` +
	`|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`)
