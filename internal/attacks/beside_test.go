package attacks

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/protocol/all"
)

// A victim is a source whose program loads code from its folder, and the files that another source would plant there.
type victim struct {
	name     string // of the source, its tool and its folder
	protocol string
	fields   string            // of the config; HOME is its folder
	files    map[string]string // of its folder
	plants   map[string]string // files that would run with its secret
	env      string            // more variables
	walls    string            // more walls
	refused  bool              // it is not opened with a secret: no folder can be told that its code lies in
}

// The effect of a planted file: it writes a digest of the secret, which the redactor does not know, to the data of its
// victim. It need not be useful to the program otherwise.
const (
	plantedPython = `import os, hashlib; open(os.environ["DATA"] + "/stolen", "w").write(hashlib.sha256(os.environ["KEY"].encode()).hexdigest())` + "\n"
	plantedCommon = `require("fs").writeFileSync(process.env.DATA + "/stolen", require("crypto").createHash("sha256").update(process.env.KEY).digest("hex"));` + "\n"
	plantedModule = `import fs from "fs"; import crypto from "crypto";
fs.writeFileSync(process.env.DATA + "/stolen", crypto.createHash("sha256").update(process.env.KEY).digest("hex")); export const help = 1;` + "\n"
	plantedShell = `printf %s "$KEY" | sha256sum | cut -c1-64 > "$DATA/stolen"` + "\n"
)

// The effect of the program itself: it writes where its own walls allow it, and tries to where they do not.
const (
	ranPython = `import os, subprocess; open(os.environ["DATA"] + "/ran", "w").write("ran"); ` +
		`[subprocess.call(["sh", "-c", 'echo "# changed" >> "$0"', path], stderr=-3) for path in os.environ.get("TARGETS", "").split() if path]` + "\n"
	ranNode = `fs.writeFileSync(process.env.DATA + "/ran", "ran"); ` +
		`for (const path of (process.env.TARGETS || "").split(" ")) try { fs.appendFileSync(path, "# changed"); } catch {}` + "\n"
	ranShell = `echo ran > "$DATA/ran"; for path in $TARGETS; do echo "# changed" >> "$path"; done 2>/dev/null; true` + "\n"
)

const besideSecret = "a-secret-of-the-program-8841"

