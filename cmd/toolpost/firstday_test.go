package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"toolpost/internal/kit"
)

// A day is a tmux server with a window for each person, all of them in one folder.
type day struct {
	t      *testing.T
	socket string
	dir    string
	url    string // of the server, once it has shown it
	line   string // the last match of a pattern with a group
}

// A step is what a person types, and what the terminal then shows: all of these patterns, and at the end a prompt unless
// the program stays.
type step struct {
	who   string
	types string // {URL} is the server's address, and {LINE} the last match
	shows []string
	stays bool // the program keeps running
}

// TestAFirstDayInATerminal plays the day of first-day.txtar, with its files, in a real terminal.
func TestAFirstDayInATerminal(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("tmux is missing; `make setup` installs it")
		}
		t.Skip("tmux is missing; `make setup` installs it")
	}
	d := newDay(t, "server", "ada", "grace", "late")
	const (
		ada, grace = ` --server {URL} --token $(cat ada)`, ` --server {URL} --token $(cat grace)`
		owner      = ` --server {URL} --token $(cat owner)`
		serve      = "toolpost serve --listen 127.0.0.1:0"
	)
	serving := []string{`serving on http://127`, `curl`}
	for _, s := range []step{
		// A program that is wrapped without code, and reports its progress.
		{who: "ada", types: "sh draft.sh && toolpost config check", shows: []string{`(?m)^render +command +ok`}},
		{who: "ada", types: "toolpost call render pages=2", shows: []string{`(?m)^rendered 2 pages`, `✓ render`}},
		// A Python function with a dependency.
		{who: "ada", types: "toolpost call count_words text='one two two'", shows: []string{`No module named 'tally'`}},
		{who: "ada", types: "sh install.sh"},
		{who: "ada", types: "toolpost call count_words text='one two two'", shows: []string{`"two": 2`}},
		// A skill with state.
		{who: "ada", types: "toolpost skill new notebook", shows: []string{`wrote skills/notebook`}},
		{who: "ada", types: "cp notebook.py skills/notebook/skill.py"},
		{who: "ada", types: "toolpost call remember note='buy oil' --session day", shows: []string{`note 1: buy oil`}},
		// Two users.
		{who: "ada", types: "toolpost token issue ada > ada", shows: []string{`for ada, valid .* not shown again`}},
		{who: "ada", types: "toolpost token issue grace > grace", shows: []string{`for grace`}},
		{who: "server", types: serve, stays: true, shows: append(serving, `token tp_`, `token new-owner. replaces it`)},
		{who: "ada", types: "toolpost call remember --session day note=mine" + ada, shows: []string{`note 1: mine`}},
		{who: "grace", types: "toolpost call remember --session day note=hers" + grace, shows: []string{`not found|no tool`}},
		// Edits are noticed: of an app, a skill and the config.
		{who: "ada", types: "cat letters.ai >> words/app.ai"},
		{who: "server", shows: []string{`source=words tools="added count_letters"`}, stays: true},
		{who: "grace", types: "toolpost call count_letters text=noon" + grace, shows: []string{`"letters": 4`}},
		{who: "ada", types: "sed -i s/down/up/ skills/notebook/skill.py"},
		{who: "server", shows: []string{`source=skills tools="changed remember"`}, stays: true},
		{who: "ada", types: "sed -i 's/grace: .*/grace: {roles: [writer]}/' toolpost.yaml"},
		{who: "server", shows: []string{`config reloaded`}, stays: true},
		{who: "grace", types: "toolpost call remember --session day note=hers" + grace, shows: []string{`note 1: hers`}},
		// The token is lost, and another is made. Its holder may reload.
		{who: "ada", types: "toolpost token new-owner > owner", shows: []string{`the one before it is no longer valid`}},
		{who: "ada", types: "until toolpost tools" + owner + " > /dev/null 2>&1; do :; done"},
		// A blocked attempt, fixed by following its own message.
		{
			who: "grace", types: "toolpost call render out=pages/book.txt" + grace,
			shows: []string{"blocked by the walls of source \"render\": writing .*; to allow it: `(walls: .*)`\n"},
		},
		{who: "ada", types: "sh allow.sh '{LINE}'"},
		{who: "ada", types: "toolpost reload" + owner, shows: []string{`(?m)^reloaded`}},
		{who: "grace", types: "toolpost call render out=pages/book.txt" + grace, shows: []string{`(?m)^rendered 3 pages`}},
		// Ctrl-C ends the server in good order, and the next one has no token to show.
		{who: "server", types: "C-c", shows: []string{`shutting down`}},
		{who: "server", types: serve, stays: true, shows: serving},
		{who: "ada", types: "toolpost call remember --session day note=again" + ada, shows: []string{`note 2: again`}},
	} {
		d.do(s)
	}
	d.closes("server")
	for _, s := range []step{
		// A config folder that is read-only.
		{who: "ada", types: "mv .toolpost ../state"},
		{
			who: "late", types: "sh readonly.sh " + serve + " --state ../state", stays: true,
			shows: append(serving, `state in /.*/state\n`),
		},
		{who: "ada", types: "toolpost call remember --session day note=late" + ada, shows: []string{`note 3: late`}},
		{who: "late", types: "C-c", shows: []string{`shutting down`}},
	} {
		d.do(s)
	}
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(d.dir, ".toolpost"))),
		"", "a folder .toolpost was made in a folder that is read-only")
}

