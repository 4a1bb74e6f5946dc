package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"unicode"
)

const maxLines = 100

func TestNoFunctionIsLongerThanAHundredLines(t *testing.T) {
	eachFile(t, 0, func(fset *token.FileSet, f *ast.File) {
		for _, long := range longFunctions(fset, f) {
			t.Errorf("%s: split it into parts with names of their own", long)
		}
	})
}

// eachFile parses every Go file of every package, tests included.
func eachFile(t *testing.T, mode parser.Mode, do func(*token.FileSet, *ast.File)) {
	t.Helper()
	_, packages := listPackages(t)
	fset := token.NewFileSet()
	for _, p := range packages {
		files := kit.Must(filepath.Glob(filepath.Join(p.Dir, "*.go")))(t)
		for _, name := range files {
			f, err := parser.ParseFile(fset, name, nil, mode|parser.SkipObjectResolution)
			if err != nil {
				t.Error(err)
				continue
			}
			do(fset, f)
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
		f := kit.Must(parser.ParseFile(fset, "p.go", src, 0))(t)
		if long := longFunctions(fset, f); (len(long) > 0) != found {
			t.Errorf("a function of %d lines: %v", lines, long)
		}
	}
}

// A second HTTP server would have its own rules for hosts, origins, identity, limits and shutdown: doors mount on a
// front. Tests may have one, as the peer of a client, and bench, to measure against; internal/scripted and internal/idp are such peers for
// several tests.
func TestOnlyWebMakesAnHTTPServer(t *testing.T) {
	module, packages := listPackages(t)
	for _, p := range packages {
		if slices.Contains([]string{"web", "bench", "internal/scripted", "internal/idp/provider"}, roomOf(module, p.ImportPath)) {
			continue
		}
		eachProgramFile(t, p, func(fset *token.FileSet, f *ast.File) {
			for _, at := range serversIn(f) {
				t.Errorf("%s: only package web makes an HTTP server: mount a web.Door", fset.Position(at))
			}
		})
	}
}

// eachProgramFile parses the files of a package that are not tests.
func eachProgramFile(t *testing.T, p listed, do func(*token.FileSet, *ast.File)) {
	t.Helper()
	files := kit.Must(filepath.Glob(filepath.Join(p.Dir, "*.go")))(t)
	fset := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		do(fset, f)
	}
}

// serversIn finds every use of an HTTP server: the type, and the functions that contain one.
func serversIn(f *ast.File) (found []token.Pos) {
	names := map[string]string{} // a file's names of packages
	for _, i := range f.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		if path == "net/http" || path == "net/http/httptest" {
			names[filepath.Base(path)] = path
			if i.Name != nil {
				names[i.Name.Name] = path
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := sel.X.(*ast.Ident); ok && names[pkg.Name] != "" {
			switch sel.Sel.Name {
			case "Server", "ListenAndServe", "ListenAndServeTLS", "Serve", "ServeTLS", "NewServer", "NewTLSServer", "NewUnstartedServer":
				found = append(found, sel.Pos())
			}
		}
		return true
	})
	return found
}

func TestAnHTTPServerIsFound(t *testing.T) {
	for src, n := range map[string]int{
		`import "net/http"; var s = http.Server{}`:                        1,
		`import h "net/http"; var s = &h.Server{}`:                        1,
		`import "net/http"; var _ = http.ListenAndServe("", nil)`:         1,
		`import "net/http/httptest"; var _ = httptest.NewServer(nil)`:     1,
		`import "net/http"; var _ http.Handler`:                           0,
		`import "toolpost/web"; var s web.Server`:                         0,
		`import "net/http"; func f(h *http.Server) { h.Close() }`:         1,
		`import "net/http"; var _ = http.ServeContent; var _ http.Header`: 0,
	} {
		f := kit.Must(parser.ParseFile(token.NewFileSet(), "p.go", "package p; "+src, 0))(t)
		if found := serversIn(f); len(found) != n {
			t.Errorf("%s: %d found", src, len(found))
		}
	}
}