func victims() []victim {
	event := "import json, colorsys, sys\n" + ranPython + `print(json.dumps({"version": "0", "type": "done", "ok": True}))` + "\n"
	function := "import json, random\ndef run(payload):\n    " + ranPython + "    return {}\n"
	nodeTool := `const fs = require("fs"); require("../lib.js"); try { require("optional"); } catch {}
exports.run = () => { ` + ranNode + ` return {}; };`
	return []victim{
		{name: "events", protocol: "narratoria", fields: "command: [python3, tool.py], dir: HOME",
			files:  map[string]string{"tool.py": event},
			plants: map[string]string{"json.py": plantedPython, "colorsys/__init__.py": plantedPython}},
		{name: "lines", protocol: "command", fields: "command: [sh, run.sh], dir: HOME",
			files:  map[string]string{"run.sh": ". ./lib.sh\n" + ranShell, "lib.sh": "true\n"},
			plants: map[string]string{"lib.sh": plantedShell}},
		{name: "module", protocol: "command", fields: "command: [python3, -m, pkg], dir: HOME",
			files:  map[string]string{"pkg/__init__.py": "", "pkg/__main__.py": "import json, random\n" + ranPython},
			plants: map[string]string{"json.py": plantedPython, "pkg/json.py": ""}},
		{name: "venv", protocol: "narratoria", fields: "command: [../envs/py/bin/python3, tool.py], dir: HOME",
			files: map[string]string{"tool.py": event},
			plants: map[string]string{"../envs/py/lib/PYTHON/site-packages/sitecustomize.py": plantedPython,
				"../envs/py/lib/PYTHON/site-packages/x.pth": plantedPython}},
		{name: "warm", protocol: "namel3ss", fields: "app: HOME, tool: warm, mode: warm, entry: 'tools.t:run'",
			files:  map[string]string{"tools/t.py": function},
			plants: map[string]string{"random.py": plantedPython}},
		{name: "fresh", protocol: "namel3ss", fields: "app: HOME, tool: fresh, mode: fresh, entry: 'tools.t:run'",
			files:  map[string]string{"tools/t.py": function},
			plants: map[string]string{"random.py": plantedPython}},
		{name: "node", protocol: "namel3ss", fields: "app: HOME, tool: node, kind: node, entry: 'tools.t:run'",
			files:  map[string]string{"tools/t.js": nodeTool, "lib.js": ""},
			plants: map[string]string{"lib.js": plantedCommon, "node_modules/optional/index.js": plantedCommon}},
		{name: "mcp", protocol: "mcp", fields: "command: [python3, server.py], dir: HOME", files: map[string]string{"server.py": mcpPython},
			plants: map[string]string{"json.py": plantedPython}},
		{name: "mcpnode", protocol: "mcp", fields: "command: [node, server.mjs], dir: HOME",
			files: map[string]string{"server.mjs": mcpNode,
				"helper.mjs": "export const help = 1;\n"}, plants: map[string]string{"helper.mjs": plantedModule,
				"package.json": `{"name": "optional", "exports": "./lib.mjs"}`, "lib.mjs": plantedModule}},
		{name: "serve", protocol: "machina", fields: "command: [python3, toolhost.py], plugin: ../plug/probe.py, dir: HOME, mode: serve, tools: [{aid: AID.HOST.X.v1, name: serve}]",
			files:  map[string]string{"toolhost.py": toolhost, "../plug/probe.py": "try: import optional\nexcept ImportError: pass\n"},
			plants: map[string]string{"json.py": plantedPython, "../plug/optional.py": plantedPython}},
		{name: "skill", protocol: "alphahuman", fields: "skill: HOME", files: map[string]string{"skill.py": skill("skill"),
			"manifest.json": `{"runtime": {"type": "subprocess", "command": "python3", "args": ["skill.py"]}, "tick_interval": 0}`},
			plants: map[string]string{"json.py": plantedPython}},
		{name: "package", protocol: "alphahuman", fields: "skill: HOME/skills/one",
			files: map[string]string{"skills/one/skill.py": "from . import helper\n" + skill("package"),
				"skills/one/__init__.py": "", "skills/one/helper.py": "",
				"skills/one/manifest.json": `{"runtime": {"type": "subprocess", "command": "python3", "args": ["skill.py"]}, "tick_interval": 0}`},
			plants: map[string]string{"skills/__init__.py": plantedPython}},
	}
}

