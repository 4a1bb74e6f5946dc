package code

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"toolpost/codesearch/meaning"
	"toolpost/codesearch/split"
	"toolpost/codesearch/symbol"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// maxManifests is how many manifests of a codebase are read.
const maxManifests = 1000

// dependencies are what one file says that it needs.
type dependencies struct {
	Path         string              `json:"path"`
	Ecosystem    string              `json:"ecosystem,omitempty"` // of a manifest
	Module       string              `json:"module,omitempty"`
	Dependencies []symbol.Dependency `json:"dependencies,omitempty"`
	Imports      []imported          `json:"imports,omitempty"` // of a source
	Error        string              `json:"error,omitempty"`
}

// imported is one import, with the file or folder that it means where that is in the codebase.
type imported struct {
	symbol.Import
	Path string `json:"path,omitempty"`
}

func getDependenciesSpec() *tool.Spec {
	return &tool.Spec{
		Name:  "getDependencies",
		Title: "Say what a project or file depends on",
		Description: "Without a path, or for a folder, gives what its manifests ask for (go.mod, package.json, pyproject.toml, requirements*.txt, Cargo.toml, Gemfile, " +
			"*.gemspec, mix.exs, pom.xml); for a source file, what it imports, with the path of what is in the codebase.",
		Aliases: []string{"deps.get"},
		Timeout: searchTimeout,
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {` + symbolTargets + `
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "type": "array",
  "items": {
    "type": "object",
    "properties": {
      "path": {"type": "string"},
      "ecosystem": {"type": "string"},
      "module": {"type": "string", "description": "What the project calls itself."},
      "dependencies": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "version": {"type": "string"}, "scope": {"type": "string"}}, "required": ["name"]}},
      "imports": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "line": {"type": "integer"}, "path": {"type": "string"}}, "required": ["name", "line"]}},
      "error": {"type": "string", "description": "Why the manifest could not be read."}
    },
    "required": ["path"]
  }
}`),
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}

func dependencyGraphSpec() *tool.Spec {
	return &tool.Spec{
		Name:  "dependencyGraph",
		Title: "Show who depends on whom",
		Description: "Gives the folders of a codebase, or with level file its files, and what each imports: edges from the one that imports to the one that is imported. " +
			"What is not in the codebase is external and listed with external true.",
		Aliases: []string{"deps.graph"},
		Timeout: searchTimeout,
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "level": {"enum": ["folder", "file"], "default": "folder", "description": "What the nodes are."},
    "external": {"type": "boolean", "default": false, "description": "Also give what is not in the codebase."},` + symbolTargets + `
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "nodes": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}, "external": {"type": "boolean"}}, "required": ["id"]}},
    "edges": {"type": "array", "items": {"type": "object", "properties": {"from": {"type": "string"}, "to": {"type": "string"}, "count": {"type": "integer", "description": "How many imports it stands for."}}, "required": ["from", "to", "count"]}}
  },
  "required": ["nodes", "edges"]
}`),
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}

