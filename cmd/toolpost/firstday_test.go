package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// A day is a tmux server with a window for each person, all of them in one folder.
type day struct {
	t      *testing.T
	socket string
	dir    string
	url    string // of the server, once it has shown it
}

// A step is what somebody types, and what their terminal then shows: all of these patterns, and at the end a prompt
// unless the program goes on.
type step struct {
	who   string
	types string // {URL} is the server's address
	shows []string
	stays bool // the program goes on
}

// The day of first-day.txtar, with its files, in a real terminal.
func TestAFirstDayInATerminal(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("tmux is missing; `make setup` installs it")
		}
		t.Skip("tmux is missing; `make setup` installs it")
	}
	d := newDay(t, "server", "ada", "grace")
	const remember = `toolpost call remember --session day --server {URL} --token $(cat `
	for _, s := range []step{
		// The first tool: a Python function with a dependency.
		{who: "ada", types: "toolpost call count_words text='one two two'", shows: []string{`No module named 'tally'`}},
		{who: "ada", types: "sh install.sh && toolpost call count_words text='one two two'", shows: []string{`"two": 2`}},
		// Here: the second tool, a program that is wrapped without code.
		// The third: a skill with state.
		{who: "ada", types: "toolpost call remember note='buy oil' --session day", shows: []string{`note 1: buy oil`}},
		// Two users.
		{who: "ada", types: "toolpost token issue ada > ada", shows: []string{`token [0-9a-f]{16} for ada, .* not shown again`}},
		{who: "ada", types: "toolpost token issue grace > grace", shows: []string{`for grace`}},
		{
			who: "server", types: "toolpost serve --listen 127.0.0.1:0", stays: true,
			shows: []string{`serving on http://127`, `token tp_`, `curl`},
		},
		{who: "ada", types: remember + "ada) note=mine", shows: []string{`note 1: mine`}},
		{who: "grace", types: remember + "grace) note=hers", shows: []string{`remember`, `not found|no tool`}},
		// A reload.
		{who: "ada", types: "cp more.yaml toolpost.yaml"},
		{who: "server", shows: []string{`config .*reload`}, stays: true},
		{who: "grace", types: remember + "grace) note=hers", shows: []string{`note 1: hers`}},
		// Here: a blocked attempt, fixed by following its own message.
		// Ctrl-C ends the server in good order. A lost token: another is made.
		{who: "server", types: "C-c", shows: []string{`shutting down`}},
		{
			who: "server", types: "toolpost serve --listen 127.0.0.1:0 --new-token", stays: true,
			shows: []string{`serving on http://127`, `token tp_`, `curl`},
		},
		{who: "ada", types: remember + "ada) note=again", shows: []string{`note 2: again`}},
		// Here: the terminal of the server is closed, and the server ends; a config folder that is read-only.
		{who: "server", types: "C-c", shows: []string{`shutting down`}},
	} {
		d.do(s)
	}
}

func newDay(t *testing.T, people ...string) *day {
	t.Helper()
	script, err := txtar.ParseFile("testdata/script/first-day.txtar")
	if err != nil {
		t.Fatal(err)
	}
	d := &day{t: t, dir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range script.Files {
		name := filepath.Join(d.dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
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
		_ = exec.Command("tmux", "-S", d.socket, "kill-server").Run()
		os.RemoveAll(short)
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

// do types a line into a window that was wiped, and waits for what it shows. Whoever types nothing looks on.
func (d *day) do(s step) {
	d.t.Helper()
	switch s.types {
	case "":
	case "C-c":
		d.tmux("send-keys", "-t", s.who, s.types)
	default:
		d.enter(s.who, "clear")
		d.shows(s.who, `\A> *\n*\z`) // else what was there before is taken for what comes
		d.enter(s.who, strings.ReplaceAll(s.types, "{URL}", d.url))
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
	for end := time.Now().Add(time.Minute); !wanted.MatchString(d.screen(who)); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("the terminal of %s does not show %q:\n%s", who, pattern, d.screen(who))
		}
	}
}