// undirected returns victims whose config does not say by dir in which folder their code lies.
func undirected() []victim {
	python := "try: import colorsys\nexcept ImportError: pass\n" + ranPython
	shell := "[ ! -e \"${0%/*}/lib.sh\" ] || . \"${0%/*}/lib.sh\"\n" + ranShell
	perl := `use FindBin; use lib $FindBin::Bin; eval { require Helper }; open(my $f, ">", "$ENV{DATA}/ran"); print $f "ran";`
	plantedPerl := `system(q(` + strings.TrimSpace(plantedShell) + `)); 1;`
	node := `const fs = require("fs"); try { require("./helper.js"); } catch {}` + ranNode
	return []victim{
		{name: "text", protocol: "command", fields: "command: [python3, -s, -u, files/text/run.txt]",
			files: map[string]string{"../files/text/run.txt": python}, plants: map[string]string{"../files/text/colorsys.py": plantedPython, "../files/text/run.txt": ""}},
		{name: "plx", protocol: "command", fields: "command: [perl, files/plx/run.plx]",
			files: map[string]string{"../files/plx/run.plx": perl}, plants: map[string]string{"../files/plx/Helper.pm": plantedPerl}},
		{name: "incl", protocol: "command", fields: "command: [perl, -Ifiles/incl, HOME/run.pl]",
			files: map[string]string{"run.pl": perl, "../files/incl/x": ""}, plants: map[string]string{"../files/incl/Helper.pm": plantedPerl}},
		{name: "ksh", protocol: "command", fields: "command: [bash, files/ksh/run.ksh]",
			files: map[string]string{"../files/ksh/run.ksh": shell}, plants: map[string]string{"../files/ksh/lib.sh": plantedShell}},
		{name: "index", protocol: "command", fields: "command: [node, files/index/index]",
			files: map[string]string{"../files/index/index.js": node}, plants: map[string]string{"../files/index/helper.js": plantedCommon, "../files/index/index.js": plantedCommon}},
		{name: "later", protocol: "command", fields: "command: [python3, -u, HOME/run.py, files/later/conf.txt]",
			files:  map[string]string{"run.py": "import sys, os; sys.path.insert(0, os.path.dirname(sys.argv[1]))\n" + python, "../files/later/conf.txt": ""},
			plants: map[string]string{"../files/later/colorsys.py": plantedPython}},
		{name: "onpath", protocol: "command", fields: "command: [mytool]",
			files: map[string]string{"../files/tools/mytool": "#!/usr/bin/bash\n" + shell}, plants: map[string]string{"../files/tools/lib.sh": plantedShell, "../files/tools/mytool": "#!/usr/bin/bash\n" + plantedShell}},
		{name: "linked", protocol: "command", fields: "command: [seven]",
			files:  map[string]string{"../files/seven/real.py": "#!/usr/bin/python3\n" + python},
			plants: map[string]string{"../files/seven/colorsys.py": plantedPython, "../files/seven/real.py": "#!/usr/bin/python3\n" + plantedPython}},
		{name: "bashenv", protocol: "command", fields: "command: [bash, HOME/run.sh]", env: ", BASH_ENV: files/rc/rc.sh",
			files: map[string]string{"run.sh": ranShell, "../files/rc/rc.sh": ""}, plants: map[string]string{"../files/rc/rc.sh": plantedShell}},
		{name: "options", protocol: "command", fields: "command: [node, HOME/run.js]", env: ", NODE_OPTIONS: --require ./files/hook/h.js",
			files: map[string]string{"run.js": node, "../files/hook/h.js": ""}, plants: map[string]string{"../files/hook/h.js": plantedCommon}},
		{name: "passed", protocol: "command", fields: "command: [python3, HOME/run.py], pass_env: [PYTHONPATH]",
			files: map[string]string{"run.py": python, "../files/passed/x": ""}, plants: map[string]string{"../files/passed/colorsys.py": plantedPython}},
		{name: "skillpath", protocol: "alphahuman", fields: "skill: HOME", env: ", PYTHONPATH: BASE/files/lib", walls: ", read: [files/lib]",
			files: map[string]string{"skill.py": "try: import colorsys\nexcept ImportError: pass\n" + skill("skillpath"), "../files/lib/x": "",
				"manifest.json": `{"runtime": {"type": "subprocess", "command": "python3", "args": ["skill.py"]}, "tick_interval": 0}`},
			plants: map[string]string{"../files/lib/colorsys.py": plantedPython}},
		{name: "line", protocol: "command", fields: `command: [sh, -c, "cd files/line && exec python3 main.py"]`, refused: true,
			files: map[string]string{"../files/line/main.py": python}, plants: map[string]string{"../files/line/colorsys.py": plantedPython}},
		{name: "awk", protocol: "command", refused: true,
			fields: `command: [awk, 'BEGIN {{ while (("cd files/awk && python3 main.py" | getline l) > 0) print l }}']`,
			files:  map[string]string{"../files/awk/main.py": python}, plants: map[string]string{"../files/awk/colorsys.py": plantedPython}},
		{name: "import", protocol: "command", fields: `command: [python3, -c, "import html, os; open(os.environ['DATA'] + '/ran', 'w')"]`, refused: true,
			files: map[string]string{"../html/x": ""}, plants: map[string]string{"../html/__init__.py": plantedPython}},
	}
}

const mcpPython = `import sys, json
def answer(method):
    if method == "server/discover": return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    if method == "tools/list": return {"tools": [{"name": "mcp", "inputSchema": {"type": "object"}}], "ttlMs": 0, "cacheScope": "private"}
    ` + ranPython + `    return {"content": []}
for line in sys.stdin:
    r = json.loads(line)
    if "id" in r: print(json.dumps({"jsonrpc": "2.0", "id": r["id"], "result": {"resultType": "complete", **answer(r["method"])}}), flush=True)
`

