package node_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A place is the folder of a config with sources whose files a test changes while they are watched.
type place struct {
	t      *testing.T
	dir    string
	n      *node.Node
	logged *kit.Buffer
}

// watched opens the config of a folder with these files, and watches it until the test ends.
func watched(t *testing.T, files map[string]string, o node.Options) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir(), logged: &kit.Buffer{}}
	for name, text := range files {
		p.write(name, text)
	}
	p.watch(kit.Must(config.Load(filepath.Join(p.dir, "toolpost.yaml")))(t), o)
	return p
}

// watch opens a config that was loaded, and watches it until the test ends.
func (p *place) watch(cfg *config.Config, o node.Options) {
	t := p.t
	t.Helper()
	o.Watch, o.Log = true, slog.New(slog.NewTextHandler(p.logged, nil))
	p.n = open(t, cfg, o)
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { p.n.Watch(ctx, nil) })
	t.Cleanup(func() {
		cancel()
		watching.Wait()
		shut(t, p.n)
	})
}

func (p *place) write(name, text string) {
	p.t.Helper()
	kit.Write(p.t, filepath.Join(p.dir, name), text)
}

// says waits for a line of the log that contains all of these words.
func (p *place) says(words ...string) {
	p.t.Helper()
	kit.Until(p.t, func() error {
		if p.lines(words...) == 0 {
			return fmt.Errorf("no line with %s:\n%s", strings.Join(words, ", "), p.logged)
		}
		return nil
	})
}

// lines counts the lines of the log that contain all of these words.
func (p *place) lines(words ...string) (n int) {
	for line := range strings.Lines(p.logged.String()) {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			n++
		}
	}
	return n
}

// gives waits until a tool returns an output.
func (p *place) gives(name, args, want string) {
	p.t.Helper()
	kit.Until(p.t, func() error {
		got := ""
		r, err := p.n.Handler().Invoke(p.t.Context(), &tool.Call{Tool: name, Args: json.RawMessage(args)}, tool.Discard)
		if err == nil {
			got = strings.ReplaceAll(string(r.Output), " ", "")
		}
		if got != want {
			return fmt.Errorf("%s gives %s, %v, want %s\n%s", name, got, err, want, p.logged)
		}
		return nil
	})
}

const skill = `import json, sys
for line in sys.stdin:
    r = json.loads(line)
    if r["method"] == "initialize":
        result = {"name": "skill", "tools": [{"name": "NAME", "description": "d", "parameters": {"type": "object"}}]}
    else:
        result = {"content": "IS"}
    if "id" in r:
        print(json.dumps({"jsonrpc": "2.0", "id": r["id"], "result": result}), flush=True)
`

func skillThat(name, is string) string {
	return strings.NewReplacer("NAME", name, "IS", is).Replace(skill)
}

const manifest = `{"runtime": {"type": "subprocess", "command": "python3", "args": ["skill.py"]}}`

const toolhost = `import json, sys
names = open(sys.argv[2]).read().split()
if sys.argv[1] == "--list":
    print(json.dumps({"ok": True, "tools": [{"aid": "AID.TH.%s.v1" % n, "name": n, "deterministic": True, "tags": [], "side_effects": ["none"], "replay_inputs": []} for n in names]}))
else:
    for line in sys.stdin:
        print(json.dumps({"ok": True, "status": "OK", "output_json": json.dumps({"names": len(names)}), "error": ""}), flush=True)
`

const program = `import json, sys
sys.stdin.readline()
print(json.dumps({"version": "0", "type": "done", "ok": True, "output": {"is": "IS"}}))
`

const declaration = "tool \"%s\":\n  implemented using python\n\n  input:\n    name is optional text\n\n  output:\n    is is text\n"

