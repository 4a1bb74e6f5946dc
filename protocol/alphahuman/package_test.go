package alphahuman

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/jsonrpc"
)

// packages copies a folder of skills that are packages, and returns the path of the complete one.
func packages(t testing.TB) (dir, skill string) {
	dir = t.TempDir()
	copySkill(t, "package", dir)
	return dir, filepath.Join(dir, "skills", "notes")
}

// noTmp turns off the private /tmp, which would hide the folders above the test's.
var noTmp = walls.Options{Tmp: -1}

// contract(alphahuman): a second-generation skill that is a package (`__main__.py` or `__init__.py` with relative imports) is run as `python -m <parent folder>.<folder>` from above its parent
func TestPackageSkillIsRunAsAModule(t *testing.T) {
	tooltest.NoLeaks(t)
	t.Setenv("PYTHONSAFEPATH", "1") // for the skill that names it
	for name, manifest := range map[string]string{
		"a language":               `{"runtime":"python","entry":"__main__.py"}`,
		"a command":                `{"runtime":{"type":"subprocess","command":"python3","args":["__main__.py"]}}`,
		"a module":                 `{"runtime":{"command":"python3","args":["-m","skills.notes"]}}`,
		"a command with a flag":    `{"runtime":{"command":"python3","args":["-u","__main__.py"]},"env":["PYTHONSAFEPATH"]}`,
		"a module of the package":  `{"runtime":"python","entry":"server.py"}`,
		"a package without a main": `{"runtime":"python","entry":"__init__.py"}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, skill := packages(t)
			kit.Write(t, filepath.Join(skill, manifestFile), manifest)
			switch main := filepath.Join(skill, "__main__.py"); {
			case strings.Contains(manifest, "server.py"):
				move(t, main, filepath.Join(skill, "server.py"))
			case strings.Contains(manifest, "__init__.py"):
				move(t, main, filepath.Join(skill, "__init__.py"))
			}
			r, _ := open(t, Options{Skill: skill, Options: spawn.Options{Walls: noTmp}})
			says(t, r, "greet", `{"name":"Ada"}`, `"Hello Ada"`)
			says(t, r, "shared", `{}`, `"shared by all skills"`)
		})
	}
}

func move(t testing.TB, from, to string) {
	t.Helper()
	kit.OK(t, os.Rename(from, to))
}

// A skill that is a script stays one: its imports start in its folder.
func TestScriptSkillIsRunAsAScript(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := filepath.Join(t.TempDir(), "sk")
	copySkill(t, "first", dir)
	kit.Write(t, filepath.Join(dir, "helper.py"), "")
	kit.Write(t, filepath.Join(dir, "__init__.py"), "from .skill import dispatch\n")
	kit.Write(t, filepath.Join(dir, "skill.py"), "import helper\n\"\"\"\nfrom .nowhere import nothing\n\"\"\"\n"+kit.Read(t, "testdata/first/skill.py"))
	r, _ := open(t, Options{Skill: dir})
	says(t, r, "say", `{"text":"x"}`, `"x"`)
}

// A package sees its own folder and ROOT, which is above its parent, but no other skills. If reading is forbidden, it sees
// only its code.
func TestAPackageSeesNoOtherSkill(t *testing.T) {
	tooltest.NoLeaks(t)
	dir, skill := packages(t)
	kit.Write(t, filepath.Join(dir, "config.txt"), "words of ROOT")
	other := filepath.Join(dir, "skills", "other", "secret.txt")
	look := fmt.Sprintf(`{"paths":[%q,%q,%q,%q,"config.txt"]}`, dir, filepath.Dir(skill), filepath.Join(dir, "config.txt"), other)
	for name, o := range map[string]Options{
		"the default": {}, "nothing may be read": {Options: spawn.Options{Guarantees: tool.Guarantees{NoFilesystemRead: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Skill, o.Walls = skill, noTmp
			r, _ := open(t, o)
			result, err := call(t, r, "look", look)
			if err != nil || !result.OK {
				t.Fatalf("%+v, %v", result, err)
			}
			for i, said := range strings.Split(jsonrpc.Text(result.Output), "; ") {
				if said == "words of ROOT" && !o.Guarantees.NoFilesystemRead {
					continue
				}
				if !slices.Contains([]string{"Permission denied", "No such file or directory", "skills", "__init__.py notes"}, said) {
					t.Errorf("it sees %q, number %d of %s", said, i, look)
				}
			}
		})
	}
	r, _ := open(t, Options{Skill: skill, Options: spawn.Options{Walls: walls.Options{Tmp: -1, Read: []string{filepath.Dir(other)}}}})
	says(t, r, "look", fmt.Sprintf(`{"paths":[%q]}`, other), `"the secret of anothe"`) // it is visible if the source grants it
}

// A package can import from ROOT, and modules beside the skills that are not skills; another skill only if it is granted.
func TestAPackageImportsFromItsRoot(t *testing.T) {
	tooltest.NoLeaks(t)
	dir, skill := packages(t)
	kit.Write(t, filepath.Join(dir, "dev", "runtime", "server.py"), `"""a library"""`)
	kit.Write(t, filepath.Join(dir, "single.py"), `"""a module"""`)
	kit.Write(t, filepath.Join(dir, "skills", "common", "__init__.py"), `"""beside the skills"""`)
	kit.Write(t, filepath.Join(dir, "skills", "other", "words.py"), `"""another skill"""`)
	use := func(r *Runner, module, want string) {
		t.Helper()
		says(t, r, "use", fmt.Sprintf(`{"module":%q}`, module), fmt.Sprintf("%q", want))
	}
	r, _ := open(t, Options{Skill: skill, Options: spawn.Options{Walls: noTmp}})
	use(r, "dev.runtime.server", "a library")
	use(r, "single", "a module")
	use(r, "skills.common", "beside the skills")
	use(r, "skills.other.words", "No module named 'skills.other'")
	use(r, "email.message", "Basic message object for the email package object model.") // Python's own modules take precedence
	given := walls.Options{Tmp: -1, Read: []string{filepath.Join(dir, "skills", "other")}}
	r, _ = open(t, Options{Skill: skill, Options: spawn.Options{Walls: given}})
	use(r, "skills.other.words", "another skill")
}

// The folders of a package are parts of its name, so they must be valid names.
func TestPackageWithInvalidFolderNamesIsExplained(t *testing.T) {
	dir, _ := packages(t)
	move(t, filepath.Join(dir, "skills"), filepath.Join(dir, "skills.d"))
	r, _ := open(t, Options{Skills: filepath.Join(dir, "skills.d")})
	kit.Must(r.Tools(t.Context()))(t)
	refused(t, r.Unavailable("notes"), tool.CodeInvalidInput, "skills.d", "a folder whose name has a dot cannot be a Python package")
}

// A slash after the name of a folder is not part of it.
func TestAPackageIsTheSameWithASlashBehindIt(t *testing.T) {
	tooltest.NoLeaks(t)
	_, skill := packages(t)
	r, _ := open(t, Options{Skill: skill + "/", Options: spawn.Options{Walls: noTmp}})
	says(t, r, "greet", `{"name":"Ada"}`, `"Hello Ada"`)
}

// Python's own writes are not reported as attempts of the skill: its folder is read-only, and an imported module would be
// compiled into it.
func TestAPythonSkillThatImportsIsNoAttempt(t *testing.T) {
	tooltest.NoLeaks(t)
	_, skill := packages(t)
	r, log := open(t, Options{Skill: skill, Options: spawn.Options{Walls: noTmp}})
	says(t, r, "greet", `{"name":"Ada"}`, `"Hello Ada"`)
	if got := log.String(); strings.Contains(got, "__pycache__") {
		t.Errorf("told: %s", got)
	}
}

// shipped are the packages of a host. All but one import its SDK.
var shipped = []string{
	"browser", "ccxt", "desktop", "email", "github", "notion", "otter", "server-ping", "skill-generator", "skillcoder",
	"slack", "telegram", "wallet",
}

// host makes the folder of a host: ROOT/dev with its SDK, ROOT/skills with its packages, each with data of its own, and the
// other files of a repository.
func host(t testing.TB) (root string) {
	t.Helper()
	root = t.TempDir()
	copySkill(t, "host", root)
	alone := kit.Read(t, "testdata/host/dev/runtime/server.py")
	for _, name := range shipped {
		skill, word := filepath.Join(root, "skills", name), strings.ReplaceAll(name, "-", "_")
		kit.Write(t, filepath.Join(skill, manifestFile), fmt.Sprintf(`{"id":%q,"name":%q,"version":"1.0.0",`+
			`"runtime":"python","entry":"__main__.py","tick_interval":null,"env":[],"dependencies":[]}`, name, name))
		kit.Write(t, filepath.Join(skill, "data", "config.json"), `{"token":"the token of `+name+`"}`)
		kit.Write(t, filepath.Join(skill, "__init__.py"), "")
		kit.Write(t, filepath.Join(skill, "tools.py"), fmt.Sprintf("NAME = %q\n", word+"_look"))
		imports := "from dev.runtime.server import SkillServer, look\nfrom dev.types.skill_types import SkillDefinition, SkillTool\n"
		if name == "server-ping" { // the one without dependencies
			kit.Write(t, filepath.Join(skill, "server.py"), strings.ReplaceAll(alone, "from dev.types.skill_types", "from .skill_types"))
			kit.Write(t, filepath.Join(skill, "skill_types.py"), kit.Read(t, "testdata/host/dev/types/skill_types.py"))
			imports = "from .server import SkillServer, look\nfrom .skill_types import SkillDefinition, SkillTool\n"
		}
		kit.Write(t, filepath.Join(skill, "skill.py"), imports+"from .tools import NAME\n\n"+
			"skill = SkillDefinition(tools=[SkillTool(name=NAME, run=look)])\n")
		kit.Write(t, filepath.Join(skill, "__main__.py"),
			"def main():\n    from .skill import skill, SkillServer\n    SkillServer(skill).start()\n\n\n"+
				"if __name__ == \"__main__\":\n    main()\n")
	}
	return root
}

// contract(alphahuman): the room of a package can read ROOT, with the SDK in `ROOT/dev`, without other packages' data.
//
// With the default walls every package of a host runs and sees its ROOT, except for the data of the others and secrets.
func TestThePackagesOfAHostRunBehindDefaultWalls(t *testing.T) {
	tooltest.NoLeaks(t)
	root := host(t)
	kit.Write(t, filepath.Join(root, "README.md"), "read me")
	for _, secret := range []string{".env", ".ssh/id", ".toolpost/token"} {
		kit.Write(t, filepath.Join(root, secret), "a secret of the host")
	}
	kit.OK(t, os.Symlink("/etc", filepath.Join(root, "leads-away")))
	for name, g := range map[string]tool.Guarantees{"the default": {}, "nothing may be read": {NoFilesystemRead: true}} {
		t.Run(name, func(t *testing.T) {
			r, _ := open(t, Options{Skills: filepath.Join(root, "skills"), Options: spawn.Options{Guarantees: g}})
			specs, err := r.Tools(t.Context())
			if err != nil || len(specs) != len(shipped) {
				t.Fatalf("%d tools, %v", len(specs), err)
			}
			for i, name := range shipped {
				look := strings.ReplaceAll(name, "-", "_") + "_look"
				if err := r.Unavailable(name); err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				other := filepath.Join(root, "skills", shipped[(i+1)%len(shipped)])
				for _, path := range []string{
					filepath.Join(other, "data", "config.json"), filepath.Join(other, "skill.py"), ".env", ".ssh/id",
					".toolpost/token", "leads-away/passwd",
				} {
					says(t, r, look, fmt.Sprintf(`{"path":%q}`, path), `"unseen"`)
				}
				says(t, r, look, `{"path":"dev/runtime/server.py"}`, `"The SDK of a host: i"`)
				if !g.NoFilesystemRead {
					says(t, r, look, `{"path":"README.md"}`, `"read me"`)
				}
			}
		})
	}
}

// A ROOT that is a user's home is not readable: the other files there have nothing to do with skills.
func TestAHomeIsNotGivenToAPackage(t *testing.T) {
	tooltest.NoLeaks(t)
	root := host(t)
	t.Setenv("HOME", root)
	r, _ := open(t, Options{Skills: filepath.Join(root, "skills"), source: "pkgs", Options: spawn.Options{Walls: noTmp}})
	kit.Must(r.Tools(t.Context()))(t)
	refused(t, r.Unavailable("slack"), tool.CodeCrash, "No module named 'dev'",
		`; blocked by the walls of source "pkgs": importing dev from `+root+"/dev; to allow it: `walls: {read: ["+root+"/dev]}`")
	given := walls.Options{Tmp: -1, Read: []string{filepath.Join(root, "dev")}}
	r, _ = open(t, Options{Skills: filepath.Join(root, "skills"), Options: spawn.Options{Walls: given}})
	if _, err := r.Tools(t.Context()); err != nil || r.Unavailable("slack") != nil {
		t.Errorf("%v, %v", err, r.Unavailable("slack"))
	}
}