const mcpNode = `import fs from "fs"; import readline from "readline"; import { help } from "./helper.mjs";
try { await import("optional"); } catch {}
const answer = (method) => {
  if (method === "server/discover") return { supportedVersions: ["2026-07-28"], capabilities: { tools: {} } };
  if (method === "tools/list") return { tools: [{ name: "mcpnode", inputSchema: { type: "object" } }], ttlMs: 0, cacheScope: "private" };
  ` + ranNode + ` return { content: [] };
};
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const r = JSON.parse(line);
  if ("id" in r) console.log(JSON.stringify({ jsonrpc: "2.0", id: r.id, result: { resultType: "complete", ...answer(r.method) } }));
});
`

const toolhost = `import json, os, runpy, sys
plugin = next(a for a in sys.argv if a.endswith("probe.py"))
sys.path.insert(0, os.path.dirname(os.path.abspath(plugin)))
runpy.run_path(plugin)
for line in sys.stdin:
    if not line.strip(): break
    ` + ranPython + `    print(json.dumps({"ok": True, "status": "OK", "output_json": "{}", "error": "", "ds_state": {"delta": True, "slots": {}, "removed_slots": []}}), flush=True)
`

func skill(name string) string {
	return `import sys, json
TOOLS = [{"name": "` + name + `", "description": "runs", "parameters": {"type": "object"}}]
def answer(method):
    if method == "initialize": return {"name": "` + name + `", "description": "Runs.", "version": "1.0.0", "tools": TOOLS}
    if method == "tools/call":
        ` + ranPython + `        return {"content": "ran"}
    return {"ok": True}
for line in sys.stdin:
    if line.strip():
        r = json.loads(line)
        print(json.dumps({"jsonrpc": "2.0", "id": r.get("id"), "result": answer(r["method"])}), flush=True)
        if r["method"] == "shutdown": break
`
}

// A street is a folder with the folders of all victims, and one with the program of another source.
type street struct {
	*place
	victims []victim
	env     []string // of the server
}

func newStreet(t *testing.T, victims []victim) *street {
	t.Helper()
	p := newPlace(t, os.Geteuid())
	s := &street{place: p, victims: victims}
	s.env = []string{fmt.Sprintf("PATH=%s:%s/files/tools:%[2]s/links", os.Getenv("PATH"), p.dir), "PYTHONPATH=" + p.dir + "/files/passed"}
	kit.OK(t, os.RemoveAll(p.dir))
	kit.OK(t, os.MkdirAll(p.dir+"/envs", 0o755))
	venv := exec.Command("python3", "-m", "venv", "--without-pip", p.dir+"/envs/py")
	if out, err := venv.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	libs := kit.Must(filepath.Glob(p.dir + "/envs/py/lib/python3*"))(t)
	s.put(t, "put/put.py", putter)
	kit.OK(t, os.MkdirAll(p.dir+"/links", 0o755))
	kit.OK(t, os.Symlink("../files/seven/real.py", p.dir+"/links/seven"))
	s.put(t, "files/notes.txt", "notes")
	s.put(t, "key.txt", besideSecret)
	kit.OK(t, os.Chmod(p.dir+"/key.txt", 0o600))
	for i, v := range s.victims {
		for name, text := range v.files {
			s.put(t, filepath.Join(v.name, name), text)
			kit.OK(t, os.Chmod(filepath.Join(p.dir, v.name, name), 0o755))
		}
		kit.OK(t, os.MkdirAll(filepath.Join(p.dir, v.name, "data"), 0o755))
		plants := map[string]string{}
		for name, text := range v.plants {
			plants[filepath.Join(v.name, strings.ReplaceAll(name, "PYTHON", filepath.Base(libs[0])))] = text
		}
		s.victims[i].plants = plants
	}
	return s
}

func (s *street) put(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	kit.Write(t, path, text)
}

