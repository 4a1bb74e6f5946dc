package alphahuman

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// contract(alphahuman): `runtime` as in the contract, or a string `"python"|"node"` with `entry`
func TestManifestsAreRead(t *testing.T) {
	for text, want := range map[string]*Manifest{
		`{"runtime":{"type":"subprocess","command":"python3","args":["skill.py"]}}`: {
			Runtime: Runtime{Type: "subprocess", Command: "python3", Args: []string{"skill.py"}}, Tick: time.Minute,
		},
		`{"id":"i","name":"n","version":"2.0.0","description":"d","runtime":"python","entry":"__main__.py","tick_interval":1200000,"env":["A","B"],"dependencies":["telethon>=1.36.0"],"setup":{"x":1},"concurrency":3}`: {
			ID: "i", Name: "n", Version: "2.0.0", Description: "d", Runtime: Runtime{Type: "python", Entry: "__main__.py"},
			Tick: 20 * time.Minute, Env: []string{"A", "B"}, Dependencies: []string{"telethon>=1.36.0"}, Concurrency: 3,
		},
		`{"runtime":{"type":"python"},"entry":"x.py"}`:               {Runtime: Runtime{Type: "python", Entry: "x.py"}, Tick: time.Minute},
		`{"runtime":{"command":"./run","args":["-v"]}}`:              {Runtime: Runtime{Type: "subprocess", Command: "./run", Args: []string{"-v"}}, Tick: time.Minute},
		`{"runtime":"node","entry":"index.js","tick_interval":0}`:    {Runtime: Runtime{Type: "node", Entry: "index.js"}},
		`{"runtime":"node","entry":"index.js","tick_interval":5}`:    {Runtime: Runtime{Type: "node", Entry: "index.js"}, Tick: time.Second},
		`{"runtime":"node","entry":"index.js","env":null,"id":null}`: {Runtime: Runtime{Type: "node", Entry: "index.js"}, Tick: time.Minute},
	} {
		got, err := parseManifest("m.json", []byte(text))
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", text, err, d)
		}
	}
}

func TestBadManifestsNameFileAndField(t *testing.T) {
	for text, words := range map[string]string{
		``:                                  "m.json",
		`[]`:                                "expected a JSON object",
		`{"runtime":`:                       "ends too early",
		`{"runtime":1}`:                     "field runtime",
		`{}`:                                "field runtime: missing",
		`{"runtime":"quickjs"}`:             "field runtime",
		`{"runtime":{"type":"subprocess"}}`: "field runtime: a subprocess needs a command",
		`{"runtime":{"args":["skill.py"]}}`: "field runtime: a subprocess needs a command",
		`{"runtime":{"type":"subprocess","command":"x","args":"y"}}`: "field runtime",
		`{"runtime":"python"}`:                                   "field entry",
		`{"runtime":"python","entry":["x"]}`:                     "field entry",
		`{"runtime":"python","entry":"-c"}`:                      "field entry",
		`{"runtime":"python","entry":"x","env":"A"}`:             "field env",
		`{"runtime":"python","entry":"x","env":["A=B"]}`:         "field env",
		`{"runtime":"python","entry":"x","tick_interval":"60"}`:  "field tick_interval",
		`{"runtime":"python","entry":"x","tick_interval":-1}`:    "field tick_interval",
		`{"runtime":"python","entry":"x","tick_interval":1e300}`: "field tick_interval",
		`{"runtime":"python","entry":"x","dependencies":{}}`:     "field dependencies",
		`{"runtime":"python","entry":"x","concurrency":-1}`:      "field concurrency",
		`{"runtime":"python","entry":"x","name":7}`:              "field name",
		`{"runtime":"python","runtime":"node","entry":"x"}`:      "duplicate",
	} {
		_, err := parseManifest("m.json", []byte(text))
		refused(t, err, tool.CodeInvalidInput, "m.json", words)
	}
}

