package codesearch

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"toolpost/codesearch/split"
	"toolpost/codesearch/symbol"
	"toolpost/host/workspace"
)

// maxManifests is how many manifests of one codebase are read.
const maxManifests = 1000

// Dependencies are the dependencies that one file declares.
type Dependencies struct {
	Path string `json:"path"`
	symbol.Manifest
	Imports []symbol.Import `json:"imports,omitempty"` // of a source file
	Error   string          `json:"error,omitempty" doc:"Why the manifest could not be read."`
}

// project returns what resolves the imports of a codebase, limited to the files that the call may see.
func project(w *scoped) symbol.Project {
	files := map[string]bool{".": true}
	for _, rel := range w.index.FilesWith("") {
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

// Dependencies returns what the manifests of a folder require, or what a source file imports. More reports that there are
// others beyond the limit; a limit of 0 means 100.
func (l *Library) Dependencies(
	ctx context.Context, c Call, q Limited,
) (found []Dependencies, more bool, err error) {
	if err := q.check("", false); err != nil {
		return nil, false, err
	}
	r := l.ask(ctx, c)
	err = eachTarget(r.view, q.Where, func(at target) error {
		some, err := l.dependenciesOf(r, at)
		found = append(found, some...)
		return err
	})
	return capped(found, q.Limit, err)
}

func (l *Library) dependenciesOf(r *asked, at target) ([]Dependencies, error) {
	isFolder, err := l.enter(r, at)
	if err != nil {
		return nil, err
	}
	w := &scoped{target: at, filter: newFilter(r, at, &workspace.Globs{})}
	if isFolder {
		return manifests(r, w)
	}
	src, err := w.read(at.rel)
	if err != nil {
		return nil, err
	}
	if symbol.IsManifest(at.rel) {
		return []Dependencies{manifest(at.path, src)}, nil
	}
	if w.index, _, err = l.meanings.fresh(r, l, at.root); w.index == nil {
		return nil, err
	}
	imports := project(w).Imports(at.rel, src)
	for i := range imports {
		if imports[i].Path != "" {
			imports[i].Path = at.home + imports[i].Path
		}
	}
	return []Dependencies{{Path: at.path, Imports: imports}}, nil
}

func manifest(shown string, src []byte) Dependencies {
	m, err := symbol.ReadManifest(path.Base(shown), src)
	if err != nil {
		return Dependencies{Path: shown, Error: err.Error()}
	}
	return Dependencies{Path: shown, Manifest: *m}
}

// manifests reads the manifests below a folder.
func manifests(r *asked, w *scoped) ([]Dependencies, error) {
	var all []Dependencies
	err := w.view.Walk(r, w.name, workspace.WalkOptions{Recursive: true, Ignore: true}, func(e *workspace.Entry) error {
		if e.Type != 0 || !symbol.IsManifest(e.Name) || len(all) == maxManifests {
			return nil
		}
		if src, err := w.read(e.Rel()); err == nil {
			all = append(all, manifest(w.shown(e.Rel()), src))
		}
		return nil
	})
	return all, err
}

// A Node is a folder or a file of the codebase, or an import from outside it.
type Node struct {
	ID       string `json:"id"`
	External bool   `json:"external,omitzero"`
}

// An Edge leads from an importer to its import.
type Edge struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Count int    `json:"count" doc:"How many imports it stands for."`
}

// A Graph holds the dependencies between nodes.
type Graph struct {
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
}

// A GraphQuery asks for a dependency graph.
type GraphQuery struct {
	Level    string `json:"level" schema:"enum=folder|file default=folder" doc:"What the nodes are."`
	External bool   `json:"external" schema:"default=false" doc:"Also give what is not in the codebase."`
	Limited
}

// graphing is a graph under construction.
type graphing struct {
	*asked
	library *Library
	q       GraphQuery
	nodes   map[Node]bool
	edges   map[[2]string]int
}

// Graph returns the dependency graph of the files that the query names.
func (l *Library) Graph(ctx context.Context, c Call, q GraphQuery) (Graph, error) {
	g := &graphing{asked: l.ask(ctx, c), library: l, q: q, nodes: map[Node]bool{}, edges: map[[2]string]int{}}
	if err := eachTarget(g.view, q.Where, g.add); err != nil {
		return Graph{}, err
	}
	return g.sorted(), nil
}

func (g *graphing) add(at target) error {
	w, err := g.library.open(g.asked, at, &workspace.Globs{})
	if w == nil {
		return err
	}
	p := project(w)
	for rel, src := range w.files(w.index.FilesWith("")) {
		if err := g.Err(); err != nil {
			return err
		}
		from := g.node(w, rel)
		for _, i := range p.Imports(rel, src) {
			to := Node{ID: i.Name, External: i.Path == ""}
			switch {
			case to.External:
			case split.LanguageOf(rel) == split.Go: // Go imports folders
				to.ID = w.home + i.Path
			default:
				to.ID = g.node(w, i.Path)
			}
			if to.ID != from && (!to.External || g.q.External) {
				g.nodes[Node{ID: from}], g.nodes[to] = true, true
				g.edges[[2]string{from, to.ID}]++
			}
		}
	}
	return nil
}

// node returns the ID of a file's node.
func (g *graphing) node(w *scoped, rel string) string {
	if g.q.Level == "file" {
		return w.home + rel
	}
	return w.home + path.Dir(rel)
}

func (g *graphing) sorted() Graph {
	out := Graph{Nodes: slices.AppendSeq([]Node{}, maps.Keys(g.nodes)), Edges: []Edge{}}
	slices.SortFunc(out.Nodes, func(x, y Node) int { return strings.Compare(x.ID, y.ID) })
	for e, n := range g.edges {
		out.Edges = append(out.Edges, Edge{e[0], e[1], n})
	}
	slices.SortFunc(out.Edges, func(x, y Edge) int {
		return cmp.Or(strings.Compare(x.From, y.From), strings.Compare(x.To, y.To))
	})
	return out
}
