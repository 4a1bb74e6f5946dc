package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/protocol/all"
)

// designPage describes the chain, the protocols, the doors and the floors in tables, which are compared with the code.
const designPage = "../../docs/02-design.md"

// rowsOf returns the cells of the table below a heading of a page, without its head.
func rowsOf(page, heading string) (rows [][]string) {
	_, section, _ := strings.Cut(page, "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows[min(2, len(rows)):]
}

func design(t *testing.T, heading string) [][]string {
	t.Helper()
	page := kit.Must(os.ReadFile(designPage))(t)
	rows := rowsOf(string(page), heading)
	if len(rows) == 0 {
		t.Fatalf("%s has no table below %q", designPage, heading)
	}
	return rows
}

func column(rows [][]string, n int) (cells []string) {
	for _, row := range rows {
		cells = append(cells, row[n])
	}
	return cells
}

var code = regexp.MustCompile("`([^`]+)`")

// codeIn lists what is marked as code in a cell.
func codeIn(cell string) (names []string) {
	for _, m := range code.FindAllStringSubmatch(cell, -1) {
		names = append(names, m[1])
	}
	return names
}

func TestDesignPageListsTheChain(t *testing.T) {
	names := column(design(t, "The chain"), 0)
	for i := range names { // rows of a stage with several places say which one they mean: "redact (inner)"
		names[i], _, _ = strings.Cut(names[i], " (")
	}
	for _, wrong := range chainFaults(chainOf(t), names) {
		t.Errorf("%s, the chain: %s", designPage, wrong)
	}
}

// chainFaults compares the rows of the page with the chain. A stage that has several places may have one row for all of
// them; the rows have the order of the chain.
func chainFaults(chain, rows []string) (faults []string) {
	for _, name := range chain {
		if !slices.Contains(rows, name) && !slices.Contains(faults, name+" has no row") {
			faults = append(faults, name+" has no row")
		}
	}
	left := chain
	for _, name := range rows {
		at := slices.Index(left, name)
		switch {
		case at >= 0:
			left = left[at+1:]
		case slices.Contains(chain, name):
			faults = append(faults, name+" is not in the order of the chain")
		default:
			faults = append(faults, name+" is not a stage")
		}
	}
	return faults
}

func TestWrongRowsOfTheChainAreFound(t *testing.T) {
	chain := []string{"audit", "resolve", "audit", "policy", "redact"}
	for rows, want := range map[string]string{
		"audit resolve policy redact":             "",
		"audit resolve audit policy redact":       "",
		"audit resolve redact":                    "policy has no row",
		"resolve policy redact":                   "audit has no row",
		"audit policy resolve redact":             "resolve is not in the order of the chain",
		"audit resolve policy redact redact":      "redact is not in the order of the chain",
		"audit resolve policy approval redact":    "approval is not a stage",
		"audit resolve audit audit policy redact": "audit is not in the order of the chain",
	} {
		kit.Equal(t, strings.Join(chainFaults(chain, strings.Fields(rows)), "; "), want, rows)
	}
}

// chainOf reads the names of the places off function chain of package engine: those before resolve, resolve, and those of
// the tool.
func chainOf(t *testing.T) []string {
	t.Helper()
	files := kit.Must(filepath.Glob("../../engine/*.go"))(t)
	constants, lists := map[string]string{}, map[string]*ast.CompositeLit{}
	for _, name := range files {
		f := kit.Must(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution))(t)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "chain" && n.Recv == nil {
					maps.Copy(lists, listsIn(n))
				}
			case *ast.ValueSpec:
				for i, value := range n.Values {
					if text, ok := textOf(value, nil); ok {
						constants[n.Names[i].Name] = text
					}
				}
			}
			return true
		})
	}
	if len(lists["outer"].Elts) == 0 || len(lists["ofTool"].Elts) == 0 {
		t.Fatal("function chain of package engine has no lists outer and ofTool")
	}
	return slices.Concat(placesIn(t, lists["outer"], constants), []string{"resolve"}, placesIn(t, lists["ofTool"], constants))
}

// listsIn returns the composite literals that a function assigns, by the names of their variables.
func listsIn(fn *ast.FuncDecl) map[string]*ast.CompositeLit {
	lists := map[string]*ast.CompositeLit{"outer": {}, "ofTool": {}}
	ast.Inspect(fn, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == 1 && len(a.Rhs) == 1 {
			name, isName := a.Lhs[0].(*ast.Ident)
			list, isList := a.Rhs[0].(*ast.CompositeLit)
			if isName && isList {
				lists[name.Name] = list
			}
		}
		return true
	})
	return lists
}

// placesIn returns the first argument of each element: a place is made by a function that takes its name.
func placesIn(t *testing.T, list *ast.CompositeLit, constants map[string]string) (names []string) {
	t.Helper()
	for _, e := range list.Elts {
		call, ok := e.(*ast.CallExpr)
		for ok && len(call.Args) == 1 { // a function that changes a place
			inner, is := call.Args[0].(*ast.CallExpr)
			if !is {
				break
			}
			call = inner
		}
		if !ok || len(call.Args) == 0 {
			t.Fatalf("an element of the chain is not a call with the name of its place: %T", e)
		}
		name, ok := textOf(call.Args[0], constants)
		if !ok {
			t.Fatalf("the name of a place of the chain is neither a string nor a constant: %T", call.Args[0])
		}
		names = append(names, name)
	}
	return names
}