// config writes the config: the victims, each with more walls and more fields, and the writers.
func (s *street) config(t *testing.T, walls, more string, roots ...string) {
	t.Helper()
	text := "store: {url: none}\nsecrets: {KEY: {file: key.txt}}\ndoors: {http: {}}\nsources:\n"
	for _, v := range s.victims {
		text += fmt.Sprintf("- {name: %s, protocol: %s, %s, env: {DATA: %q%s}, walls: {write: [%[1]s/data]%[6]s}%[7]s, timeout: 2m}\n", v.name, v.protocol,
			strings.ReplaceAll(v.fields, "HOME", v.name), filepath.Join(s.dir, v.name, "data"), strings.ReplaceAll(v.env, "BASE", s.dir), v.walls+walls, more)
	}
	var list []string
	for _, root := range roots {
		list = append(list, fmt.Sprintf("{path: %s, write: true}", root))
	}
	text += "- {name: files, protocol: builtin, roots: [" + strings.Join(list, ", ") +
		"], shell: {allow: [cp, tee, mv, ln, mkdir, rm, python3], rules: [{program: python3, code: any}]}}\n" +
		"- {name: put, protocol: narratoria, command: [python3, put.py], dir: put, walls: {write: [" + strings.Join(roots, ", ") + "]}}\n"
	s.write(t, s.dir+"/toolpost.yaml", text, 0o600)
}

// putter is a program of another source that may write the roots. It tries every way of writing.
const putter = `import json, os, shutil, sys
o = json.load(sys.stdin)["input"]
path, draft = o["path"], o["draft"]
def fresh():
    open(draft, "w").write(o["content"])
def renamed():
    fresh(); os.rename(draft, path)
def around():
    top = os.path.dirname(path); os.rename(top, top + ".gone"); shutil.copytree(top + ".gone", top); open(path, "w").write(o["content"])
done = []
for name, way in dict(
    write=lambda: open(path, "w").write(o["content"]), folder=lambda: os.makedirs(os.path.dirname(path)), rename=renamed, remove=lambda: os.unlink(path),
    link=lambda: (fresh(), os.link(draft, path)), symlink=lambda: (fresh(), os.symlink(draft, path)), tree=lambda: shutil.copytree(os.path.dirname(draft), path), around=around,
).items():
    try: way(); done.append(name)
    except OSError as e: pass
print(json.dumps({"version": "0", "type": "done", "ok": True, "output": {"done": done}}))
`

// attempts returns the calls that put a file in its place, by every writer. The paths are absolute, so that they do not
// depend on the roots.
func (s *street) attempts(path, content string) []toolCall {
	top, inside, _ := strings.Cut(path, "/")
	if top == "files" { // a root, which cannot be moved
		inside, _, _ = strings.Cut(inside, "/")
		top = filepath.Join(top, inside)
	}
	path, top = filepath.Join(s.dir, path), filepath.Join(s.dir, top)
	folder, draft, away := filepath.Dir(path), s.draft(path), s.dir+"/files/away"
	shell := func(stdin string, argv ...string) toolCall {
		return toolCall{"tool": "execShell", "args": toolCall{"command": argv[0], "args": argv[1:], "stdin": stdin}}
	}
	return []toolCall{
		{"tool": "makeFolder", "args": toolCall{"path": folder + "/made"}},
		{"tool": "writeFile", "args": toolCall{"path": path, "content": content}},
		{"tool": "moveFile", "args": toolCall{"from": draft, "to": path, "overwrite": true}},
		{"tool": "moveFile", "args": toolCall{"from": top, "to": away}},
		{"tool": "deleteFile", "args": toolCall{"path": path}},
		shell("", "cp", draft, path), shell("", "cp", "-r", filepath.Dir(draft)+"/.", folder), shell(content, "tee", path),
		shell("", "ln", "-f", draft, path), shell("", "mkdir", "-p", folder+"/made"), shell("", "rm", "-rf", path), shell("", "mv", top, away),
		shell("import shutil; shutil.copy('"+draft+"', '"+path+"')", "python3", "-"),
		{"tool": "put", "args": toolCall{"path": path, "content": content, "draft": filepath.Dir(draft) + "/drafted"}},
	}
}

// draft is where a writer prepares a file.
func (s *street) draft(path string) string { return s.dir + "/files/draft/" + filepath.Base(path) }

// try makes an attempt, with its draft in place, and reports whether it changed a folder.
func (s *street) try(t *testing.T, server *served.Server, path, content string, c toolCall, before map[string]string) (said string, changed map[string]string) {
	t.Helper()
	kit.OK(t, os.RemoveAll(s.dir+"/files/away"))
	kit.OK(t, os.RemoveAll(s.dir+"/files/draft"))
	s.put(t, "files/draft/"+filepath.Base(path), cmp.Or(content, "# a draft\n"))
	said = call(t, server, c["tool"].(string), c["args"])
	now := s.trees(t)
	if !maps.Equal(now, before) {
		changed = maps.Clone(now)
		maps.DeleteFunc(changed, func(path, text string) bool { return before[path] == text })
		for path := range before {
			if _, left := now[path]; !left {
				changed[path] = "gone"
			}
		}
	}
	return said, changed
}

