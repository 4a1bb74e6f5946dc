package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

// notOurs returns messages of others: those of the kernel and of Python.
func notOurs() []string {
	return []string{"Read-only file system", "Permission denied", "No such file or directory", "ModuleNotFoundError"}
}

// Readers search the page for the program's messages. A message that no longer exists is useless, and misleads.
func TestEveryMessageOfTheTroubleshootingPageIsInTheProgram(t *testing.T) {
	page := kit.Must(os.ReadFile("troubleshooting.md"))(t)
	texts := textsOf(t, "..")
	quoted := 0
	for _, m := range regexp.MustCompile("(?m)^\\| (`.+?) \\|").FindAllStringSubmatch(string(page), -1) {
		for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[1], -1) {
			message := code[1]
			if strings.HasPrefix(message, "toolpost ") || isOneOf(message, notOurs()) {
				continue
			}
			quoted++
			if !said(message, texts) {
				t.Errorf("no text of the program is like %q; correct the page", message)
			}
		}
	}
	if quoted < 40 {
		t.Errorf("only %d messages were found on the page", quoted)
	}
}

func isOneOf(s string, all []string) bool {
	for _, one := range all {
		if one == s {
			return true
		}
	}
	return false
}

// said reports whether a text has all parts of a message, in order. The page writes ' for the program's backquotes, which
// Markdown cannot have there, and ... for the variable parts.
func said(message string, texts []string) bool {
	message = strings.ReplaceAll(message, "'", "`")
	for _, text := range texts {
		rest, all := text, true
		for part := range strings.SplitSeq(message, "...") {
			_, after, ok := strings.Cut(rest, strings.Trim(part, `"`))
			rest, all = after, all && ok
		}
		if all {
			return true
		}
	}
	return false
}

// textsOf reads the texts of a program: its literals, concatenated if they are added together. Verbs such as %q are
// variable parts.
func textsOf(t *testing.T, root string) (texts []string) {
	t.Helper()
	verb := regexp.MustCompile(`%[-+#.0-9]*[a-z]`)
	kit.OK(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "docs" || len(d.Name()) > 2 && d.Name()[0] == '.'):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := textOf(n)
			if ok {
				texts = append(texts, verb.ReplaceAllString(text, "\x00"))
			}
			return !ok
		})
		return nil
	}))
	return texts
}

// textOf returns the text of a literal, or of several that are added together; an operand that is not a literal counts as
// a variable part.
func textOf(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(n.Value)
		return text, err == nil && n.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := textOf(n.X)
		right, isRight := textOf(n.Y)
		if !isLeft {
			left = "\x00"
		}
		if !isRight {
			right = "\x00"
		}
		return left + right, n.Op == token.ADD && (isLeft || isRight)
	}
	return "", false
}