func TestTheFilesOfSourcesAreWatched(t *testing.T) {
	tooltest.NoLeaks(t)
	p := watched(t, map[string]string{
		"toolpost.yaml": `
store: {url: none}
sources:
  - {name: app, protocol: namel3ss, app: app}
  - {name: skills, protocol: alphahuman, skills: skills}
  - {name: th, protocol: machina, command: [python3, toolhost.py], plugin: ./probe.so, mode: run}
  - {name: ev, protocol: narratoria, command: [python3, ev.py]}
`,
		"app/app.ai":               "spec is \"1.0\"\n\n" + fmt.Sprintf(declaration, "first"),
		"app/tools/first.py":       "def run(p): return {'is': 'first'}\n",
		"app/tools/second.py":      "def run(p): return {'is': 'second'}\n",
		"app/code.py":              "def run(p): return {'is': 'bound'}\n",
		"skills/one/manifest.json": manifest, "skills/one/skill.py": skillThat("say", "old"),
		"toolhost.py": toolhost, "probe.so": "ALPHA", "ev.py": strings.Replace(program, "IS", "old", 1),
	}, node.Options{})
	p.gives("first", `{}`, `{"is":"first"}`)
	p.gives("say", `{}`, `"old"`)
	p.gives("ev", `{}`, `{"is":"old"}`)

	p.write("app/app.ai", "spec is \"1.0\"\n\n"+fmt.Sprintf(declaration, "first")+"\n"+fmt.Sprintf(declaration, "second"))
	p.gives("second", `{}`, `{"is":"second"}`)
	p.says("files of a source changed", "source=app", "added second")
	p.write("app/.namel3ss/tools.yaml", "tools:\n  bound:\n    kind: python\n    entry: code:run\n")
	p.gives("bound", `{}`, `{"is":"bound"}`)
	p.says("source=app", "added bound")
	p.write("app/packs/more/pack.yaml", "id: more\nname: More\nversion: 1.0.0\ndescription: d\nauthor: a\nlicense: MIT\n"+
		"tools: [packed]\nentrypoints:\n  packed: {kind: python, entry: 'packed:run'}\n")
	p.write("app/packs/more/packed.py", "def run(p): return {'is': 'packed'}\n")
	p.gives("packed", `{}`, `{"is":"packed"}`)
	p.says("source=app", "packed")

	p.write("skills/one/skill.py", skillThat("say", "new"))
	p.gives("say", `{}`, `"new"`)
	p.says("source=skills", "the same tools")
	p.write("skills/two/manifest.json", manifest)
	p.write("skills/two/skill.py", skillThat("tell", "two"))
	p.gives("tell", `{}`, `"two"`)
	p.says("source=skills", "added tell")
	kit.OK(t, os.RemoveAll(filepath.Join(p.dir, "skills/two")))
	p.says("source=skills", "removed tell")

	p.write("probe.so", "ALPHA BETA")
	p.gives("BETA", `{}`, `{"names":2}`)
	p.says("source=th", "added")

	p.write("ev.py", strings.Replace(program, "IS", "new", 1))
	p.gives("ev", `{}`, `{"is":"new"}`)
	p.says("source=ev", "the same tools")
}

// A server with a slow store opens seconds after it has loaded its config.
func TestConfigSavedWhileTheServerOpensIsAdopted(t *testing.T) {
	t.Parallel()
	p := &place{t: t, dir: t.TempDir(), logged: &kit.Buffer{}}
	p.write("toolpost.yaml", "sources: []\n")
	cfg := kit.Must(config.Load(filepath.Join(p.dir, "toolpost.yaml")))(t)
	p.write("toolpost.yaml", "sources: [{name: files, protocol: builtin, roots: [{path: .}]}]\n")
	p.watch(cfg, node.Options{})
	p.says("config reloaded", "sources=1")
}