// call calls a tool, and returns everything that its caller receives.
func call(t *testing.T, s *served.Server, name string, args any) string {
	t.Helper()
	text := kit.Must(json.Marshal(args))(t)
	return kit.Must(s.Raw(t.Context(), name, string(text)))(t)
}

// trees returns the contents of the folders of the victims, except their data.
func (s *street) trees(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	kit.OK(t, filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(s.dir, path)
		top, _, _ := strings.Cut(rel, "/")
		switch {
		case err != nil || rel == "files/draft" || rel == "files/away" || top == ".toolpost" || d.Name() == "__pycache__" || d.Name() == "data":
			if d.IsDir() && err == nil {
				return fs.SkipDir
			}
			return err
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			found[rel] = string(b)
			return err
		}
		found[rel] = d.Type().String()
		return nil
	}))
	return found
}

// after starts a server, calls every victim, and returns which of them ran and which gave their secret away. A file
// planted in a program that keeps running may still be at work when the call is answered, so it gets more time.
func (s *street) after(t *testing.T, bin string, wait time.Duration) (ran, stolen []string) {
	t.Helper()
	for _, v := range s.victims {
		for _, name := range []string{"ran", "stolen"} {
			_ = os.Remove(filepath.Join(s.dir, v.name, "data", name))
		}
	}
	server := served.Start(t, bin, s.dir, s.env...)
	defer server.Stop(t)
	sum := sha256.Sum256([]byte(besideSecret))
	for _, v := range s.victims {
		said := call(t, server, v.name, toolCall{})
		if _, err := os.Stat(filepath.Join(s.dir, v.name, "data/ran")); err == nil {
			ran = append(ran, v.name)
		} else {
			t.Logf("%s did not run: %.300s", v.name, said)
		}
	}
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		stolen = nil
		for _, v := range s.victims {
			if b, _ := os.ReadFile(filepath.Join(s.dir, v.name, "data/stolen")); strings.TrimSpace(string(b)) == hex.EncodeToString(sum[:]) {
				stolen = append(stolen, v.name)
			}
		}
		if len(stolen) == len(s.victims) || time.Now().After(end) {
			return ran, stolen
		}
	}
}

// names returns the victims that open with a secret.
func (s *street) names() (names []string) {
	for _, v := range s.victims {
		if !v.refused {
			names = append(names, v.name)
		}
	}
	return names
}

// TestPlantedFileIsNotLoadedByAProgram lets every other writer put files beside the programs of every protocol, which
// would load them and give them their secret.
func TestPlantedFileIsNotLoadedByAProgram(t *testing.T) {
	bin := served.Build(t)
	for name, c := range map[string]struct {
		victims []victim
		roots   []string
	}{
		"with a folder of their own": {victims(), []string{"."}}, "without": {undirected(), []string{"files", "html"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStreet(t, c.victims)
			s.put(t, "files/free/lib.py", "")
			s.config(t, "", ", secrets: [KEY]", c.roots...)
			server := served.Start(t, bin, s.dir, s.env...)
			call(t, server, "execShell", toolCall{"command": "mkdir", "args": []string{s.dir + "/files/away"}})
			before := s.trees(t) // including the empty placeholders that a room keeps for missing files
			total := 0
			for _, v := range s.victims {
				if v.refused { // its log says so, below
					continue
				}
				for path, content := range v.plants {
					for _, c := range s.attempts(path, content) {
						total++
						if said, changed := s.try(t, server, path, content, c, before); changed != nil {
							t.Fatalf("%v changed the folder of a program: %.500s: %.500q", c, said, changed)
						}
					}
				}
			}
			for _, c := range s.attempts("files/free/lib.py", plantedPython) { // each attempt is effective if nothing forbids it
				kit.OK(t, os.RemoveAll(s.dir+"/files/free"))
				s.put(t, "files/free/lib.py", "")
				said, changed := s.try(t, server, "lib.py", plantedPython, c, before)
				if changed == nil {
					t.Errorf("%v does not write: %.500s", c, said)
				}
			}
			path := slices.Sorted(maps.Keys(s.victims[0].plants))[0]
			said := call(t, server, "writeFile", toolCall{"path": filepath.Join(s.dir, path), "content": "x"})
			if !strings.Contains(said, `a program of source \"`+s.victims[0].name+`\" loads code from that folder`) {
				t.Errorf("the refusal does not say why: %s", said)
			}
			server.Stop(t)
			s.refusals(t, server)
			if ran, stolen := s.after(t, bin, 0); !slices.Equal(ran, s.names()) || len(stolen) > 0 {
				t.Errorf("%d attempts: %q ran, and %q gave their secret away", total, ran, stolen)
			}
			t.Logf("%d attempts", total)
		})
	}
}

