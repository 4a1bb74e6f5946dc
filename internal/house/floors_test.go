package house

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

// A floor is a layer of packages. A package may import packages of the floors below it, and its neighbours only if the
// floor allows it.
type floor struct {
	name    string
	rooms   []string // patterns of path.Match below the module, or a prefix with /...
	ordered bool     // a package may import the rooms that are listed before its own
	stdOnly bool     // its packages use only the standard library
}

// floors returns the layers, from the lowest up. A package is on the highest floor that has a room for it.
func floors() []floor {
	return []floor{
		{name: "tool", rooms: []string{"tool"}, stdOnly: true},
		{name: "wire", rooms: []string{
			"wire/regex", "wire/nearest", "wire/duration", "wire/bounded", "wire/sse", "wire/strictjson", "wire/schema",
			"wire/typeschema", "wire/textdiff", "wire/envelope", "wire/listing", "wire/modeltext", "wire/jsonrpc",
			"wire/packed", "wire/receipt",
		}, ordered: true},
		{name: "kernel", rooms: []string{"kernel"}},
		{name: "config", rooms: []string{"config/offlimits", "config", "examples"}, ordered: true},
		{name: "host", rooms: []string{
			"host/backoff", "host/notice", "host/broker", "host/sandbox", "host/process", "host/secret", "host/walls", "host/forks",
			"host/container", "host/spawn", "host/worker", "host/workspace/ignore", "host/workspace",
		}, ordered: true},
		{name: "model", rooms: []string{"model"}},
		{name: "identity and codesearch", rooms: []string{
			"identity/oauth", "identity/machine", "identity", "codesearch/disk", "codesearch/split", "codesearch/symbol", "codesearch/meaning",
			"codesearch/toolfind", "codesearch/grep", "codesearch/trigram", "codesearch",
		}, ordered: true},
		{name: "engine", rooms: []string{"engine", "engine/*"}},
		{name: "plan", rooms: []string{"plan", "plan/*"}, ordered: true},
		{name: "store", rooms: []string{"store/database", "store/auditlog", "store", "store/*"}, ordered: true},
		{name: "web", rooms: []string{"web", "web/*"}, ordered: true},
		{name: "fleet", rooms: []string{"fleet/certs", "fleet/invite", "fleet/roster", "fleet/outward", "fleet/membership", "fleet/spool", "fleet/bound", "fleet/lent", "fleet/late", "fleet"}, ordered: true},
		{name: "parts of namel3ss", rooms: []string{"protocol/namel3ss/appfile", "protocol/namel3ss/pack"}, ordered: true},
		{name: "protocols and built-in tools", rooms: []string{"protocol/*", "protocol/mcp/*", "builtin", "builtin/*"}},
		{name: "list of protocols", rooms: []string{"protocol/all"}},
		{name: "node", rooms: []string{"node/storage", "node/access", "node/catalogue", "node"}, ordered: true},
		{name: "measuring", rooms: []string{"bench/attempt", "bench/curves", "bench/scale"}},
		{name: "parts of the command line", rooms: []string{
			"cmd/toolpost/contexts", "cmd/toolpost/connect", "cmd/toolpost/packages", "cmd/toolpost/form", "cmd/toolpost/format", "cmd/toolpost/*",
		}, ordered: true},
		{name: "top", rooms: []string{"cmd/*", "bench/embeddings", "bench", "packaging/*"}},
	}
}

// outsideFloors returns packages outside the floors: tests import them, programs do not.
func outsideFloors() []string {
	return []string{"tool/tooltest", "store/storetest", "protocol/mcp/mcptest", "internal/...", "docs", "clients"}
}

// mayKnow lists the only importers of some packages: doors and runners cannot bypass the engine if they cannot import
// its parts.
func mayKnow() map[string][]string {
	return map[string][]string{
		"protocol/all": {"node", "node/access", "node/catalogue"}, "engine": {"node", "node/catalogue"}, "store": {"store/*", "node/storage", "node/access", "bench"},
		"store/database": {"store", "store/*"}, "store/auditlog": {"store"},
		"protocol/namel3ss/appfile": {"protocol/namel3ss", "protocol/namel3ss/pack"},
		"protocol/namel3ss/pack":    {"protocol/namel3ss", "protocol/all"},
		"protocol/mcp":              {"protocol/mcp/*"},
	}
}

// family lets a room import its own parts: engine and its stages, the built-in tools and theirs. The sides of MCP
// import what they share, built-in tools the package that defines them, and stages the package that writes for them.
func family(from, to string) bool {
	return strings.HasPrefix(to, from+"/") && slices.Contains([]string{"engine", "builtin"}, from) ||
		to == "protocol/mcp" && strings.HasPrefix(from, "protocol/mcp/") ||
		to == "builtin/define" && strings.HasPrefix(from, "builtin/") ||
		to == "engine/persist" && strings.HasPrefix(from, "engine/")
}

// measures lets bench use what tests drive: only a real browser shows how soon a page can be used, rows about PostgreSQL need a
// server of their own, and a second driver of either would be one too many.
func measures(from, to string) bool {
	return from == "bench" && (to == "internal/browser" || to == "internal/pg")
}

// before reports whether a floor lists the room of one package before that of another.
func (f floor) before(to, from string) bool {
	room := func(pkg string) int {
		return slices.IndexFunc(f.rooms, func(p string) bool { return matchAny([]string{p}, pkg) })
	}
	return room(to) < room(from)
}