// The structured errors of Machina's contract reach a caller whatever finds out first that there is no toolhost.
//
// contract(machina): | `not_found` | Toolhost binary missing |
// contract(machina): | `exception` | Python-side exception |
func TestAToolhostThatGoesAwayIsAStructuredError(t *testing.T) {
	tooltest.NoLeaks(t)
	const source = "  - {name: %[1]s, protocol: machina, command: [./%[1]s], plugin: ./probe.so, mode: %[1]s, tools: [{aid: AID.TH.%[1]s.v1, name: it}]}\n"
	p := watched(t, map[string]string{
		"toolpost.yaml": "store: {url: none}\nsources:\n" + fmt.Sprintf(source, "run") + fmt.Sprintf(source, "serve"),
		"run":           "#!/usr/bin/env python3\n" + toolhost, "serve": "#!/usr/bin/env python3\n" + toolhost, "probe.so": "ALPHA",
	}, node.Options{})
	for _, mode := range []string{"run", "serve"} {
		is := func(typ string) {
			t.Helper()
			_, err := p.n.Handler().Invoke(t.Context(), &tool.Call{Tool: mode + ".it", Args: json.RawMessage(`{}`)}, tool.Discard)
			var d struct {
				Error             bool
				AID, Type, Detail string
			}
			if e := tool.AsError(err); e == nil || e.Code != tool.CodeUnavailable || e.Reason != typ || json.Unmarshal(e.Details, &d) != nil ||
				!d.Error || d.AID != "AID.TH."+mode+".v1" || d.Type != typ || !strings.Contains(d.Detail, filepath.Join(p.dir, mode)) {
				t.Errorf("%s: %+v, want %s", mode, e, typ)
			}
		}
		is("exception")
		kit.OK(t, os.Chmod(filepath.Join(p.dir, mode), 0o700))
		p.gives(mode+".it", `{}`, `{"names":1}`)
		kit.OK(t, os.Chmod(filepath.Join(p.dir, mode), 0o600))
		is("exception")
		kit.OK(t, os.Remove(filepath.Join(p.dir, mode)))
		is("not_found")
	}
}

func TestHalfWrittenFileRemovesNoTool(t *testing.T) {
	tooltest.NoLeaks(t)
	p := watched(t, map[string]string{
		"toolpost.yaml": `
store: {url: none}
sources:
  - {name: app, protocol: namel3ss, app: app}
  - {name: skills, protocol: alphahuman, skills: skills}
`,
		"app/app.ai": "spec is \"1.0\"\n\n" + fmt.Sprintf(declaration, "first"), "app/tools/first.py": "def run(p): return {'is': 'first'}\n",
		"skills/one/manifest.json": manifest, "skills/one/skill.py": skillThat("say", "one"),
		"skills/two/manifest.json": manifest, "skills/two/skill.py": skillThat("tell", "two"),
	}, node.Options{})
	p.gives("say", `{}`, `"one"`)
	stale := func(i int) string {
		if err := p.n.Sources()[i].Stale; err != nil {
			return err.Error()
		}
		return ""
	}
	p.write("app/app.ai", "spec is \"1.0\"\n\ntool \"fir")
	p.write("skills/one/manifest.json", `{"runtime": {"type": "subpro`)
	p.says("files of a source changed and are not used", "source=app")
	p.says("files of a source changed and are not used", "source=skills", "manifest.json")
	p.gives("first", `{}`, `{"is":"first"}`)
	p.gives("say", `{}`, `"one"`)
	p.gives("tell", `{}`, `"two"`)
	if stale(0) == "" || !strings.Contains(stale(1), "manifest.json") {
		t.Errorf("the reasons are %q and %q", stale(0), stale(1))
	}
	// A skill that never worked removes none, and is listed with its reason.
	p.write("skills/one/manifest.json", manifest)
	kit.Eventually(t, "the end of the reason", func() bool { return stale(1) == "" })
	p.write("skills/three/manifest.json", `{`)
	p.says("source=skills", "added three")
	kit.Fails(t, tool.WhyNot(t.Context(), p.n.Catalog(), tool.Principal{}, "three"), "", "a broken skill can be called")
	p.gives("say", `{}`, `"one"`)
}

// files makes sources of the fake protocol start from a file of their name.
func (f *fake) files() []node.Protocol {
	p := f.protocol()
	p[0].Claim = func(src config.Source) (offlimits.Claim, error) {
		return offlimits.Claim{Starts: []string{filepath.Join(src.Dir, src.Name)}}, nil
	}
	return p
}

