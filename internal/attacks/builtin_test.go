package attacks

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// TestFileToolsCannotTouchProtectedFiles attacks the same files with the tools that run in our own process, by every name
// that leads to them.
func TestFileToolsCannotTouchProtectedFiles(t *testing.T) {
	p := newPlace(t, os.Geteuid())
	files := room{source: "{name: files, protocol: builtin, roots: [{path: ., write: true, hard_links: allow}], " +
		"sensitive: {allow: ['*.pem', '*.key']}, #%s}"}
	p.config(t, append([]room{files}, slices.DeleteFunc(rooms(), func(r room) bool { return r.name == "execShell" })...))
	links := p.link(t)
	s := served.Start(t, served.Build(t), p.dir)
	kit.Must(s.Raw(t.Context(), "listFiles", "{}"))(t) // the first call creates the store
	before := p.state(t)
	total := 0
	call := func(name string, args map[string]any) string {
		total++
		text := kit.Must(json.Marshal(args))(t)
		return kit.Must(s.Raw(t.Context(), name, string(text)))(t)
	}
	for _, args := range lookups(append(slices.DeleteFunc(absent(), isConfig), links...)) {
		said := call(args["tool"].(string), args["args"].(map[string]any))
		for _, mark := range marks() {
			if strings.Contains(said, mark) {
				t.Fatalf("%v gave %q: %.300s", args, mark, said)
			}
		}
	}
	for _, args := range alterations(p.dir, append(fixed(), links...)) {
		said := call(args["tool"].(string), args["args"].(map[string]any))
		if changed := p.differences(t, before); len(changed) > 0 {
			t.Fatalf("%v changed %s: %.300s", args, strings.Join(changed, "\n"), said)
		}
	}
	t.Logf("%d attempts", total)
	kit.Contains(t, call("readFile", map[string]any{"path": "toolpost.yaml"}),
		banner, "a built-in reader cannot read the config")
	s.Stop(t)
}

// isConfig reports whether a file is the config, which built-in readers may read.
func isConfig(name string) bool { return name == "toolpost.yaml" }

// link makes other names for the absent files: symbolic and hard links, to files and to folders above them.
func (p *place) link(t *testing.T) (names []string) {
	t.Helper()
	for i, name := range []string{"keys/secret.txt", "store.key", "tls/key.pem", ".toolpost/canary"} {
		link, hard, dir := fmt.Sprintf("work/link%d", i), fmt.Sprintf("work/hard%d", i), fmt.Sprintf("work/dir%d", i)
		kit.OK(t, os.Symlink(filepath.Join(p.dir, name), filepath.Join(p.dir, link)))
		kit.OK(t, os.Link(filepath.Join(p.dir, name), filepath.Join(p.dir, hard)))
		kit.OK(t, os.Symlink(filepath.Dir(filepath.Join(p.dir, name)), filepath.Join(p.dir, dir)))
		names = append(names, link, hard, dir+"/"+filepath.Base(name))
	}
	return names
}

type toolCall = map[string]any

func lookups(paths []string) (calls []toolCall) {
	for _, name := range paths {
		for _, path := range []string{name, "./" + name, "work/../" + name, strings.ToUpper(name)} {
			calls = append(calls,
				toolCall{"tool": "readFile", "args": toolCall{"path": path}},
				toolCall{"tool": "readFile", "args": toolCall{"path": path, "offset": 1, "length": 4096}},
				toolCall{"tool": "readFile", "args": toolCall{"path": path, "stream": true}},
				toolCall{"tool": "grepCode", "args": toolCall{"pattern": ".", "path": path, "hidden": true, "ignored": true}},
				toolCall{"tool": "listFiles", "args": toolCall{"path": path, "recursive": true}})
		}
	}
	for _, pattern := range []string{canary, canary[1:], "SQLite", "PRIVATE", "414e"} {
		calls = append(calls, toolCall{"tool": "grepCode", "args": toolCall{"pattern": pattern, "hidden": true, "ignored": true, "globs": []string{"!toolpost.yaml"}}})
	}
	return append(calls, toolCall{"tool": "searchCode", "args": toolCall{"query": canary}})
}

func alterations(dir string, paths []string) (calls []toolCall) {
	for _, name := range paths {
		for _, path := range []string{name, dir + "/" + name} {
			calls = append(calls,
				toolCall{"tool": "writeFile", "args": toolCall{"path": path, "content": "EVIL"}},
				toolCall{"tool": "writeFile", "args": toolCall{"path": path, "content": "EVIL", "append": true}},
				toolCall{"tool": "writeFile", "args": toolCall{"path": path + "/bin/python", "content": "EVIL"}},
				toolCall{"tool": "editFile", "args": toolCall{"path": path, "old": "a", "new": "EVIL", "replace_all": true}},
				toolCall{"tool": "moveFile", "args": toolCall{"from": path, "to": "work/moved"}},
				toolCall{"tool": "moveFile", "args": toolCall{"from": "evil/toolpost.yaml", "to": path, "overwrite": true}},
				toolCall{"tool": "makeFolder", "args": toolCall{"path": path + "/bin"}},
				toolCall{"tool": "deleteFile", "args": toolCall{"path": path}})
			if above := filepath.Dir(path); above != "." && above != dir {
				calls = append(calls, toolCall{"tool": "moveFile", "args": toolCall{"from": above, "to": above + ".gone"}},
					toolCall{"tool": "deleteFile", "args": toolCall{"path": above}})
			}
		}
	}
	return calls
}