func TestImportsOnlyGoDown(t *testing.T) {
	module, packages := listPackages(t)
	for _, p := range packages {
		from := roomOf(module, p.ImportPath)
		if matchAny(outsideFloors(), from) {
			continue
		}
		if floorOf(from) < 0 {
			t.Errorf("%s is on no floor; give it a place in floors()", from)
			continue
		}
		for _, imported := range p.Imports {
			kit.Equal(t, forbidden(module, from, imported), "", "%s imports %s", from, imported)
		}
	}
}

// forbidden returns why a package may not import another one, or "".
func forbidden(module, from, imported string) string {
	at := floors()[floorOf(from)]
	if imported != module && !strings.HasPrefix(imported, module+"/") {
		if at.stdOnly && strings.Contains(strings.Split(imported, "/")[0], ".") {
			return "the " + at.name + " floor uses the standard library alone"
		}
		return ""
	}
	to := roomOf(module, imported)
	if matchAny(outsideFloors(), to) && !measures(from, to) {
		return "only tests may use it"
	}
	if few, ok := mayKnow()[to]; ok && !matchAny(few, from) {
		return "only " + strings.Join(few, ", ") + " may know it"
	}
	switch f, g := floorOf(from), floorOf(to); {
	case measures(from, to):
		return ""
	case g < 0:
		return "it is on no floor"
	case g > f:
		return fmt.Sprintf("it is on a higher floor (%s over %s)", floors()[g].name, at.name)
	case g == f && at.ordered && !at.before(to, from):
		return "it is listed later among the rooms of its floor"
	case g == f && !at.ordered && !family(from, to):
		return "rooms of one floor do not import each other"
	}
	return ""
}

// floorOf returns the number of a package's floor, or -1 if it has none.
func floorOf(pkg string) int {
	for i, f := range slices.Backward(floors()) {
		if matchAny(f.rooms, pkg) {
			return i
		}
	}
	return -1
}

func matchAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "..."); ok {
			return strings.HasPrefix(pkg, prefix)
		}
		ok, _ := path.Match(p, pkg) // the patterns above are well formed
		return ok
	})
}

func roomOf(module, importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

type listed struct {
	ImportPath string
	Dir        string
	Doc        string
	Imports    []string // of the files that are not tests
	Module     struct{ Path, Dir string }
}

// listPackages asks the go command for every package of the module.
func listPackages(t *testing.T) (module string, packages []listed) {
	t.Helper()
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Doc,Imports,Module", "toolpost/...").Output()
	kit.OK(t, err, "go list")
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages[0].Module.Path, packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// The rule itself must work: each of these imports goes the wrong way.
func TestWrongImportsAreFound(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"tool", "toolpost/wire/strictjson", false},
		{"tool", "golang.org/x/sys/unix", false},
		{"tool", "encoding/json", true},
		{"host/process", "toolpost/engine", false},
		{"host/process", "toolpost/tool", true},
		{"host/process", "toolpost/host/sandbox", true},
		{"host/sandbox", "toolpost/host/process", false},
		{"config", "toolpost/host/process", false},
		{"config", "toolpost/wire/strictjson", true},
		{"protocol/rest", "toolpost/engine", false},
		{"protocol/rest", "toolpost/protocol/narratoria", false},
		{"protocol/rest", "toolpost/host/process", true},
		{"protocol/rest", "toolpost/web", true},
		{"web", "toolpost/protocol/rest", false},
		{"web", "toolpost/engine", false},
		{"protocol/rest", "toolpost/protocol/namel3ss/pack", false},
		{"protocol/namel3ss", "toolpost/protocol/namel3ss/pack", true},
		{"protocol/namel3ss/appfile", "toolpost/protocol/namel3ss/pack", false},
		{"protocol/mcp/door", "toolpost/protocol/mcp", true},
		{"protocol/mcp/door", "toolpost/protocol/mcp/runner", false},
		{"protocol/rest", "toolpost/protocol/mcp", false},
		{"engine", "toolpost/engine/session", true},
		{"engine/session", "toolpost/engine", false},
		{"engine/session", "toolpost/store", false},
		{"engine/session", "toolpost/engine/persist", true},
		{"engine/persist", "toolpost/engine/session", false},
		{"builtin/file", "toolpost/protocol/all", false},
		{"builtin/file", "toolpost/builtin/define", true},
		{"builtin/file", "toolpost/builtin/code", false},
		{"protocol/rest", "toolpost/builtin/define", false},
		{"protocol/all", "toolpost/protocol/rest", true},
		{"node", "toolpost/protocol/all", true},
		{"cmd/toolpost", "toolpost/protocol/all", false},
		{"protocol/unheard", "toolpost/protocol/all", false},
		{"node", "toolpost/cmd/toolpost", false},
		{"node", "toolpost/internal/house", false},
		{"cmd/toolpost", "toolpost/node", true},
		{"cmd/toolpost", "toolpost/store", false},
		{"node/storage", "toolpost/store", true},
		{"store/sqlite", "toolpost/store", true},
		{"store/auditlog", "toolpost/store", false},
		{"node/storage", "toolpost/store/database", false},
		{"node", "toolpost/tool/tooltest", false},
		{"node", "toolpost/unheard/of", false},
	} {
		if why := forbidden("toolpost", c.from, c.to); (why == "") != c.ok {
			t.Errorf("%s -> %s: %q, want allowed: %v", c.from, c.to, why, c.ok)
		}
	}
}