// contract(alphahuman): the Agent Skills standard (name, description, license, compatibility, metadata, allowed-tools; body loaded on activation
func TestSkillFilesAreRead(t *testing.T) {
	text := "---\r\nname: pdf-tools\r\ndescription: >\r\n  Reads PDF files.\r\n  Use it for PDFs.\r\nlicense: MIT\r\ncompatibility: Needs python3\r\n" +
		"metadata:\r\n  author: somebody\r\n  version: 1.0\r\nallowed-tools: Read, Bash\r\nextra: {a: [1]}\r\n---\r\n# Body\r\n\r\n---\r\nmore\r\n"
	got := kit.Must(parseDoc("SKILL.md", []byte(text)))(t)
	kit.Equal(t, cmp.Diff([]string{"extra"}, got.unknown), "")
	got.unknown = nil
	want := &Doc{
		Name: "pdf-tools", Description: "Reads PDF files. Use it for PDFs.", License: "MIT", Compatibility: "Needs python3",
		Metadata: map[string]string{"author": "somebody", "version": "1.0"}, AllowedTools: []string{"Read", "Bash"}, Body: "# Body\n\n---\nmore\n",
	}
	kit.Equal(t, cmp.Diff(want, got, cmp.AllowUnexported(Doc{})), "")
	for text, want := range map[string]Doc{
		"":                                  {},
		"# no head":                         {Body: "# no head"},
		"---\n---\nbody":                    {Body: "body"},
		"\uFEFF---\nname: x\n---":           {Name: "x"},
		"---\nallowed-tools: [a, b c]\n---": {AllowedTools: []string{"a", "b c"}},
		"---\nname:\n---\n":                 {},
		"---\n# only a comment\n---\nb":     {Body: "b"},
	} {
		got, err := parseDoc("SKILL.md", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got.Name != want.Name || strings.TrimSpace(got.Body) != want.Body || strings.Join(got.AllowedTools, "|") != strings.Join(want.AllowedTools, "|") {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

func TestBadSkillFilesNameFileAndField(t *testing.T) {
	for text, words := range map[string]string{
		"---\nname: x":                                               "not closed",
		"---\n- a\n---\n":                                            "names and values",
		"---\nname: [x]\n---\n":                                      "field name",
		"---\nname: {a: b}\n---\n":                                   "field name",
		"---\nmetadata: x\n---\n":                                    "field metadata",
		"---\nmetadata: {a: [b]}\n---\n":                             "field metadata.a",
		"---\nallowed-tools: [[x]]\n---\n":                           "field allowed-tools",
		"---\nname: &a x\n---\n":                                     "not allowed",
		"---\nname: *a\n---\n":                                       "not allowed",
		"---\nname: 'x\n---\n":                                       "YAML",
		"---\nname: x\nname: y\n---\n":                               "YAML",
		"---\nx: " + strings.Repeat("[", 100) + "\n---\n":            "nested deeper",
		"---\nx: " + strings.Repeat("y", maxFrontmatter) + "\n---\n": "longer than",
		"---\nname: \xff\n---\n":                                     "UTF-8",
	} {
		_, err := parseDoc("a/SKILL.md", []byte(text))
		refused(t, err, tool.CodeInvalidInput, "a/SKILL.md", words)
	}
}

func TestListReadsEverySkillOfAFolder(t *testing.T) {
	dir := t.TempDir()
	kit.Write(t, filepath.Join(dir, "agent", skillFile), "---\nname: agent\ndescription: d\nmetadata: {version: 3}\n---\nbody")
	kit.Write(t, filepath.Join(dir, "program", manifestFile), `{"id":"prog","version":"1.2","description":"p","runtime":"python","entry":"x.py"}`)
	kit.Write(t, filepath.Join(dir, "bad", manifestFile), `{`)
	kit.Write(t, filepath.Join(dir, "nothing", "file"), ``)
	kit.Write(t, filepath.Join(dir, ".hidden", skillFile), ``)
	kit.Write(t, filepath.Join(dir, "file"), ``)
	kit.OK(t, os.MkdirAll(filepath.Join(dir, "fifo"), 0o755))
	kit.OK(t, syscall.Mkfifo(filepath.Join(dir, "fifo", skillFile), 0o600))
	skills, err := Skills{}.List(dir)
	kit.OK(t, err)
	var got []string
	for _, s := range skills {
		got = append(got, fmt.Sprintf("%s %s %s %v", s.Name(), s.Version(), s.Description(), s.Err == nil))
	}
	kit.Equal(t, cmp.Diff([]string{"agent 3 d true", "bad   false", "fifo   false", "prog 1.2 p true"}, got), "")
	_, err = Skills{}.List(filepath.Join(dir, "missing"))
	refused(t, err, tool.CodeUnavailable, "missing")
}

// contract(alphahuman): `skill.json` is a manifest.
func TestAManifestMayBeASkillJSON(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	copySkill(t, "first", filepath.Join(dir, "first"))
	move(t, filepath.Join(dir, "first", manifestFile), filepath.Join(dir, "first", otherManifest))
	kit.Write(t, filepath.Join(dir, "both", manifestFile), `{"version":"1","runtime":"node","entry":"x.js"}`)
	kit.Write(t, filepath.Join(dir, "both", otherManifest), `{`)
	kit.Write(t, filepath.Join(dir, "bad", otherManifest), `{"name":"bad"}`)
	kit.Write(t, filepath.Join(dir, "notes", otherManifest), `{"author":"somebody"}`)
	kit.Write(t, filepath.Join(dir, "notes", skillFile), "---\nname: notes\ndescription: d\n---\nbody")
	skills := kit.Must(Skills{}.List(dir))(t)
	var got []string
	for _, s := range skills {
		got = append(got, fmt.Sprintf("%s %v %v", s.Name(), s.Manifest != nil, s.Err))
	}
	want := []string{
		"bad false invalid_input: " + filepath.Join(dir, "bad", otherManifest) + ": field runtime: missing; say how the skill is started, " +
			`such as {"type":"subprocess","command":"python3","args":["skill.py"]}`,
		"both true <nil>", "first true <nil>", "notes false <nil>",
	}
	kit.Equal(t, cmp.Diff(want, got), "")
	if found := (Skills{}).Check(filepath.Join(dir, "bad")); len(found) != 2 || !strings.HasPrefix(found[1].String(), "error: skill.json: field runtime: ") {
		t.Errorf("found %q", found)
	}
	r, _ := open(t, Options{Skill: filepath.Join(dir, "first")})
	says(t, r, "say", `{"text":"x"}`, `"x"`)
}

// contract(alphahuman): a folder with `skill.py` and no manifest is listed as unavailable with its reason, also beside a `SKILL.md`.
func TestIncompleteSkillIsListedWithTheReason(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	for file, text := range map[string]string{
		"lower/skill.md":           "---\nname: x\n---\n",
		"upper/MANIFEST.JSON":      `{"runtime":"python","entry":"x.py"}`,
		"yaml/manifest.yaml":       "runtime: python",
		"script/skill.py":          "print()",
		"beside/skill.py":          "print()",
		"beside/SKILL.md":          "---\nname: beside\ndescription: It is a program.\n---\nUse it.\n",
		"module/__main__.py":       "print()",
		"js/package.json":          "{}",
		"group/pdf/SKILL.md":       "---\nname: pdf\ndescription: d\n---\nbody",
		"folder/SKILL.md/file":     "",
		"say/main.py":              "",
		"papers/notes.txt":         "nothing that looks like a skill",
		"__pycache__/skill.py":     "",
		"node_modules/x/index.js":  "",
		".git/skill.py":            "",
		"lib/strings.py":           "",
		"works/manifest.json":      kit.Read(t, "testdata/first/manifest.json"),
		"works/skill.py":           kit.Read(t, "testdata/first/skill.py"),
		"works-too/SKILL.md":       "---\nname: say\ndescription: d\n---\nbody",
		"works-too/manifest.json":  `{`,
		"a file that is no folder": "",
	} {
		kit.Write(t, filepath.Join(dir, file), text)
	}
	for link, target := range map[string]string{"gone": "nowhere", "half/SKILL.md": "nowhere", "linked": "works"} {
		kit.OK(t, errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755), os.Symlink(target, filepath.Join(dir, link))))
	}
	want := map[string]string{
		"lower": "it has skill.md, which has to be named SKILL.md", "upper": "it has MANIFEST.JSON, which has to be named manifest.json",
		"yaml": "it has manifest.yaml; a manifest is JSON, in manifest.json or skill.json", "script": "it has skill.py, but no manifest.json or skill.json",
		"beside": "beside is not an Agent Skill: it has skill.py, but no manifest.json or skill.json that says how it is started",
		"module": "it has __main__.py, but no manifest", "js": "it has package.json, but no manifest", "group": "pdf in it is one",
		"folder": "SKILL.md cannot be read: it is not a file", "gone": "a link that leads nowhere", "half": "SKILL.md cannot be read: no such file",
		"say": "it has main.py", "works-too": "manifest.json",
	}
	skills, err := Skills{}.List(dir)
	kit.OK(t, err)
	var works []string
	for _, s := range skills {
		folder := filepath.Base(s.Dir)
		if s.Err == nil {
			works = append(works, folder)
			continue
		}
		if words := want[folder]; words == "" || !strings.Contains(s.Err.Error(), words) {
			t.Errorf("%s: %v", folder, s.Err)
		}
		if !slices.ContainsFunc((Skills{}).Check(s.Dir), func(f Finding) bool { return f.Error }) {
			t.Errorf("check finds nothing wrong with %s", folder)
		}
	}
	if len(skills) != len(want)+2 || !slices.Equal(works, []string{"linked", "works"}) {
		t.Errorf("%d skills, of which these work: %q", len(skills), works)
	}
	// They are on the list of tools too, and no tool is renamed because of them.
	kit.OK(t, os.Remove(filepath.Join(dir, "linked")))
	r, _ := open(t, Options{Skills: dir})
	says(t, r, "say", `{"text":"x"}`, `"x"`)
	delete(want, "say")
	want["say_2"] = "it has main.py"
	for name, words := range want {
		kit.Fails(t, r.Unavailable(name), words, name)
	}
	_, err = call(t, r, "script", `{}`)
	refused(t, err, tool.CodeUnavailable, "it has skill.py")
	_, err = NewRunner(".", Options{Skill: filepath.Join(dir, "script")}, (&records{}).logger())
	refused(t, err, tool.CodeUnavailable, "it has skill.py")
	_, err = NewRunner(".", Options{Skills: filepath.Join(dir, "works")}, (&records{}).logger())
	refused(t, err, tool.CodeInvalidInput, "is a skill and not a folder of skills")
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, doc, manifest string
		want                []string
	}{
		{"good", "---\nname: good\ndescription: d\n---\nbody", ``, nil},
		{"good", "---\nname: good\ndescription: d\n---\nbody", `{"runtime":"python","entry":"x.py"}`, []string{"error: x.py: missing"}},
		{"x", "", `{"runtime":{"type":"subprocess","command":"no-such-program"}}`, []string{"error: SKILL.md: missing", "error: manifest.json: field runtime: no-such-program was not found, or is not executable"}},
		{"x", "body", `{}`, []string{"error: SKILL.md: field name: missing", "error: SKILL.md: field description: missing", "error: manifest.json: field runtime: missing"}},
		{"x", "---\nname: Big Name\ndescription: " + strings.Repeat("d", 1025) + "\ncompatibility: " + strings.Repeat("c", 501) + "\nodd: 1\n---\n", ``, []string{
			"error: SKILL.md: field name: \"Big Name\"", "error: SKILL.md: field description: 1025", "error: SKILL.md: field compatibility: 501",
			"warning: SKILL.md: field odd", "warning: SKILL.md: there are no instructions",
		}},
		{"x", "---\nname: y\ndescription: d\n---\nb", `{"runtime":{"type":"subprocess","command":"python3","args":["-c","1"]},"dependencies":["-e ."]}`, []string{
			"warning: SKILL.md: field name: \"y\" differs", "error: manifest.json: field dependencies", "warning: requirements.txt: its packages are not installed",
		}},
		{"x", "---\nname: [\n---\nb", ``, []string{"error: SKILL.md: line 2, "}},
	} {
		dir := filepath.Join(t.TempDir(), c.name)
		for file, text := range map[string]string{skillFile: c.doc, manifestFile: c.manifest} {
			if text != "" {
				kit.Write(t, filepath.Join(dir, file), text)
			}
		}
		found := Skills{}.Check(dir)
		if len(found) != len(c.want) {
			t.Errorf("found %q, want %q", found, c.want)
			continue
		}
		for i, f := range found {
			if !strings.HasPrefix(f.String(), c.want[i]) {
				t.Errorf("found %q, want %q", f, c.want[i])
			}
		}
	}
	if found := (Skills{}).Check(t.TempDir()); len(found) != 1 || !found[0].Error {
		t.Errorf("an empty folder: %q", found)
	}
}

func TestNewWritesOnlyNewFoldersWithGoodNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", "A", "a b", "../x", "-a", "a-", "a--b", strings.Repeat("a", 65), "a/b"} {
		kit.Refused(t, kit.Err((Skills{}).New(dir, name)), tool.CodeInvalidInput, "", name)
	}
	kit.Must((Skills{}).New(dir, "a1-b2"))(t)
	_, err := Skills{}.New(dir, "a1-b2")
	refused(t, err, tool.CodeConflict, "exists")
}