func newDay(t *testing.T, people ...string) *day {
	t.Helper()
	script := kit.Must(txtar.ParseFile("testdata/script/first-day.txtar"))(t)
	top := t.TempDir()
	d := &day{t: t, dir: filepath.Join(top, "day")}
	self := kit.Must(os.Executable())(t)
	for _, f := range script.Files {
		name := filepath.Join(top, f.Name)
		kit.OK(t, os.MkdirAll(filepath.Dir(name), 0o700))
		kit.OK(t, os.WriteFile(name, f.Data, 0o600))
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "toolpost")); err != nil { // by this name it is the program
		t.Fatal(err)
	}
	short, err := os.MkdirTemp("", "day") // the names of tests are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	d.socket = filepath.Join(short, "tmux")
	t.Cleanup(func() {
		defer os.RemoveAll(short)
		started := d.started()
		_ = exec.Command("tmux", "-S", d.socket, "kill-server").Run()
		for _, p := range awaitEnd(started) {
			t.Errorf("left behind: %s", p.name)
			_ = syscall.Kill(p.id, syscall.SIGKILL)
		}
	})
	for i, who := range people {
		words := []string{"new-window", "-d", "-n", who}
		if i == 0 {
			words = []string{"new-session", "-d", "-s", "day", "-n", who, "-x", "150", "-y", "50"}
		}
		d.tmux(append(words, "-c", d.dir, "env", "-i", "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+d.dir, "TERM=screen",
			"LANG=C.UTF-8", "GORACE=atexit_sleep_ms=0", "PS1=> ", "sh")...)
		d.shows(who, `(?m)^> $`)
	}
	return d
}

func (d *day) tmux(words ...string) string {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), "tmux", append([]string{"-S", d.socket, "-f", "/dev/null"}, words...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("tmux %q: %v\n%s", words, err, out)
	}
	return string(out)
}

// do types a line into a cleared window, and waits for what it shows. A step that types nothing only waits.
func (d *day) do(s step) {
	d.t.Helper()
	switch s.types {
	case "":
	case "C-c":
		d.tmux("send-keys", "-t", s.who, s.types)
	default:
		// Otherwise old output is mistaken for new. The terminal clears itself, instead of a command: that would run while
		// the next line is typed, erase its echo, and leave the prompt in front of what the line prints.
		d.tmux("send-keys", "-R", "-t", s.who)
		d.enter(s.who, strings.NewReplacer("{URL}", d.url, "{LINE}", d.line).Replace(s.types))
	}
	for _, pattern := range s.shows {
		d.shows(s.who, pattern)
	}
	if !s.stays {
		d.shows(s.who, `(?m)^> *\n*\z`)
	}
	if url := regexp.MustCompile(`(?m)^serving on (http://\S+)`).FindStringSubmatch(d.screen(s.who)); url != nil {
		d.url = url[1]
	}
}

func (d *day) enter(who, line string) {
	d.t.Helper()
	d.tmux("send-keys", "-t", who, "-l", line)
	d.tmux("send-keys", "-t", who, "Enter")
}

func (d *day) screen(who string) string { return d.tmux("capture-pane", "-p", "-J", "-t", who) }

func (d *day) shows(who, pattern string) {
	d.t.Helper()
	wanted := regexp.MustCompile(pattern)
	kit.Until(d.t, func() error {
		screen := d.screen(who)
		found := wanted.FindStringSubmatch(screen)
		if found == nil {
			return fmt.Errorf("the terminal of %s does not show %q:\n%s", who, pattern, screen)
		}
		d.line = append(found, d.line)[1]
		return nil
	})
}

// closes closes a terminal: nothing that was started in it may be left.
func (d *day) closes(who string) {
	d.t.Helper()
	id := kit.Must(strconv.Atoi(strings.TrimSpace(d.tmux("display-message", "-p", "-t", who, "#{pane_pid}"))))(d.t)
	started := treeOf(id)
	if len(started) < 3 {
		d.t.Errorf("there are no more than %v, so a server with a warm worker is not among them", started)
	}
	d.tmux("kill-pane", "-t", who)
	for _, p := range awaitEnd(started) {
		d.t.Errorf("the terminal was closed, and left behind: %s", p.name)
	}
}

// started returns all processes below the tmux server, which is not a child of ours.
func (d *day) started() []proc {
	out, err := exec.Command("tmux", "-S", d.socket, "display-message", "-p", "#{pid}").Output()
	if err != nil {
		return nil
	}
	id, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return nil
	}
	return treeOf(id)
}

// A proc identifies a process even if its id is reused.
type proc struct {
	id    int
	name  string
	start string
}

// treeOf lists a process and all its descendants.
func treeOf(id int) []proc {
	p, ok := procOf(id)
	if !ok {
		return nil
	}
	found := []proc{p}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", id))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				found = append(found, treeOf(n)...)
			}
		}
	}
	return found
}

// procOf returns what is known of a process, or false if it does not exist or has ended.
func procOf(id int) (proc, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return proc{}, false
	}
	end := bytes.LastIndexByte(stat, ')') // of the name, which may contain anything
	rest := strings.Fields(string(stat[end+1:]))
	return proc{id: id, name: string(stat[:end+1]), start: rest[19]}, rest[0] != "Z" && rest[0] != "X"
}

// awaitEnd waits until all of these have ended, and returns those that have not in time.
func awaitEnd(all []proc) []proc {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		all = slices.DeleteFunc(all, func(p proc) bool {
			now, runs := procOf(p.id)
			return !runs || now.start != p.start
		})
		if len(all) == 0 || time.Now().After(end) {
			return all
		}
	}
}