func TestACallInFlightEndsOnTheOldRunner(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{})
	var ran atomic.Int32
	protocol := []node.Protocol{{
		Name: "gate",
		Open: func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) {
			return &gate{number: ran.Add(1), entered: entered, release: release}, nil
		},
		Claim: func(src config.Source) (offlimits.Claim, error) {
			return offlimits.Claim{Starts: []string{filepath.Join(src.Dir, "file")}}, nil
		},
	}}
	p := watched(t, map[string]string{
		"toolpost.yaml": "store: {url: none}\nsources: [{name: gate, protocol: gate}]", "file": "1",
	}, node.Options{Protocols: protocol})
	ended := make(chan string, 1)
	go func() {
		r, err := p.n.Handler().Invoke(t.Context(), &tool.Call{Tool: "gate", Args: json.RawMessage(`{"wait":true}`)}, tool.Discard)
		if err != nil {
			ended <- err.Error()
			return
		}
		ended <- string(r.Output)
	}()
	<-entered
	p.write("file", "22")
	p.gives("gate", `{}`, `2`)
	close(release)
	kit.Equal(t, <-ended, "1", "the call in flight")
}

// A gate is a runner that knows its number, and holds a call until it is released.
type gate struct {
	number           int32
	entered, release chan struct{}
	closed           atomic.Bool
}

func (g *gate) Tools(context.Context) ([]*tool.Spec, error) { return []*tool.Spec{{Name: "gate"}}, nil }

func (g *gate) Close(context.Context) error { g.closed.Store(true); return nil }

func (g *gate) Invoke(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	if strings.Contains(string(c.Args), "wait") {
		g.entered <- struct{}{}
		<-g.release
	}
	if g.closed.Load() {
		return nil, errors.New("it was closed under a call")
	}
	return &tool.Result{OK: true, Output: json.RawMessage(fmt.Sprint(g.number))}, nil
}

func TestASourceThatHangsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var hangs atomic.Bool
		f.open = func(ctx context.Context, src config.Source) error {
			if src.Name == "stuck" && hangs.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		p := watched(t, map[string]string{
			"toolpost.yaml": "store: {url: none}\nsources: [{name: stuck, protocol: fake}, {name: quick, protocol: fake}]", "stuck": "1", "quick": "1",
		}, node.Options{Protocols: f.files()})
		hangs.Store(true)
		p.write("stuck", "22")
		p.write("quick", "22")
		time.Sleep(time.Second)
		if p.lines("files of a source changed", "source=quick") != 1 || p.lines("source=stuck") != 0 {
			t.Error(p.logged)
		}
		kit.Check(t, call(p.n, "stuck"), "its old tools")
		time.Sleep(11 * time.Second)
		if p.lines("are not used", "source=stuck", "did not open within 10s") != 1 || call(p.n, "stuck") != nil {
			t.Error(p.logged)
		}
		hangs.Store(false) // without any notice
		time.Sleep(time.Minute)
		if p.lines("files of a source changed", "source=stuck", "the same tools") != 1 || p.n.Sources()[0].Stale != nil {
			t.Error(p.logged)
		}
	})
}

// The old callers of a config do not stay while a source of the new config hangs. The clock is the test's.
func TestRemovedCallerIsOutWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.open = func(ctx context.Context, src config.Source) error {
			if src.Name == "stuck" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		list := func(names ...string) (text string) {
			for _, name := range names {
				text += fmt.Sprintf("%s: {tools: '*', tokens: [%x]}, ", name, sha256.Sum256([]byte("the-token-of-"+name)))
			}
			return "store: {url: none}\ncallers: {list: {" + text + "}}\nsources: [{name: quick, protocol: fake}"
		}
		p := watched(t, map[string]string{"toolpost.yaml": list("ada", "ben") + "]", "quick": "1", "stuck": "1"},
			node.Options{Protocols: f.files()})
		admitted := func() (ids []string) {
			for _, name := range []string{"ada", "ben"} {
				if who, err := p.n.Admit(t.Context(), identity.Credentials{Door: "http", Token: "the-token-of-" + name}); err == nil {
					ids = append(ids, who.ID)
				} else if tool.CodeOf(err) != tool.CodeAccessDenied {
					t.Error(err)
				}
			}
			return ids
		}
		if got := admitted(); len(got) != 2 {
			t.Fatal(got, p.logged)
		}
		p.write("toolpost.yaml", list("ben")+", {name: stuck, protocol: fake}]")
		time.Sleep(2 * time.Second)
		if got := admitted(); !slices.Equal(got, []string{"ben"}) || p.lines("config reloaded") != 0 {
			t.Error(got, p.logged)
		}
		time.Sleep(20 * time.Second)
		if got := admitted(); !slices.Equal(got, []string{"ben"}) || p.lines("config reloaded") != 1 {
			t.Error(got, p.logged)
		}
	})
}