// contract(alphahuman): scripts/, references/, assets/ on demand
func TestAgentSkillsAreActivatedAndRead(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	kit.Write(t, filepath.Join(dir, "pdf", skillFile), "---\nname: pdf\ndescription: For PDF files.\nallowed-tools: Read\nlicense: MIT\n---\nDo this.")
	kit.Write(t, filepath.Join(dir, "pdf", "references", "deep", "guide.md"), "größe")
	kit.Write(t, filepath.Join(dir, "pdf", "scripts", "run.sh"), "#!/bin/sh")
	kit.Write(t, filepath.Join(dir, "pdf", "FORMS.md"), "fill")
	kit.Write(t, filepath.Join(dir, "pdf", "templates", "letter.txt"), "Dear")
	kit.Write(t, filepath.Join(dir, "pdf", "scripts", "__pycache__", "run.pyc"), "")
	for n := range maxListed {
		kit.Write(t, filepath.Join(dir, "other", "data", fmt.Sprint(n)), "")
	}
	kit.Write(t, filepath.Join(dir, "other", skillFile), "---\nname: other\ndescription: o\n---\nB")
	secret := filepath.Join(t.TempDir(), "secret")
	kit.Write(t, secret, "secret")
	kit.OK(t, os.Symlink(secret, filepath.Join(dir, "pdf", "references", "link")))
	kit.OK(t, syscall.Mkfifo(filepath.Join(dir, "pdf", "pipe"), 0o600))
	r, _ := open(t, Options{Skills: dir})
	specs, err := r.Tools(t.Context())
	if err != nil || len(specs) != 2 || specs[0].Name != "activate_skill" || specs[1].Name != "read_skill_file" || !specs[0].Effects.ReadOnly() {
		t.Fatalf("got %+v, %v", specs, err)
	}
	if !strings.Contains(specs[0].Description, "- pdf: For PDF files.") || !strings.Contains(string(specs[0].Input), `"enum":["other","pdf"]`) {
		t.Errorf("activate_skill is %s %s", specs[0].Description, specs[0].Input)
	}
	for _, s := range specs {
		kit.Check(t, strictjson.CheckObject(s.Input), s.Name)
	}
	says(t, r, "activate_skill", `{"name":"pdf"}`,
		`{"name":"pdf","description":"For PDF files.","license":"MIT","allowed_tools":["Read"],"instructions":"Do this.",`+
			`"files":["FORMS.md","SKILL.md","references/deep/guide.md","scripts/run.sh","templates/letter.txt"]}`)
	says(t, r, "read_skill_file", `{"name":"pdf","path":"FORMS.md"}`, `{"content":"fill"}`)
	says(t, r, "read_skill_file", `{"name":"pdf","path":"references/deep/guide.md"}`, `{"content":"größe"}`)
	result, err := call(t, r, "activate_skill", `{"name":"other"}`) // SKILL.md makes it one too many
	if err != nil || strings.Count(string(result.Output), `"data/`) != maxListed-1 || !strings.Contains(string(result.Output), `"more_files":true`) {
		t.Errorf("a long list is %.200s, %v", result.Output, err)
	}
	for args, code := range map[string]tool.Code{
		`{"name":"nobody"}`: tool.CodeNotFound,
		`{"name":7}`:        tool.CodeInvalidInput,
		`{"name":"pdf","path":"../other/SKILL.md"}`: tool.CodeNotFound,
		`{"name":"pdf","path":"references/link"}`:   tool.CodeNotFound,
		`{"name":"pdf","path":"/etc/passwd"}`:       tool.CodeNotFound,
		`{"name":"pdf","path":"references"}`:        tool.CodeNotFound,
		`{"name":"pdf","path":"pipe"}`:              tool.CodeNotFound,
		`{"name":"pdf","path":"none"}`:              tool.CodeNotFound,
	} {
		_, err := call(t, r, "read_skill_file", args)
		refused(t, err, code)
	}
}