// Only package identity decides who operates the program, from the caller's credentials. A job remembers that decision
// from when it was started.
func TestOnlyIdentityMakesOperators(t *testing.T) {
	module, packages := listPackages(t)
	for _, p := range packages {
		if from := roomOf(module, p.ImportPath); from == "identity" || from == "engine/job" {
			continue
		}
		eachProgramFile(t, p, func(fset *token.FileSet, f *ast.File) {
			for _, at := range operatorsIn(f) {
				t.Errorf("%s: only package identity says who runs the program", fset.Position(at))
			}
		})
	}
}

// operatorsIn finds the places that set Operates of a tool.Principal.
func operatorsIn(f *ast.File) (found []token.Pos) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Operates" {
				found = append(found, n.Pos())
			}
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if sel, ok := e.(*ast.SelectorExpr); ok && sel.Sel.Name == "Operates" {
					found = append(found, n.Pos())
				}
			}
		}
		return true
	})
	return found
}

func TestOperatorLiteralIsFound(t *testing.T) {
	for src, n := range map[string]int{
		`var p = tool.Principal{ID: "local", Operates: true}`:               1,
		`var p = []tool.Principal{{Operates: true}}`:                        1,
		`func f(p tool.Principal) { p.Operates, p.ID = true, "" }`:          1,
		`func f(p tool.Principal) bool { return p.Operates && p.ID != "" }`: 0,
	} {
		f := kit.Must(parser.ParseFile(token.NewFileSet(), "p.go", "package p; "+src, 0))(t)
		if found := operatorsIn(f); len(found) != n {
			t.Errorf("%s: %d found", src, len(found))
		}
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	module, packages := listPackages(t)
	for _, p := range packages {
		if p.Doc == "" && hasProgramFiles(p) {
			t.Errorf("%s has no package comment", roomOf(module, p.ImportPath))
		}
	}
}

// hasProgramFiles reports whether a package has more than tests, and so needs a package comment.
func hasProgramFiles(p listed) bool {
	files, _ := filepath.Glob(filepath.Join(p.Dir, "*.go"))
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			return true
		}
	}
	return false
}

// hardWords returns the words that make a comment hard to read, with how often they may occur in all comments: a comment names the
// caller, the server or the operator, and a condition begins with "if". A "where" for a real place is fine.
func hardWords() map[string]int {
	return map[string]int{"nobody": 5, "somebody": 5, "whoever": 5, "anybody": 5, "where": 80}
}

func TestCommentsNameTheirSubjects(t *testing.T) {
	found := map[string][]string{}
	eachFile(t, parser.ParseComments, func(fset *token.FileSet, f *ast.File) {
		for word, places := range hardWordsIn(fset, f) {
			found[word] = append(found[word], places...)
		}
	})
	for word, most := range hardWords() {
		if places := found[word]; len(places) > most {
			t.Errorf("%q is %d times in comments, more than %d; name the subject, and begin a condition with \"if\":\n%s",
				word, len(places), most, strings.Join(places, "\n"))
		}
	}
}

// hardWordsIn returns the places of the words in a file's comments. Sentences of contracts are quoted.
func hardWordsIn(fset *token.FileSet, f *ast.File) map[string][]string {
	found, words := map[string][]string{}, hardWords()
	for _, group := range f.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "// contract(") {
				continue
			}
			for _, word := range strings.FieldsFunc(strings.ToLower(c.Text), func(r rune) bool { return !unicode.IsLetter(r) }) {
				if _, hard := words[word]; hard {
					found[word] = append(found[word], fset.Position(c.Pos()).String())
				}
			}
		}
	}
	return found
}

func TestAHardWordIsFound(t *testing.T) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", "// Package p is for whoever asks.\npackage p\n\n// contract(x): where\nvar nobody = 1\n", parser.ParseComments)
	kit.OK(t, err)
	if found := hardWordsIn(fset, f); len(found) != 1 || len(found["whoever"]) != 1 {
		t.Error(found)
	}
}