func TestSourceThatWritesItsOwnFilesIsNotReopenedForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var opened atomic.Int32
		f.open = func(_ context.Context, src config.Source) error {
			return os.WriteFile(filepath.Join(src.Dir, src.Name), make([]byte, opened.Add(1)), 0o600)
		}
		p := watched(t, map[string]string{"toolpost.yaml": "store: {url: none}\nsources: [{name: own, protocol: fake}]"}, node.Options{Protocols: f.files()})
		time.Sleep(time.Minute)
		if n := p.lines("files of a source changed"); n < 5 || n > 20 {
			t.Errorf("taken %d times in a minute", n)
		}
	})
}

func TestFilesAreTakenWhenTheyHaveComeToRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		p := watched(t, map[string]string{"toolpost.yaml": "store: {url: none}\nsources: [{name: one, protocol: fake}]", "one": "x"},
			node.Options{Protocols: f.files()})
		text := "x"
		for range 15 {
			text += "x"
			p.write("one", text)
			time.Sleep(91 * time.Millisecond) // never at the moment of a look
		}
		if n := p.lines("files of a source changed"); n != 0 {
			t.Errorf("taken %d times while it was written\n%s", n, p.logged)
		}
		time.Sleep(time.Second)
		kit.Equal(t, p.lines("files of a source changed"), 1, "times taken when it was written")
		time.Sleep(time.Minute)
		for range 100 { // without a rest
			text += "x"
			p.write("one", text)
			time.Sleep(91 * time.Millisecond) // never at the moment of a look
		}
		if n := p.lines("files of a source changed"); n < 3 || n > 6 {
			t.Errorf("taken %d times while it was written for 10 s", n)
		}
	})
}

func TestADeadSourceIsTriedAtOnceWhenItsFilesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.open = func(_ context.Context, src config.Source) error {
			text, err := os.ReadFile(filepath.Join(src.Dir, src.Name))
			if err == nil && string(text) != "good" {
				err = errors.New("it is bad")
			}
			return err
		}
		p := watched(t, map[string]string{"toolpost.yaml": "store: {url: none}\nsources: [{name: one, protocol: fake}]", "one": "bad"},
			node.Options{Protocols: f.files()})
		time.Sleep(100 * time.Second) // it is retried every thirty seconds
		p.write("one", "good")
		time.Sleep(time.Second)
		if err := call(p.n, "one"); err != nil || p.lines("a source is available again", "source=one") != 1 {
			t.Errorf("%v\n%s", err, p.logged)
		}
	})
}

// counts is an MCP server with a tool that counts its calls.
const counts = `import json, sys
n = 0
for line in sys.stdin:
    r = json.loads(line)
    n += r["method"] == "tools/call"
    answer = {
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
        "tools/list": {"tools": [{"name": "count", "inputSchema": {"type": "object"}}], "ttlMs": 0, "cacheScope": "private"},
        "tools/call": {"content": [{"type": "text", "text": str(n)}]},
    }
    if "id" in r:
        print(json.dumps({"jsonrpc": "2.0", "id": r["id"], "result": {"resultType": "complete", **answer[r["method"]]}}), flush=True)
`

// A program may keep what it knows in memory: it is not started again because another source comes or goes.
func TestASourceMoreStartsNoOtherProgramAgain(t *testing.T) {
	const one = "store: {url: none}\nsources:\n- {name: counter, protocol: mcp, command: [python3, counter.py], dir: counter}\n"
	const more = "- {name: other, protocol: command, command: [python3, other.py], dir: other, walls: {write: [data]}}\n"
	p := watched(t, map[string]string{"toolpost.yaml": one, "counter/counter.py": counts, "other/other.py": "print(1)", "data/x": ""}, node.Options{})
	for want, text := range []string{one, one + more, one} {
		p.write("toolpost.yaml", text)
		kit.Until(t, func() error {
			if err := call(p.n, "other"); (err == nil) != (text != one) {
				return fmt.Errorf("the config was not reloaded: %v", err)
			}
			return nil
		})
		r := kit.Must(p.n.Handler().Invoke(t.Context(), &tool.Call{Tool: "count"}, tool.Discard))(t)
		kit.Equal(t, string(r.Output), fmt.Sprintf("%q", fmt.Sprint(want+1)), p.logged)
	}
}

