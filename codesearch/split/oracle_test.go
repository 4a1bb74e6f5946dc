package split_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/codesearch/split"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
)

// The package must find the functions and types of Go's own library that Go's parser finds, at the same lines and with
// the same documentation.
func TestGoDefinitionsAgreeWithTheGoParser(t *testing.T) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("there is no go command")
	}
	root := strings.TrimSpace(string(out))
	total, missed := 0, 0
	dirs := []string{"encoding/json", "strings", "text/template", "fmt", "os", "reflect", "database/sql", "net/http", "go/types"}
	for _, dir := range dirs[:rounds.Of(3, len(dirs))] {
		names, err := filepath.Glob(filepath.Join(root, "src", dir, "*.go"))
		if err != nil || len(names) == 0 {
			t.Skip("the sources of Go's library are not here")
		}
		for _, name := range names {
			src := kit.Must(os.ReadFile(name))(t)
			n, m := compareWithGo(t, name, src)
			total, missed = total+n, missed+m
		}
	}
	if missed*1000 > total { // those that share a line with something else
		t.Errorf("%d of %d definitions were missed", missed, total)
	}
}

func compareWithGo(t *testing.T, name string, src []byte) (total, missed int) {
	fset := token.NewFileSet()
	f := kit.Must(parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution))(t)
	type place struct {
		name string
		line int
	}
	found := map[place]split.Part{}
	for _, p := range split.Parts(split.Go, src) {
		if at := (place{p.Name, p.Define}); p.Kind == split.Function {
			if _, again := found[at]; !again {
				found[at] = p
			}
		}
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		total++
		p, ok := found[place{fn.Name.Name, fset.Position(fn.Name.Pos()).Line}]
		switch {
		case !ok:
			t.Logf("%s: %s was not found", fset.Position(fn.Pos()), fn.Name.Name)
			missed++
		case fn.Doc != nil && !strings.HasPrefix(fn.Doc.List[0].Text, "//go:") && p.DocStart != fset.Position(fn.Doc.Pos()).Offset:
			t.Logf("%s: its documentation begins elsewhere", fset.Position(fn.Pos()))
			missed++
		case p.Last-p.Line < 100 && p.Last != fset.Position(fn.End()).Line:
			t.Logf("%s: it ends in line %d, not %d", fset.Position(fn.Pos()), fset.Position(fn.End()).Line, p.Last)
			missed++
		}
	}
	return total, missed
}