// project learns what is needed to resolve the imports of a codebase. Only what the call may see is in it.
func project(w *within, x *meaning.Index) symbol.Project {
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
func (w *within) visible(rel string) bool {
	return w.filter.scope == nil || w.filter.scope.Path(w.root.Dir+"/"+rel, false) == nil
}

func (t *Tools) getDependencies(r *request, a symbolArgs) (*tool.Result, error) {
	if err := a.check(false); err != nil {
		return nil, err
	}
	found := []dependencies{}
	err := eachTarget(r.view, a.codebase(), a.Path, func(at target) error {
		some, err := t.dependenciesOf(r, at)
		found = append(found, some...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer(found, a.Limit, "files with dependencies")
}

func (t *Tools) dependenciesOf(r *request, at target) ([]dependencies, error) {
	w, err := t.within(r, at, &workspace.Globs{})
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
		return []dependencies{manifest(at.path, src)}, nil
	}
	x, _, err := t.meanings.fresh(r, t, at.root)
	if x == nil {
		return nil, err
	}
	p, l := project(w, x), split.LanguageOf(at.rel)
	d := dependencies{Path: at.path}
	for _, i := range symbol.Imports(l, src) {
		one := imported{Import: i}
		if in := p.Resolve(l, at.rel, i.Name); in != "" {
			one.Path = at.home + in
		}
		d.Imports = append(d.Imports, one)
	}
	return []dependencies{d}, nil
}

func manifest(shown string, src []byte) dependencies {
	m, err := symbol.ReadManifest(path.Base(shown), src)
	if err != nil {
		return dependencies{Path: shown, Error: err.Error()}
	}
	return dependencies{Path: shown, Ecosystem: m.Ecosystem, Module: m.Module, Dependencies: m.Dependencies}
}

// manifests reads those below a folder.
func manifests(r *request, w *within) ([]dependencies, error) {
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
	var all []dependencies
	for _, rel := range rels {
		if src, err := w.read(rel); err == nil {
			all = append(all, manifest(w.shown(rel), src))
		}
	}
	return all, nil
}

type graphArgs struct {
	symbolArgs
	Level    string `json:"level"`
	External bool   `json:"external"`
}

type graphNode struct {
	ID       string `json:"id"`
	External bool   `json:"external,omitzero"`
}

type graphEdge struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Count int    `json:"count"`
}

// A graph is who depends on whom.
type graph struct {
	Nodes []graphNode `json:"nodes"`
	Edges []graphEdge `json:"edges"`
}

func (t *Tools) dependencyGraph(r *request, a graphArgs) (*tool.Result, error) {
	if err := a.check(false); err != nil {
		return nil, err
	}
	nodes, edges := map[graphNode]bool{}, map[[2]string]int{}
	err := eachTarget(r.view, a.codebase(), a.Path, func(at target) error { return t.addGraph(r, a, at, nodes, edges) })
	if err != nil {
		return nil, err
	}
	return answerGraph(nodes, edges)
}

func (t *Tools) addGraph(r *request, a graphArgs, at target, nodes map[graphNode]bool, edges map[[2]string]int) error {
	w, err := t.within(r, at, &workspace.Globs{})
	if err != nil {
		return err
	}
	x, _, err := t.meanings.fresh(r, t, at.root)
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
		if err := r.Err(); err != nil {
			return err
		}
		from := w.node(rel, a.Level)
		for _, to := range w.imports(p, rel, a.Level) {
			if to.ID != from && (!to.External || a.External) {
				nodes[graphNode{ID: from}], nodes[to] = true, true
				edges[[2]string{from, to.ID}]++
			}
		}
	}
	return nil
}

// imports gives the nodes that a file imports.
func (w *within) imports(p symbol.Project, rel, level string) []graphNode {
	src, err := w.read(rel)
	if err != nil {
		return nil
	}
	var list []graphNode
	l := split.LanguageOf(rel)
	for _, i := range symbol.Imports(l, src) {
		in := p.Resolve(l, rel, i.Name)
		switch {
		case in == "":
			list = append(list, graphNode{ID: i.Name, External: true})
		case l == split.Go: // it imports folders
			list = append(list, graphNode{ID: w.home + in})
		default:
			list = append(list, graphNode{ID: w.node(in, level)})
		}
	}
	return list
}

// node is the node of a file.
func (w *within) node(rel, level string) string {
	if level == "file" {
		return w.home + rel
	}
	return w.home + path.Dir(rel)
}

func answerGraph(nodes map[graphNode]bool, edges map[[2]string]int) (*tool.Result, error) {
	g := graph{Nodes: []graphNode{}, Edges: []graphEdge{}}
	g.Nodes = slices.SortedFunc(maps.Keys(nodes), func(x, y graphNode) int { return strings.Compare(x.ID, y.ID) })
	for e, n := range edges {
		g.Edges = append(g.Edges, graphEdge{e[0], e[1], n})
	}
	slices.SortFunc(g.Edges, func(x, y graphEdge) int { return cmp.Or(strings.Compare(x.From, y.From), strings.Compare(x.To, y.To)) })
	output, err := strictjson.Marshal(g)
	return &tool.Result{OK: true, Output: output, Summary: fmt.Sprintf("%d nodes, %d edges", len(g.Nodes), len(g.Edges))}, err
}