// contract(alphahuman): `requirements.txt` is installed into a per-skill venv on `toolpost skill install`, never silently.
// contract(alphahuman): requirements.txt  # Optional: Python dependencies
func TestInstallMakesAnEnvironmentThatTheRunnerUses(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while")
	}
	tooltest.NoLeaks(t)
	dir := filepath.Join(t.TempDir(), "sk")
	copySkill(t, "first", dir)
	wheel(t, filepath.Join(dir, "greeting-1.0-py3-none-any.whl"))
	kit.Write(t, filepath.Join(dir, requirementsFile), "./greeting-1.0-py3-none-any.whl\n")
	kit.Write(t, filepath.Join(dir, "skill.py"), "import greeting\n"+kit.Read(t, "testdata/first/skill.py"))
	r, _ := open(t, Options{Skill: dir})
	_, err := r.Tools(t.Context())
	refused(t, err, tool.CodeCrash, "No module named 'greeting'") // never silently
	var log bytes.Buffer
	if err := (Skills{}).Install(t.Context(), dir, &log); err != nil {
		if strings.Contains(log.String(), "ensurepip") {
			t.Skip("this Python has no ensurepip")
		}
		t.Fatalf("%v\n%s", err, &log)
	}
	r, _ = open(t, Options{Skill: dir})
	says(t, r, "say", `{"text":"x"}`, `"x"`)
}

