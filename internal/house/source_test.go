package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

const maxLines = 100

func TestNoFunctionIsLongerThanAHundredLines(t *testing.T) {
	_, packages := listPackages(t)
	fset := token.NewFileSet()
	for _, p := range packages {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Error(err)
				continue
			}
			for _, long := range longFunctions(fset, f) {
				t.Errorf("%s: split it into parts with names of their own", long)
			}
		}
	}
}

func longFunctions(fset *token.FileSet, f *ast.File) (long []string) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if from, to := fset.Position(fn.Pos()), fset.Position(fn.End()); to.Line-from.Line+1 > maxLines {
			long = append(long, from.String()+": "+fn.Name.Name)
		}
	}
	return long
}

func TestALongFunctionIsFound(t *testing.T) {
	for lines, found := range map[int]bool{maxLines: false, maxLines + 1: true} {
		src := "package p\nfunc f() {" + strings.Repeat("\n", lines-1) + "}\n"
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "p.go", src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if long := longFunctions(fset, f); (len(long) > 0) != found {
			t.Errorf("a function of %d lines: %v", lines, long)
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	module, packages := listPackages(t)
	for _, p := range packages {
		if p.Doc == "" && hasProgramFiles(p) {
			t.Errorf("%s has no package comment", within(module, p.ImportPath))
		}
	}
}

// hasProgramFiles tells a package of tests alone, which needs no comment, from the others.
func hasProgramFiles(p listed) bool {
	files, _ := filepath.Glob(filepath.Join(p.Dir, "*.go"))
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			return true
		}
	}
	return false
}
