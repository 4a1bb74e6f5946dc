package codesearch

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"toolpost/codesearch/meaning"
	"toolpost/codesearch/split"
	"toolpost/codesearch/symbol"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// maxManifests is how many manifests of a codebase are read.
const maxManifests = 1000

// Dependencies are what one file says that it needs.
type Dependencies struct {
	Path         string              `json:"path"`
	Ecosystem    string              `json:"ecosystem,omitempty"` // of a manifest
	Module       string              `json:"module,omitempty" doc:"What the project calls itself."`
	Dependencies []symbol.Dependency `json:"dependencies,omitempty"`
	Imports      []Import            `json:"imports,omitempty"` // of a source
	Error        string              `json:"error,omitempty" doc:"Why the manifest could not be read."`
}

// An Import has the path of the file or folder that it means, where that is in the codebase.
type Import struct {
	symbol.Import
	Path string `json:"path,omitempty"`
}

// project learns what is needed to resolve the imports of a codebase. Only what the call may see is in it.
func project(w *scoped, x *meaning.Index) symbol.Project {
	files := map[string]bool{".": true}
	for _, rel := range x.FilesWith("") {
		if !w.visible(rel) {
			continue
		}
		for p := rel; !files[p]; p = path.Dir(p) {
			files[p] = true
		}
	}
	p := symbol.Project{Has: func(rel string) bool { return files[rel] }}
	if src, err := w.read("go.mod"); err == nil {
		if m, err := symbol.ReadManifest("go.mod", src); err == nil {
			p.Module = m.Module
		}
	}
	return p
}

// visible reports whether the call may read a file of the codebase, wherever the target is.
func (w *scoped) visible(rel string) bool {
	return w.filter.scope == nil || w.filter.scope.Path(w.root.Dir+"/"+rel, false) == nil
}

// Dependencies returns what the manifests of a folder ask for, or what a source file imports. More says that there are
// others beyond the limit; 0 stands for 100.
func (l *Library) Dependencies(
	ctx context.Context, c *tool.Call, w Where, limit int,
) (found []Dependencies, more bool, err error) {
	q := SymbolQuery{Where: w, Limit: limit}
	if err := q.check(false); err != nil {
		return nil, false, err
	}
	r := l.ask(ctx, c)
	err = eachTarget(r.view, w, func(at target) error {
		some, err := l.dependenciesOf(r, at)
		found = append(found, some...)
		return err
	})
	return capped(found, q.Limit, err)
}

func (l *Library) dependenciesOf(r *asked, at target) ([]Dependencies, error) {
	w, err := l.enter(r, at, &workspace.Globs{})
	if err != nil {
		return nil, err
	}
	if folder, err := at.view.OpenDir(at.name); err == nil {
		folder.Close()
		return manifests(r, w)
	}
	src, err := w.read(at.rel)
	if err != nil {
		return nil, err
	}
	if symbol.IsManifest(at.rel) {
		return []Dependencies{manifest(at.path, src)}, nil
	}
	x, _, err := l.meanings.fresh(r, l, at.root)
	if x == nil {
		return nil, err
	}
	p, lang := project(w, x), split.LanguageOf(at.rel)
	d := Dependencies{Path: at.path}
	for _, i := range symbol.Imports(lang, src) {
		one := Import{Import: i}
		if in := p.Resolve(lang, at.rel, i.Name); in != "" {
			one.Path = at.home + in
		}
		d.Imports = append(d.Imports, one)
	}
	return []Dependencies{d}, nil
}

func manifest(shown string, src []byte) Dependencies {
	m, err := symbol.ReadManifest(path.Base(shown), src)
	if err != nil {
		return Dependencies{Path: shown, Error: err.Error()}
	}
	return Dependencies{Path: shown, Ecosystem: m.Ecosystem, Module: m.Module, Dependencies: m.Dependencies}
}

