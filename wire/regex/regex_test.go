package regex_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

// An invalid expression must be found before its first use.
func TestEveryLazyExpressionCompiles(t *testing.T) {
	found := 0
	kit.OK(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") && path != "../..":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for expr := range lazyIn(file) {
			found++
			kit.Check(t, kit.Err(regexp.Compile(expr)), path)
		}
		return nil
	}))
	if found < 20 {
		t.Errorf("found %d expressions: the test does not see them", found)
	}
}

// lazyIn yields the expressions of a file that are literals, or concatenations of literals.
func lazyIn(file *ast.File) func(func(string) bool) {
	return func(yield func(string) bool) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "Lazy" {
				return true
			}
			if text, ok := written(call.Args[0]); ok {
				return yield(text)
			}
			return true
		})
	}
}

func written(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, ok := written(e.X)
		right, also := written(e.Y)
		return left + right, ok && also
	}
	return "", false
}
