package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

const (
	maxFields  = 25 // of a struct, but for tool.Record, whose fields are the columns of the audit log
	maxMethods = 7  // of an interface
)

// maxCode returns how many lines of code a package may have: lines that are neither blank nor a comment, without tests.
func maxCode(room string) int {
	if room == "cmd/toolpost" {
		return 7950 // 200 for the commands of fleets, 150 for those of connections, 100 for logging in
	}
	return 4000
}

func TestTypesHaveFewFieldsAndMethods(t *testing.T) {
	eachFile(t, 0, func(fset *token.FileSet, f *ast.File) {
		for _, wide := range wideTypes(fset, f) {
			t.Errorf("%s: group what belongs together into types of its own", wide)
		}
	})
}

// wideTypes finds the structs and interfaces with too many members. An embedded type is one of them.
func wideTypes(fset *token.FileSet, f *ast.File) (wide []string) {
	name := ""
	check := func(members *ast.FieldList, most int) {
		n := 0
		for _, m := range members.List {
			n += max(1, len(m.Names))
		}
		if n > most && (f.Name.Name != "tool" || name != "Record") {
			wide = append(wide, fmt.Sprintf("%s: %s has %d members, more than %d", fset.Position(members.Pos()), name, n, most))
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			name = n.Name.Name
		case *ast.StructType:
			check(n.Fields, maxFields)
		case *ast.InterfaceType:
			check(n.Methods, maxMethods)
		}
		return true
	})
	return wide
}

func TestAWideTypeIsFound(t *testing.T) {
	fields := func(n int) string { return "type T struct { E; " + strings.Repeat("a, ", n-2) + "a int }" }
	methods := func(n int) string { return "type T interface {" + strings.Repeat(" M()\n", n) + "}" }
	for _, c := range []struct {
		src   string
		found int
	}{
		{"package p; " + fields(maxFields), 0},
		{"package p; " + fields(maxFields+1), 1},
		{"package p; func f() { " + fields(maxFields+1) + " }", 1},
		{"package p; " + methods(maxMethods), 0},
		{"package p; " + methods(maxMethods+1), 1},
		{"package tool; " + fields(maxFields+1), 1},
		{"package tool; " + strings.Replace(fields(40), "T", "Record", 1), 0},
	} {
		fset := token.NewFileSet()
		f := kit.Must(parser.ParseFile(fset, "p.go", c.src, 0))(t)
		kit.Equal(t, len(wideTypes(fset, f)), c.found, c.src)
	}
}

func TestNoPackageHasTooMuchCode(t *testing.T) {
	module, packages := listPackages(t)
	for _, p := range packages {
		lines := 0
		for _, name := range kit.Must(filepath.Glob(filepath.Join(p.Dir, "*.go")))(t) {
			if !strings.HasSuffix(name, "_test.go") {
				lines += linesOfCode(string(kit.Must(os.ReadFile(name))(t)))
			}
		}
		if room := roomOf(module, p.ImportPath); lines > maxCode(room) {
			t.Errorf("%s has %d lines of code, more than %d: simplify it, or move a part of it out", room, lines, maxCode(room))
		}
	}
}

// linesOfCode counts the lines that are neither blank nor begin with // nor lie in /* */.
func linesOfCode(src string) (n int) {
	comment := false
	for line := range strings.Lines(src) {
		line = strings.TrimSpace(line)
		switch {
		case comment:
			comment = !strings.Contains(line, "*/")
		case strings.HasPrefix(line, "/*"):
			comment = !strings.Contains(line, "*/")
		case line != "" && !strings.HasPrefix(line, "//"):
			n++
		}
	}
	return n
}

func TestLinesOfCodeAreCounted(t *testing.T) {
	kit.Equal(t, linesOfCode("// Package p.\npackage p\n\n/* a\nb */\nvar a = 1 // one\n\t// two\n/* c */\n}"), 3)
}