// manifests reads those below a folder.
func manifests(r *asked, w *scoped) ([]Dependencies, error) {
	var rels []string
	err := w.view.Walk(r, w.name, workspace.WalkOptions{Recursive: true, Ignore: true}, func(e *workspace.Entry) error {
		if e.Type == 0 && symbol.IsManifest(e.Name) && len(rels) < maxManifests {
			rels = append(rels, e.Rel())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all []Dependencies
	for _, rel := range rels {
		if src, err := w.read(rel); err == nil {
			all = append(all, manifest(w.shown(rel), src))
		}
	}
	return all, nil
}

// A Node is a folder or a file, or what is imported and not in the codebase.
type Node struct {
	ID       string `json:"id"`
	External bool   `json:"external,omitzero"`
}

// An Edge leads from what imports to what is imported.
type Edge struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Count int    `json:"count" doc:"How many imports it stands for."`
}

// A Graph is who depends on whom.
type Graph struct {
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
}

// A GraphQuery asks who depends on whom.
type GraphQuery struct {
	Where
	Files    bool // the nodes are files, not folders
	External bool // also what is not in the codebase
}

// graphing is a graph in the making.
type graphing struct {
	*asked
	library *Library
	q       GraphQuery
	nodes   map[Node]bool
	edges   map[[2]string]int
}

// Graph returns who depends on whom.
func (l *Library) Graph(ctx context.Context, c *tool.Call, q GraphQuery) (Graph, error) {
	g := &graphing{asked: l.ask(ctx, c), library: l, q: q, nodes: map[Node]bool{}, edges: map[[2]string]int{}}
	if err := eachTarget(g.view, q.Where, g.add); err != nil {
		return Graph{}, err
	}
	return g.sorted(), nil
}

func (g *graphing) add(at target) error {
	w, err := g.library.enter(g.asked, at, &workspace.Globs{})
	if err != nil {
		return err
	}
	x, _, err := g.library.meanings.fresh(g.asked, g.library, at.root)
	if x == nil {
		return err
	}
	p := project(w, x)
	files := 0
	for _, rel := range x.FilesWith("") {
		if !w.wants(rel) {
			continue
		}
		if files++; files > maxSymbolFiles {
			return nil
		}
		if err := g.Err(); err != nil {
			return err
		}
		from := w.node(rel, g.q.Files)
		for _, to := range w.imports(p, rel, g.q.Files) {
			if to.ID != from && (!to.External || g.q.External) {
				g.nodes[Node{ID: from}], g.nodes[to] = true, true
				g.edges[[2]string{from, to.ID}]++
			}
		}
	}
	return nil
}

// imports returns the nodes that a file imports.
func (w *scoped) imports(p symbol.Project, rel string, files bool) []Node {
	src, err := w.read(rel)
	if err != nil {
		return nil
	}
	var list []Node
	l := split.LanguageOf(rel)
	for _, i := range symbol.Imports(l, src) {
		in := p.Resolve(l, rel, i.Name)
		switch {
		case in == "":
			list = append(list, Node{ID: i.Name, External: true})
		case l == split.Go: // it imports folders
			list = append(list, Node{ID: w.home + in})
		default:
			list = append(list, Node{ID: w.node(in, files)})
		}
	}
	return list
}

// node is the node of a file.
func (w *scoped) node(rel string, files bool) string {
	if files {
		return w.home + rel
	}
	return w.home + path.Dir(rel)
}

func (g *graphing) sorted() Graph {
	out := Graph{Nodes: []Node{}, Edges: []Edge{}}
	out.Nodes = slices.AppendSeq(out.Nodes, maps.Keys(g.nodes))
	slices.SortFunc(out.Nodes, func(x, y Node) int { return strings.Compare(x.ID, y.ID) })
	for e, n := range g.edges {
		out.Edges = append(out.Edges, Edge{e[0], e[1], n})
	}
	slices.SortFunc(out.Edges, func(x, y Edge) int {
		return cmp.Or(strings.Compare(x.From, y.From), strings.Compare(x.To, y.To))
	})
	return out
}
