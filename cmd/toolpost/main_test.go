package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"toolpost/host/sandbox"
	"toolpost/internal/idp"
	"toolpost/internal/kit"
	"toolpost/tool/tooltest"
)

// asProgram makes the test binary act as toolpost, for tests that start it without a script.
const asProgram = "TOOLPOST_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	if os.Getenv(asProgram) != "" {
		main()
	}
	testscript.Main(m, map[string]func(){"toolpost": main})
}

// What narratoria.txtar proves:
//
// contract(narratoria): Player selection becomes next prompt
// contract(narratoria): `ok: true` indicates successful logical completion.
// contract(narratoria): Treat missing `done` plus a non-zero exit code as a protocol-level failure.
// contract(narratoria): Exit code != 0: protocol-level failure, regardless of any emitted events.
// contract(narratoria): MUST NOT require tools to use specific output directories in Spec 001. Without configuration a tool can write to `/tmp`, `/var/tmp`, `TMPDIR` and `HOME`, which are scratch of the call; elsewhere the refusal names the line of the config that opens it.
func TestScripts(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not there")
	}
	tooltest.NoLeaks(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Values[slot{}], e.Values[providerSlot{}] = new(*running), new(*idp.Provider)
			e.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise every command takes a second under the race detector
			e.Setenv("EVIL", "evil\x1b[2Jname")
			return os.WriteFile(filepath.Join(e.WorkDir, "deep.json"), []byte(strings.Repeat("[", 1<<20)), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      exits,
			"eventually": eventually,
			"start":      startServer,
			"signal":     signalServer,
			"ended":      ended,
			"logged":     logged,
			"provider":   func(ts *testscript.TestScript, _ bool, args []string) { startProvider(t, ts, args) },
			"provides":   provides,
		},
	})
}

// exits CODE COMMAND ... runs a command and checks its exit code; stdout and stderr can be checked after
// it as after exec.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var status *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &status) {
		got = status.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// eventually COMMAND ... runs a command until it succeeds.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(args[0], args[1:]...)
		if (err == nil) != neg {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%v did not happen: %v", args, err)
		}
	}
}

// running is the running server of a script.
type running struct {
	cmd        *exec.Cmd
	ready      chan struct{}
	closed     sync.WaitGroup
	kit.Buffer // its output
}

// start ARGS ... runs `toolpost serve` on a free port and sets $URL, $TRY (the command that it shows) and, when one was
// printed, $TOKEN.
func startServer(ts *testscript.TestScript, _ bool, args []string) {
	path, err := exec.LookPath("toolpost") // by our own PATH, which has this test's program and not the plain one
	ts.Check(err)
	r := &running{cmd: exec.Command(path, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...), ready: make(chan struct{})}
	r.cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TOOLPOST_CONFIG", "TOOLPOST_TOKEN"} {
		r.cmd.Env = append(r.cmd.Env, name+"="+ts.Getenv(name))
	}
	out, err := r.cmd.StdoutPipe()
	ts.Check(err)
	r.cmd.Stderr = r
	ts.Check(r.cmd.Start())
	*slotOf(ts) = r
	ts.Defer(func() { _ = r.cmd.Process.Kill(); r.closed.Wait() })
	r.closed.Go(func() { r.read(out) })
	select {
	case <-r.ready:
	case <-time.After(time.Minute):
		ts.Fatalf("the server did not start: %s", r.String())
	}
	for line := range strings.Lines(r.String()) {
		if url, ok := strings.CutPrefix(line, "serving on "); ok {
			ts.Setenv("URL", strings.TrimSpace(url))
		}
		if token, ok := strings.CutPrefix(line, "token "); ok {
			ts.Setenv("TOKEN", strings.TrimSpace(token))
		}
		if strings.Contains(line, "curl") { // what to try; other doors follow: they open in any order
			ts.Setenv("TRY", strings.TrimSpace(line))
			break
		}
	}
}

func (r *running) read(out interface{ Read([]byte) (int, error) }) {
	once := sync.OnceFunc(func() { close(r.ready) })
	defer once()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		_, _ = r.Write([]byte(lines.Text() + "\n"))
		if strings.Contains(lines.Text(), "curl") {
			once()
		}
	}
	_ = r.cmd.Wait()
}

// providerSlot is the key under which a script keeps its OpenID provider.
type providerSlot struct{}

// provider FILE starts an OpenID provider with the client toolpost and the user ada, and puts its address in place of ISSUER in a
// file.
func startProvider(t *testing.T, ts *testscript.TestScript, args []string) {
	p := idp.Start(t)
	p.Client(idp.Client{ID: "toolpost"})
	p.SetUser(idp.User{Sub: "ada", Email: "ada@acme.example", EmailVerified: true, Groups: []string{"staff"}})
	*ts.Value(providerSlot{}).(**idp.Provider) = p
	text := strings.ReplaceAll(ts.ReadFile(args[0]), "ISSUER", p.Issuer)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// provides lets the provider of a script do something.
func provides(ts *testscript.TestScript, _ bool, args []string) {
	p := *ts.Value(providerSlot{}).(**idp.Provider)
	switch args[0] {
	case "approve": // a device code that will come
		for end := time.Now().Add(time.Minute); p.ApprovePending("ada") == 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				ts.Fatalf("no program asks for a code")
			}
		}
	case "short":
		p.Set(idp.Settings{IDLifetime: 5 * time.Second})
	case "deny":
		p.Set(idp.Settings{Deny: true})
	case "down":
		p.Set(idp.Settings{Down: "refuse"})
	case "nodevice":
		p.Set(idp.Settings{Metadata: map[string]any{"device_authorization_endpoint": nil}})
	case "revoke":
		p.Revoke("ada")
	case "secret": // the client has one, which a program cannot keep
		p.Client(idp.Client{ID: "toolpost", Secret: "s3cret", CannotDevice: true})
		p.Set(idp.Settings{})
	case "issued": // no token is in a file
		text := ts.ReadFile(args[1])
		for _, token := range p.Issued() {
			if strings.Contains(text, token) {
				ts.Fatalf("%s has %.20s…", args[1], token)
			}
		}
	case "refreshed": // so many times
		if n := strconv.Itoa(p.Count("refresh_token", 200)); n != args[1] {
			ts.Fatalf("%s refreshes, want %s", n, args[1])
		}
	default:
		p.Set(idp.Settings{})
	}
}

// A slot is the key under which a script keeps its server.
type slot struct{}

func slotOf(ts *testscript.TestScript) **running { return ts.Value(slot{}).(**running) }

func serverOf(ts *testscript.TestScript) *running {
	r := *slotOf(ts)
	if r == nil {
		ts.Fatalf("no server was started")
	}
	return r
}

// signal NAME sends a signal to the server.
func signalServer(ts *testscript.TestScript, _ bool, args []string) {
	sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "USR1": syscall.SIGUSR1}[args[0]]
	ts.Check(serverOf(ts).cmd.Process.Signal(sig))
}

// ended CODE FILE waits for the server to end, checks its exit code and leaves its output in a file.
func ended(ts *testscript.TestScript, _ bool, args []string) {
	r := serverOf(ts)
	r.closed.Wait()
	if got := strconv.Itoa(r.cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("the server ended with %s, want %s:\n%s", got, args[0], r.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(r.String()), 0o600))
}

// logged PATTERN waits for a line of the server that matches.
func logged(ts *testscript.TestScript, _ bool, args []string) {
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	r := serverOf(ts)
	for end := time.Now().Add(time.Minute); !pattern.MatchString(r.String()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("%q is not in the log:\n%s", args[0], r.String())
		}
	}
}