// Half of a file may be a valid file with less in it: the tools of this protocol are the words of a file.
func TestFileSavedWhileReadRemovesNoTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reading atomic.Pointer[func()] // what an editor does just then
		var slow atomic.Int64
		protocol := []node.Protocol{{
			Name: "words",
			Open: func(_ context.Context, src config.Source, _ *slog.Logger) (tool.Runner, error) {
				time.Sleep(time.Duration(slow.Swap(0)))
				text, err := os.ReadFile(filepath.Join(src.Dir, src.Name))
				if string(text) == "?" {
					err = tool.Errorf(tool.CodeInvalidInput, "this is no word")
				}
				return &words{strings.Fields(string(text))}, err
			},
			Opens: func(config.Source) time.Duration { return time.Minute },
			Claim: func(src config.Source) (offlimits.Claim, error) {
				if src.Name == "words" {
					if save := reading.Swap(nil); save != nil {
						(*save)()
					}
				}
				// Without walls, so that it is opened again whenever other files are off limits.
				return offlimits.Claim{Starts: []string{filepath.Join(src.Dir, src.Name)}, Stays: true, Bare: true}, nil
			},
		}}
		const sources = "store: {url: none}\nsources: [{name: words, protocol: words}"
		const more = sources + ", {name: more, protocol: words}" // its files are off limits: the rooms of words are built anew
		p := watched(t, map[string]string{
			"toolpost.yaml": sources + "]", "words": "one two", "more": "more",
		}, node.Options{Protocols: protocol, Early: true})
		for i, edit := range []struct {
			file, text string
			slow       time.Duration
			saves      []string // one after the other, then a last one
		}{
			{file: "words", text: "one two three", saves: []string{"one"}},
			{file: "toolpost.yaml", text: more + "]", saves: []string{"one"}},
			{file: "toolpost.yaml", text: sources + "]", saves: []string{"?"}},
			// An empty file looks like none, and so it may look as it did before it was saved.
			{file: "toolpost.yaml", text: more + "]", saves: []string{"", "one two", "one two", ""}},
			// The files do not rest, and the last attempt is not the best.
			{file: "toolpost.yaml", text: sources + "]", saves: append([]string{"one"}, slices.Repeat([]string{"one", "one two"}, 30)...)},
			// The source that is replaced is itself still being opened in place of one.
			{file: "toolpost.yaml", text: sources + "]", slow: 12 * time.Second, saves: []string{"one"}},
		} {
			if edit.slow > 0 {
				slow.Store(int64(edit.slow))
				p.write(edit.file, more+"]")
				time.Sleep(edit.slow - time.Second)
			}
			brings := fmt.Sprint("word", i)
			save := func() {
				for i, text := range append(edit.saves, "one two "+brings) {
					if i == 0 {
						p.write("words", text) // before it is read
						continue
					}
					time.AfterFunc(time.Duration(i)*65*time.Millisecond, func() { p.write("words", text) }) // it takes its time
				}
			}
			reading.Store(&save)
			p.write(edit.file, edit.text)
			for range 150 {
				time.Sleep(41 * time.Millisecond)
				if err := call(p.n, "two"); err != nil {
					t.Fatalf("edit %d: %v\n%s", i, err, p.logged)
				}
			}
			if err := call(p.n, brings); err != nil || reading.Load() != nil {
				t.Errorf("edit %d: %v\n%s", i, err, p.logged)
			}
		}
		p.write("words", "four") // and this is intended
		time.Sleep(time.Second)
		kit.Refused(t, call(p.n, "two"), tool.CodeNotFound, "", p.logged)
	})
}

// words is a runner of tools that do nothing.
type words struct{ names []string }

func (w *words) Tools(context.Context) (specs []*tool.Spec, _ error) {
	for _, name := range w.names {
		specs = append(specs, &tool.Spec{Name: name})
	}
	return specs, nil
}

func (*words) Invoke(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true, Output: json.RawMessage(`{}`)}, nil
}

func (*words) Close(context.Context) error { return nil }