// wheel makes a Python package that has one empty module.
func wheel(t testing.TB, path string) {
	script := `import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    info = "greeting-1.0.dist-info/"
    z.writestr("greeting.py", "")
    z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr(info + "RECORD", "greeting.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n")
`
	if out, err := exec.Command("python3", "-c", script, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestInstallExplainsFailures(t *testing.T) {
	tooltest.NoLeaks(t)
	var log bytes.Buffer
	dir := filepath.Join(t.TempDir(), "sk")
	copySkill(t, "first", dir)
	if err := (Skills{}).Install(t.Context(), dir, &log); err != nil || !strings.Contains(log.String(), "needs no packages") {
		t.Errorf("%v, %s", err, &log)
	}
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(dir, venvFolder))), "", "an environment was made for nothing")
	refused(t, Skills{}.Install(t.Context(), t.TempDir(), &log), tool.CodeUnavailable, "not a skill")
	kit.Write(t, filepath.Join(dir, manifestFile), `{"runtime":"node","entry":"x.js"}`)
	refused(t, Skills{}.Install(t.Context(), dir, &log), tool.CodeUnsupported, "not a Python skill")
	kit.Write(t, filepath.Join(dir, manifestFile), `{"runtime":"python","entry":"x.py","dependencies":["x"]}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	refused(t, Skills{}.Install(ctx, dir, &log), tool.CodeCancelled)
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(dir, venvFolder))), "", "half an environment was left")
	kit.OK(t, os.MkdirAll(filepath.Join(dir, venvFolder), 0o755))
	r, _ := open(t, Options{Skill: dir})
	_, err := r.Tools(t.Context())
	refused(t, err, tool.CodeUnavailable, ".venv exists, but", "toolpost skill install")
}
