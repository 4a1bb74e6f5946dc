// Package docs_test runs the commands of the documentation, as a reader would type them.
package docs_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/internal/served"
	"toolpost/tool"
)

// A block that starts with "```console run" is run. In it, lines that start with "$ " are commands, in one shell for the
// whole page. The other lines are their output, in which "..." matches anything, including several lines, and on a line
// of its own also none. A block that starts with "```python write tools/x.py", in any language, is a file that the reader
// saves in the current folder of the commands. The comment "<!-- serve -->" on a line of its own starts `toolpost serve`
// in the current folder of the commands, with $TOOLPOST_URL and $TOOLPOST_TOKEN set, until the page ends. Only the token is
// exported: with the address, every command would use that server. "<!-- stop -->" ends it earlier. "<!-- postgres -->" starts a
// PostgreSQL with an empty database, $DATABASE_URL. A command that ends in " &" runs until the page ends. "<!-- run: COMMAND -->"
// does what the page describes and a test cannot do in the same way, such as installing something from the network, or waiting.
const (
	blockStart = "```console run"
	blockEnd   = "```"

	serveMark    = "<!-- serve -->"
	stopMark     = "<!-- stop -->"
	postgresMark = "<!-- postgres -->"
	runMark      = "<!-- run: "
)

// A step is one command and its expected output; or a file and its lines; or a mark.
type step struct {
	line    int
	command string
	file    string
	want    []string
	mark    string
}

var fileStart = regexp.MustCompile("^```[a-z]+ write (\\S+)$")

func TestEveryCommandInTheDocsDoesWhatThePageSays(t *testing.T) {
	requirePrograms(t, "bash", "curl", "python3")
	bin := filepath.Dir(served.Build(t))
	pages := kit.Must(filepath.Glob("*.md"))(t)
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		steps := parse(string(text))
		if len(steps) == 0 {
			continue
		}
		t.Run(filepath.Base(page), func(t *testing.T) { newReader(t, bin).follow(steps) })
	}
}

// The mark of a server is invisible to a reader, who has to start one too.
func TestPagesSayWhenToStartTheServer(t *testing.T) {
	for _, page := range kit.Must(filepath.Glob("*.md"))(t) {
		for section := range strings.SplitSeq(string(kit.Must(os.ReadFile(page))(t)), "\n## ") {
			if strings.Contains(section, serveMark) && !strings.Contains(section, "toolpost serve") {
				title, _, _ := strings.Cut(section, "\n")
				t.Errorf("%s: %q needs a server; say that `toolpost serve` is to be started", page, title)
			}
		}
	}
}

// A reader who goes on to another page in the same shell would call the tools of the page before.
func TestNoPageExportsTheAddressOfAServer(t *testing.T) {
	for _, page := range kit.Must(filepath.Glob("*.md"))(t) {
		if strings.Contains(string(kit.Must(os.ReadFile(page))(t)), "export TOOLPOST_URL") {
			t.Errorf("%s exports TOOLPOST_URL: every later command would use that server", page)
		}
	}
}

func requirePrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing; `make setup` installs it", name)
		}
		t.Skipf("%s is missing; `make setup` installs it", name)
	}
}

func parse(page string) (steps []step) {
	inside, writing := false, false // in a block; in the block of a file, whose lines may begin like commands
	for i, line := range strings.Split(page, "\n") {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case !inside && (line == serveMark || line == stopMark || line == postgresMark):
			steps = append(steps, step{line: i + 1, mark: line})
		case !inside && strings.HasPrefix(line, runMark):
			hidden := strings.TrimSuffix(strings.TrimPrefix(line, runMark), " -->")
			steps = append(steps, step{line: i + 1, command: hidden})
		case !inside && fileStart.MatchString(line):
			steps = append(steps, step{line: i + 1, file: fileStart.FindStringSubmatch(line)[1]})
			inside, writing = true, true
		case !inside:
			inside = strings.TrimSpace(line) == blockStart
		case line == blockEnd:
			inside, writing = false, false
		case isCommand && !writing:
			steps = append(steps, step{line: i + 1, command: command})
		case len(steps) > 0:
			last := &steps[len(steps)-1]
			if n := len(last.want); n == 0 && last.file == "" && strings.HasSuffix(last.command, "\\") {
				last.command += "\n" + line
			} else {
				last.want = append(last.want, line)
			}
		}
	}
	return steps
}

