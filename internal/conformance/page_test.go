package conformance

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Claim is a test's claim to prove a line of a contract.
type Claim struct {
	Protocol string
	Line     string
	Test     string // the function
	File     string // slash-separated, from the root
}

var claim = regexp.MustCompile(`^//\s*contract\((\w+)\):\s*(.+?)\s*$`)

// Claims collects the claims of all tests below root, in the order of files and lines.
func Claims(root string) ([]Claim, error) {
	var claims []Claim
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() &&
			(d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		found, err := inFile(root, path)
		claims = append(claims, found...)
		return err
	})
	return claims, err
}

func inFile(root, path string) ([]Claim, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	var claims []Claim
	for _, group := range file.Comments {
		for _, c := range group.List {
			if m := claim.FindStringSubmatch(c.Text); m != nil {
				claims = append(claims, Claim{m[1], m[2], testAt(file, c.Pos()), filepath.ToSlash(rel)})
			}
		}
	}
	return claims, nil
}

// testAt returns the function that a comment is in or above.
func testAt(file *ast.File, at token.Pos) string {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if ok && at <= f.End() && (f.Doc != nil && at >= f.Doc.Pos() || at >= f.Pos()) {
			return f.Name.Name
		}
	}
	return ""
}

// A Contract lists what must be proven of one protocol.
type Contract struct {
	Protocol string
	Lines    []string
	Differs  []string // intended differences from the contract, and additions to it
}

//go:embed contracts/*.txt
var lists embed.FS

// Contracts reads the lists.
func Contracts() ([]Contract, error) {
	entries, err := lists.ReadDir("contracts")
	if err != nil {
		return nil, err
	}
	var contracts []Contract
	for _, e := range entries {
		b, err := lists.ReadFile("contracts/" + e.Name())
		if err != nil {
			return nil, err
		}
		c := Contract{Protocol: strings.TrimSuffix(e.Name(), ".txt")}
		for line := range strings.Lines(string(b)) {
			line = strings.TrimSpace(line)
			if differs, ok := strings.CutPrefix(line, "- "); ok {
				c.Differs = append(c.Differs, differs)
			} else if line != "" && !strings.HasPrefix(line, "# ") {
				c.Lines = append(c.Lines, line)
			}
		}
		contracts = append(contracts, c)
	}
	return contracts, nil
}

// proves reports whether the claim contains a line, regardless of spacing.
func (cl Claim) proves(line string) bool {
	return strings.Contains(strings.Join(strings.Fields(cl.Line), " "), strings.Join(strings.Fields(line), " "))
}

// Proof maps each line of a contract to the tests that prove it; a line without any is missing from the map.
func (c Contract) Proof(claims []Claim) map[string][]Claim {
	proof := map[string][]Claim{}
	for _, line := range c.Lines {
		for _, cl := range claims {
			if cl.Protocol == c.Protocol && cl.proves(line) {
				proof[line] = append(proof[line], cl)
			}
		}
	}
	return proof
}

// Page writes docs/conformance.md.
func Page(contracts []Contract, claims []Claim) []byte {
	var b bytes.Buffer
	b.WriteString("# Conformance\n\nEach line of the contracts, and the tests that prove it. This page is written " +
		"by\n`go test ./internal/conformance -update` from the comments of the tests; a test fails when it is stale " +
		"or\nwhen a line has no proof.\n")
	for _, c := range contracts {
		fmt.Fprintf(&b, "\n## %s\n\n| line of the contract | proven by |\n|---|---|\n", c.Protocol)
		proof := c.Proof(claims)
		for _, line := range c.Lines {
			fmt.Fprintf(&b, "| %s | %s |\n", cell(line), tests(proof[line]))
		}
		for _, cl := range claims { // claims beyond the list: fields, methods and notes from the field
			if cl.Protocol == c.Protocol && !slices.ContainsFunc(c.Lines, cl.proves) {
				fmt.Fprintf(&b, "| %s | %s |\n", cell(cl.Line), tests([]Claim{cl}))
			}
		}
		fmt.Fprintf(&b, "\nWhat differs on purpose:\n\n- %s\n", strings.Join(c.Differs, "\n- "))
	}
	return b.Bytes()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func tests(claims []Claim) string {
	slices.SortStableFunc(claims, func(a, b Claim) int { return cmp.Compare(a.File+a.Test, b.File+b.Test) })
	var names []string
	for _, cl := range claims {
		name := fmt.Sprintf("[%s](../%s)", cl.Test, cl.File)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