const besideRefusal = "could put code for its program there, which runs with"

// refusals checks that the log names the victims that are not opened, and no other.
func (s *street) refusals(t *testing.T, server *served.Server) {
	t.Helper()
	for _, v := range s.victims {
		refused := slices.ContainsFunc(strings.Split(server.Log(), "\n"), func(line string) bool {
			return strings.Contains(line, "source="+v.name+" ") && strings.Contains(line, besideRefusal)
		})
		if refused != v.refused {
			t.Errorf("%s: refused: %v\n%s", v.name, refused, server.Log())
		}
	}
}

// TestAPlantedFileWouldTakeTheSecret shows that the attempts are effective: once planted, their files do take the secret
// of each program.
func TestAPlantedFileWouldTakeTheSecret(t *testing.T) {
	bin := served.Build(t)
	all := append(victims(), undirected()...)
	alone := func(v victim) bool { return v.refused } // such a source opens if no other may write around its code
	together := slices.DeleteFunc(slices.Clone(all), alone)
	streets := [][]victim{together, together} // each victim has at most two that work on their own
	for _, v := range all {
		if alone(v) {
			streets = append(streets, []victim{v})
		}
	}
	for round, victims := range streets {
		s := newStreet(t, slices.Clone(victims))
		s.config(t, "", ", secrets: [KEY]", t.TempDir())
		var want []string
		for _, v := range s.victims {
			paths := slices.DeleteFunc(slices.Sorted(maps.Keys(v.plants)), func(path string) bool {
				// The last is beside a plugin, of which a room has only that one file.
				return v.plants[path] == "" || slices.Contains([]string{"package.json", "lib.mjs", "optional.py"}, filepath.Base(path))
			})
			s.put(t, paths[round%len(paths)], v.plants[paths[round%len(paths)]])
			if v.name == "mcpnode" && round == 1 { // two that work together
				s.put(t, "mcpnode/helper.mjs", v.files["helper.mjs"])
				s.put(t, "mcpnode/package.json", v.plants["mcpnode/package.json"])
				s.put(t, "mcpnode/lib.mjs", v.plants["mcpnode/lib.mjs"])
			}
			want = append(want, v.name)
		}
		if _, stolen := s.after(t, bin, served.Hang); !slices.Equal(stolen, want) {
			t.Errorf("round %d: only %q gave their secret away", round, stolen)
		}
	}
}