// A reader follows a page in one folder.
type reader struct {
	t   *testing.T
	bin string // the folder of the program
	dir string // the current folder of the commands
	env []string

	url  string // of the server
	stop func() // ends the server
}

func newReader(t *testing.T, bin string) *reader {
	t.Helper()
	home := t.TempDir()
	return &reader{t: t, bin: bin, dir: home, env: []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home, "TERM=dumb", "LANG=C.UTF-8",
	}}
}

func (r *reader) follow(steps []step) {
	r.t.Helper()
	for _, s := range steps {
		switch s.mark {
		case serveMark:
			r.serve()
			continue
		case stopMark:
			r.stop()
			continue
		case postgresMark:
			r.env = append(r.env, "DATABASE_URL="+pg.New(r.t).Database(r.t))
			continue
		}
		if s.file != "" {
			r.save(s.file, s.want)
			continue
		}
		if command, ok := strings.CutSuffix(s.command, " &"); ok {
			r.start(command)
			continue
		}
		got, err := r.run(s.command)
		if !pattern(s.want).MatchString(strings.TrimRight(got, "\n")) {
			r.t.Fatalf("line %d: $ %s\nprinted (%v):\n%s\nthe page says:\n%s", s.line, s.command, err, got,
				strings.Join(s.want, "\n"))
		}
	}
}

// save writes a file, and the folders that it is in.
func (r *reader) save(name string, lines []string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	kit.Write(r.t, path, strings.Join(lines, "\n")+"\n")
}

// run runs one command in the state that the one before it left: in its folder, with its exported variables.
func (r *reader) run(command string) (output string, err error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	after := filepath.Join(r.t.TempDir(), "after")
	script := "TOOLPOST_URL=" + r.url + "\n" + command + "\nstatus=$?\n{ pwd; env -0; } >" + after + "\nexit $status\n"
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir, cmd.Env = r.dir, r.env
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	left, readErr := os.ReadFile(after)
	if readErr != nil {
		r.t.Fatalf("$ %s: %v\n%s", command, err, out)
	}
	dir, env, _ := strings.Cut(string(left), "\n")
	r.dir, r.env = dir, strings.Split(strings.TrimRight(env, "\x00"), "\x00")
	return string(out), err
}

// start runs a command, and what it starts, until the page ends.
func (r *reader) start(command string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "bash", "-c", command)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.dir, r.env, time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	kit.OK(r.t, cmd.Start())
	r.t.Cleanup(func() { _ = cmd.Wait() }) // one that the page has evicted ends with an error
}

// anyLines matches a line with only "...", in a text that is quoted for a regular expression.
var anyLines = regexp.MustCompile(`(?m)^\\\.\\\.\\\.\n`)

// pattern returns a regular expression for the lines that a page shows.
func pattern(want []string) *regexp.Regexp {
	text := regexp.QuoteMeta(strings.TrimRight(strings.Join(want, "\n"), "\n"))
	text = anyLines.ReplaceAllString(text, "(?:.*\n)?") // such as a hint that depends on what else runs on this machine
	return regexp.MustCompile(`(?s)^` + strings.ReplaceAll(text, `\.\.\.`, `.*`) + `$`)
}

// serve starts the server and waits until it prints its address.
func (r *reader) serve() {
	r.t.Helper()
	const token = "a-token-for-the-documentation"
	r.env = append(r.env, "TOOLPOST_TOKEN="+token)
	cmd := exec.Command(filepath.Join(r.bin, "toolpost"), "serve", "--listen", "127.0.0.1:0")
	cmd.Dir, cmd.Env = r.dir, r.env
	out, w, err := os.Pipe()
	kit.OK(r.t, err)
	cmd.Stdout, cmd.Stderr = w, w
	kit.OK(r.t, cmd.Start())
	w.Close()
	said := make(chan string, 1)
	ended := make(chan struct{})
	go func() { defer close(ended); findURL(out, said) }()
	r.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kit.Check(r.t, cmd.Wait(), "toolpost serve")
		out.Close()
		<-ended
	})
	r.t.Cleanup(r.stop)
	r.url = kit.Receive(r.t, "the address of toolpost serve", said)
}