// TestNoCommandReplacesTheConfig lets ordinary programs try to replace the config with their own, and read the absent
// files.
func TestNoCommandReplacesTheConfig(t *testing.T) {
	p := newPlace(t, os.Geteuid())
	p.write(t, p.dir+"/work/script.sh", "cp evil/toolpost.yaml toolpost.yaml; mv -f evil/toolpost.yaml toolpost.yaml; "+
		"rm -rf app/tools skills; ln -sf /etc/hostname events.py; cat keys/secret.txt .toolpost/canary store.key toolpost.yaml; rev keys/secret.txt\n", 0o755)
	programs := "tar, unzip, cp, mv, git, sh, rev, cat, rm, ln, tee, sed, truncate, dd, rsync, install, python3, od, base64, gzip"
	files := room{source: "{name: files, protocol: builtin, roots: [{path: ., write: true}], shell: {allow: [" + programs + "]}, #%s}"}
	p.config(t, append([]room{files}, slices.DeleteFunc(rooms(), func(r room) bool { return r.name == "execShell" })...))
	p.archives(t)
	s := served.Start(t, served.Build(t), p.dir, "PATH=/usr/local/bin:/usr/bin:/bin")
	kit.Must(s.Raw(t.Context(), "listFiles", "{}"))(t) // the first call creates the store
	before := p.state(t)
	ran := 0
	for _, argv := range commands() {
		text := kit.Must(json.Marshal(map[string]any{"command": argv[0], "args": argv[1:]}))(t)
		said := kit.Must(s.Raw(t.Context(), "execShell", string(text)))(t)
		if changed := p.differences(t, before); len(changed) > 0 {
			t.Fatalf("%q changed %s: %.500s", argv, strings.Join(changed, "\n"), said)
		}
		for _, mark := range append(marks(), reversed(canary)) {
			if strings.Contains(said, mark) {
				t.Errorf("%q gave %q: %.300s", argv, mark, said)
			}
		}
		if strings.Contains(said, "exit_code") {
			ran++
		}
	}
	t.Logf("%d commands, of which %d were let run", len(commands()), ran)
	if ran == 0 {
		t.Error("nothing was run at all")
	}
	s.Stop(t)
}

func reversed(s string) string {
	runes := []rune(s)
	slices.Reverse(runes)
	return string(runes)
}

// archives packs an attacker's config into every archive format that the programs unpack.
func (p *place) archives(t *testing.T) {
	t.Helper()
	for _, argv := range [][]string{
		{"tar", "-C", "evil", "-cf", "work/evil.tar", "toolpost.yaml"},
		{"python3", "-c", "import zipfile; zipfile.ZipFile('work/evil.zip', 'w').write('evil/toolpost.yaml', 'toolpost.yaml')"},
		{"git", "init", "-q", "."},
		{"git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "empty"},
		{"git", "checkout", "-q", "-b", "evil"},
		{"sh", "-c", "cp toolpost.yaml saved && cp evil/toolpost.yaml toolpost.yaml && git add -f toolpost.yaml"},
		{"git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "evil"},
		{"git", "checkout", "-q", "-"},
		{"mv", "saved", "toolpost.yaml"},
	} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = p.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
	}
}

func commands() [][]string {
	return [][]string{
		{"tar", "-xf", "work/evil.tar"}, {"tar", "-x", "-f", "work/evil.tar", "-C", "."}, {"tar", "--overwrite", "-xf", "work/evil.tar"},
		{"unzip", "-o", "work/evil.zip"}, {"unzip", "-o", "work/evil.zip", "-d", "."},
		{"cp", "evil/toolpost.yaml", "."}, {"cp", "-r", "evil/.", "."}, {"cp", "-t", ".", "evil/toolpost.yaml"}, {"cp", "-rT", "evil", "."},
		{"cp", "evil/toolpost.yaml", "toolpost.yaml"}, {"cp", "--remove-destination", "evil/toolpost.yaml", "."},
		{"mv", "-f", "evil/toolpost.yaml", "."}, {"mv", "app", "app2"}, {"mv", "skills", "work/skills"},
		{"install", "evil/toolpost.yaml", "."}, {"rsync", "-r", "evil/", "."},
		{"git", "checkout", "-f", "evil"}, {"git", "checkout", "evil", "--", "toolpost.yaml"}, {"git", "restore", "--source", "evil", "toolpost.yaml"},
		{"git", "reset", "--hard", "evil"}, {"git", "clean", "-fdx"}, {"git", "stash"}, {"git", "show", "evil:toolpost.yaml"},
		{"sh", "work/script.sh"}, {"sed", "-i", "s/a/b/", "toolpost.yaml"}, {"tee", "toolpost.yaml"}, {"truncate", "-s", "0", "toolpost.yaml"},
		{"dd", "if=evil/toolpost.yaml", "of=toolpost.yaml"}, {"rm", "-rf", "app"}, {"rm", "-f", "toolpost.yaml"}, {"ln", "-sf", "/etc/hostname", "toolpost.yaml"},
		{"rev", "keys/secret.txt"}, {"cat", ".toolpost/canary"}, {"cat", "store.key"}, {"cat", "tls/key.pem"}, {"cat", "toolpost.yaml"},
		{"od", "-c", "keys/secret.txt"}, {"base64", "store.key"}, {"tar", "-cf", "-", "keys"}, {"gzip", "-c", "store.key"}, {"cat", "data/tp.db"},
		{"cp", "-r", "keys", "work/copy"}, {"cat", "work/copy/secret.txt"}, {"rev", "work/copy/secret.txt"},
		{"git", "add", "-f", "keys"}, {"git", "diff", "--cached"}, {"git", "hash-object", "-w", "keys/secret.txt"},
	}
}