// TestAReloadRebuildsTheRoomsOfServers saves the config as editors do, by renaming, while the servers of all protocols run
// that may write its folder. None of them can then change the new config, or the folder of a program that it adds.
func TestAReloadRebuildsTheRoomsOfServers(t *testing.T) {
	bin := served.Build(t)
	s := newStreet(t, victims())
	s.put(t, "added/main.py", ranPython)
	kit.OK(t, os.MkdirAll(s.dir+"/added/data", 0o755))
	for i := range s.victims {
		s.victims[i].env = fmt.Sprintf(`, TARGETS: "%s/toolpost.yaml %[1]s/added/colorsys.py"`, s.dir)
	}
	s.config(t, "", "", "files")
	config := kit.Must(os.ReadFile(s.dir + "/toolpost.yaml"))(t)
	text := strings.ReplaceAll(string(config), "walls: {write: [", "walls: {write: [., ")
	s.write(t, s.dir+"/toolpost.yaml", text, 0o600)
	server := served.Start(t, bin, s.dir, s.env...)
	defer server.Stop(t)
	tried := func(config string) {
		t.Helper()
		for _, v := range s.victims {
			ran := filepath.Join(s.dir, v.name, "data/ran")
			_ = os.Remove(ran)
			said := call(t, server, v.name, toolCall{})
			if _, err := os.Stat(ran); err != nil {
				t.Errorf("%s did not run: %.300s", v.name, said)
			}
			if now, _ := os.ReadFile(s.dir + "/toolpost.yaml"); string(now) != config {
				t.Errorf("%s changed the config", v.name)
				s.write(t, s.dir+"/toolpost.yaml", config, 0o600)
			}
			if err := os.Remove(s.dir + "/added/colorsys.py"); err == nil && config != text {
				t.Errorf("%s wrote the folder of a program", v.name)
			}
		}
	}
	tried(text)
	saved := text + fmt.Sprintf("- {name: added, protocol: command, command: [python3, main.py], dir: added, env: {DATA: %q}, walls: {write: [added/data]}}\n", s.dir+"/added/data")
	s.write(t, s.dir+"/saved", saved, 0o600)
	kit.OK(t, os.Rename(s.dir+"/saved", s.dir+"/toolpost.yaml"))
	kit.Until(t, func() error {
		if !strings.Contains(call(t, server, "added", toolCall{}), `"ok":true`) {
			return fmt.Errorf("the config was not reloaded: %s", server.Log())
		}
		return nil
	})
	tried(saved)
}

// TestReplaceableProgramGetsNoSecretOrNetwork makes the folders of the programs themselves writable.
func TestReplaceableProgramGetsNoSecretOrNetwork(t *testing.T) {
	bin := served.Build(t)
	for name, c := range map[string]struct {
		walls, more, root string
		opens             bool
	}{
		"its folder, and a secret":           {"", ", secrets: [KEY]", "%s", false},
		"its folder, and a network":          {", network: [api.example.com]", "", "%s", false},
		"its folder, and a variable of ours": {"", ", pass_env: [LANG]", "%s", false},
		"a folder in it, and a secret":       {"", ", secrets: [KEY]", "%s/other", false},
		"its folder, and nothing":            {"", "", "%s", true},
		"a folder in it, and nothing":        {"", "", "%s/other", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStreet(t, victims())
			// A skill is completely off limits, even if a root names it.
			s.victims = slices.DeleteFunc(s.victims, func(v victim) bool { return v.protocol == "alphahuman" })
			var roots []string
			for _, v := range s.victims {
				roots = append(roots, fmt.Sprintf(c.root, v.name))
				kit.OK(t, os.MkdirAll(filepath.Join(s.dir, roots[len(roots)-1]), 0o755))
			}
			s.config(t, c.walls, c.more, roots...)
			server := served.Start(t, bin, s.dir)
			defer server.Stop(t)
			for i, v := range s.victims {
				said := call(t, server, v.name, toolCall{})
				refused := slices.ContainsFunc(strings.Split(server.Log(), "\n"), func(line string) bool {
					return strings.Contains(line, "source="+v.name+" ") && strings.Contains(line, besideRefusal)
				})
				if refused == c.opens || c.opens != strings.Contains(said, `"ok":true`) {
					t.Errorf("%s: %.400s\n%s", v.name, said, server.Log())
				}
				said = call(t, server, "writeFile", toolCall{"path": filepath.Join(s.dir, roots[i], "new.txt"), "content": "x"})
				kit.Contains(t, said, `"ok":true`, "a folder that the config offers cannot be written")
			}
		})
	}
}

// TestEveryProtocolIsAVictim fails for a protocol that has no row here.
func TestEveryProtocolIsAVictim(t *testing.T) {
	startsNone := []string{"builtin", "cassette", "openapi", "rest", "singularity"}
	for _, p := range all.Protocols() {
		tried := slices.ContainsFunc(victims(), func(v victim) bool { return v.protocol == p.Name })
		if p.Open != nil && !tried && !slices.Contains(startsNone, p.Name) {
			t.Errorf("no test puts a file beside a program of protocol %s", p.Name)
		}
	}
}