// findURL reads all output of the server, so that the server never blocks, and passes on the first address in it.
func findURL(out *os.File, said chan<- string) {
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url := address.FindString(lines.Text()); url != "" {
			select {
			case said <- url:
			default:
			}
		}
	}
}

func TestCommandsAfterAFileAreNotPartOfIt(t *testing.T) {
	steps := parse("```sh write a.sh\n$ not a command\n```\n\n```console run\n$ cat a.sh\n$ not a command\n```\n")
	if len(steps) != 3 || steps[0].file != "a.sh" || len(steps[0].want) != 1 || steps[1].command != "cat a.sh" {
		t.Errorf("%+v", steps)
	}
}

func TestOutputPatternsMatch(t *testing.T) {
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{"", "", true}, {"a", "a", true}, {"a", "b", false}, {"a", "a\nb", false}, {"", "something", false},
		{"a\n...\nz", "a\nb\nc\nz", true}, {"a\n...\nz", "a\nz", true}, {"a\n...\nz", "az", false},
		{"took ... ms", "took 12 ms", true}, {"1.5", "1x5", false}, {"[a]", "a", false},
	} {
		kit.Equal(t, pattern(strings.Split(c.want, "\n")).MatchString(c.got), c.ok, "%q against %q", c.want, c.got)
	}
}

func TestErrorsPageHasEveryCode(t *testing.T) {
	page := kit.Must(os.ReadFile("errors.md"))(t)
	for _, code := range tool.Codes() {
		if n := bytes.Count(page, fmt.Appendf(nil, "\n| `%s` |", code)); n != 1 {
			t.Errorf("%s has %d rows", code, n)
		}
	}
}

func TestDependenciesPageHasEveryDirectDependency(t *testing.T) {
	page := kit.Must(os.ReadFile("dependencies.md"))(t)
	mod := kit.Must(os.ReadFile("../go.mod"))(t)
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) != 2 || !strings.HasPrefix(fields[1], "v") { // indirect ones have a comment
			continue
		}
		if !bytes.Contains(page, []byte("| "+fields[0]+" |")) {
			t.Errorf("%s is not in dependencies.md", fields[0])
		}
	}
}

// Readers copy commands: one that hides errors teaches them to miss errors.
func TestNoCommandHidesItsErrors(t *testing.T) {
	for _, page := range append(kit.Must(filepath.Glob("*.md"))(t), "../README.md") {
		for i, line := range strings.Split(string(kit.Must(os.ReadFile(page))(t)), "\n") {
			if strings.Contains(line, "2>/dev/null") {
				t.Errorf("%s:%d: %s", page, i+1, line)
			}
		}
	}
}

// The recording in the README plays by itself in both themes: it is well-formed, small, fetches nothing and runs no script.
func TestRecordingStandsAlone(t *testing.T) {
	text := kit.Must(os.ReadFile("pictures/terminal.svg"))(t)
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		kit.OK(t, err)
		if e, ok := token.(xml.StartElement); ok && (e.Name.Local == "script" || e.Name.Local == "image" || e.Name.Local == "use") {
			t.Errorf("it has <%s>", e.Name.Local)
		}
	}
	for _, part := range []string{"prefers-color-scheme:dark", "prefers-reduced-motion:reduce", "<title", "toolpost init", "toolpost mcp add", "toolpost connect"} {
		kit.Contains(t, string(text), part)
	}
	if rest := strings.ReplaceAll(string(text), `xmlns="http://www.w3.org/2000/svg"`, ""); len(text) > 30_000 || strings.Contains(rest, "http://") || strings.Contains(rest, "url(") {
		t.Errorf("%d bytes, or it fetches something", len(text))
	}
}

// Links between pages must resolve.
func TestLinksToPagesLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	pages := kit.Must(filepath.Glob("*.md"))(t)
	below := kit.Must(filepath.Glob("*/*.md"))(t) // protocols, adr
	for _, page := range append(append(pages, below...), "../README.md", "../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			kit.Check(t, kit.Err(os.Stat(filepath.Join(filepath.Dir(page), m[1]))), "%s links to %s", page, m[1])
		}
	}
}