func textOf(e ast.Expr, constants map[string]string) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		text, ok = constants[e.Name]
	}
	return text, ok
}

// A spoken is what the page says of a protocol.
type spoken struct {
	doors string // in a config
	as    bool   // on stdin and stdout
}

func TestDesignPageListsTheProtocols(t *testing.T) {
	want, rows := map[string]spoken{}, map[string]spoken{}
	for _, p := range all.Protocols() {
		want[p.Name] = spoken{strings.Join(doorNames(p.Doors), ", "), p.Stdio != nil}
	}
	for _, name := range doorsAlone() {
		want[name] = spoken{doors: name}
	}
	for _, row := range design(t, "Protocols") {
		rows[strings.Trim(row[0], "`")] = spoken{strings.Join(codeIn(row[2]), ", "), row[3] == "yes"}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got, ok := rows[name]; !ok {
			t.Errorf("%s: protocol %s has no row", designPage, name)
		} else if got != want[name] {
			t.Errorf("%s: protocol %s has the doors %+v, want %+v", designPage, name, got, want[name])
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s: protocol/all has no protocol %s", designPage, name)
	}
}

func doorNames(doors []all.Door) (names []string) {
	for _, d := range doors {
		names = append(names, d.Name)
	}
	return names
}

// doorsAlone lists the doors of protocols that no source speaks.
func doorsAlone() (names []string) {
	var known []string
	for _, p := range all.Protocols() {
		known = append(known, doorNames(p.Doors)...)
	}
	for _, d := range all.DoorParts() {
		if !slices.Contains(known, d.Name) {
			names = append(names, d.Name)
		}
	}
	return names
}

// How a door that stands alone is opened cannot be seen from outside its package: it may be in either of the first two rows.
func TestDesignPageListsTheDoors(t *testing.T) {
	rows := design(t, "Doors")
	if len(rows) != 3 {
		t.Fatalf("%s: %d kinds of doors, want 3", designPage, len(rows))
	}
	var mounted, alone, as []string
	for _, p := range all.Protocols() {
		for _, d := range p.Doors {
			if d.Mount != nil {
				mounted = append(mounted, d.Name)
			} else {
				alone = append(alone, d.Name)
			}
		}
		if p.Stdio != nil {
			as = append(as, p.Name)
		}
	}
	own := strings.Split(rows[1][2], ", ")
	for _, name := range doorsAlone() {
		if slices.Contains(own, name) {
			alone = append(alone, name)
		} else {
			mounted = append(mounted, name)
		}
	}
	for i, want := range [][]string{mounted, alone, as} {
		got := strings.Split(rows[i][2], ", ")
		slices.Sort(got)
		slices.Sort(want)
		kit.EqualSlices(t, got, want, "%s: doors %s", designPage, rows[i][0])
	}
}

// The page begins with the highest floor, and floors() with the lowest.
func TestDesignPageListsTheFloors(t *testing.T) {
	rows := design(t, "Floors")
	var names []string
	for _, f := range slices.Backward(floors()) {
		names = append(names, f.name)
		at := slices.Index(column(rows, 0), f.name)
		if at < 0 {
			t.Errorf("%s: floor %q has no row", designPage, f.name)
		} else if got := codeIn(rows[at][1]); !slices.Equal(got, f.rooms) {
			t.Errorf("%s: floor %q has the packages %v, want %v", designPage, f.name, got, f.rooms)
		}
	}
	kit.EqualSlices(t, column(rows, 0), names, "%s: the floors are", designPage)
}

// missingFrom lists the tests, files and packages that a guide names in code marks and that the tree does not have. Names
// with a word in capitals, such as store/NAME/, stand for others.
func missingFrom(guide, root string, tests map[string]bool) (missing []string) {
	for _, name := range codeIn(guide) {
		top, _, deep := strings.Cut(name, "/")
		_, err := os.Stat(filepath.Join(root, top))
		isPath := deep && err == nil && !strings.ContainsAny(name, " *{(") && !regexp.MustCompile(`\b[A-Z]+\b`).MatchString(name)
		if isPath {
			_, err = os.Stat(filepath.Join(root, name))
		}
		if isPath && err != nil || strings.HasPrefix(name, "Test") && name != "TestMain" && !tests[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

func TestContributingNamesWhatExists(t *testing.T) {
	tests := map[string]bool{}
	eachFile(t, 0, func(_ *token.FileSet, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				tests[fn.Name.Name] = true
			}
		}
	})
	guide := string(kit.Must(os.ReadFile("../../CONTRIBUTING.md"))(t))
	for _, name := range missingFrom(guide, "../..", tests) {
		t.Errorf("CONTRIBUTING.md names %s, which does not exist", name)
	}
	kit.Equal(t, slices.Equal(missingFrom("`TestGone` `node/gone.go` `node/own.go` `node/NAME`", "../..", tests),
		[]string{"TestGone", "node/gone.go"}), true)
}
