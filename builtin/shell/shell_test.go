package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A bench is a writable root, a read-only one, and a folder outside both.
type bench struct {
	*Tools
	root, readOnly, outside string
	checker                 *offlimits.Checker
}

const secretText = "the secret that nobody sees"

func newBench(t testing.TB, o Options) *bench {
	t.Helper()
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	b := &bench{root: filepath.Join(dir, "root"), readOnly: filepath.Join(dir, "readonly"), outside: filepath.Join(dir, "outside")}
	for _, folder := range []string{b.root, b.readOnly, b.outside} {
		kit.OK(t, os.Mkdir(folder, 0o755))
	}
	b.write(t, "a.txt", "one\ntwo\nthree\n")
	b.write(t, "b.txt", "two\n")
	b.write(t, "sub/c.txt", "four\n")
	b.write(t, ".env", secretText+"\n")
	b.write(t, "../outside/secret.txt", secretText+"\n")
	b.write(t, "../readonly/r.txt", "read\n")
	b.checker = offlimits.NewChecker(offlimits.Default(dir))
	ws, err := workspace.Open(dir, workspace.Options{
		Roots: []workspace.RootOptions{{Path: b.root, Write: true}, {Path: b.readOnly}}, OffLimits: b.checker,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	if b.Tools, err = New(dir, ws, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kit.Check(t, b.Close(context.Background()))
	})
	return b
}

// newJudged returns a bench without walls: it tests the judge, and nothing else stops what it lets pass.
func newJudged(t testing.TB, o Options) *bench {
	o.Walls.Off = true
	return newBench(t, o)
}

func (b *bench) write(t testing.TB, name, content string) {
	t.Helper()
	path := filepath.Join(b.root, name)
	kit.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	kit.OK(t, os.WriteFile(path, []byte(content), 0o755))
}

func call(name string, args any) *tool.Call {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return &tool.Call{Tool: name, Args: b, Caller: tool.Principal{ID: "tester"}, Spec: &tool.Spec{Name: name}}
}

func (b *bench) invoke(c *tool.Call) (result, error) {
	return b.watch(c, tool.Discard)
}

func (b *bench) watch(c *tool.Call, out tool.Sink) (result, error) {
	r, err := b.Invoke(context.Background(), c, out)
	if err != nil {
		return result{}, err
	}
	var got result
	return got, json.Unmarshal(r.Output, &got)
}

func (b *bench) exec(command string, args ...string) (result, error) {
	return b.invoke(call(execName, execArgs{Command: command, Args: args}))
}

func (b *bench) line(line string) (result, error) {
	return b.invoke(call(lineName, lineArgs{Line: line}))
}

func (b *bench) must(t *testing.T, command string, args ...string) result {
	t.Helper()
	r, err := b.exec(command, args...)
	if err != nil {
		t.Fatalf("%s %q: %v", command, args, err)
	}
	return r
}

func refused(t *testing.T, err error, code tool.Code, words ...string) {
	t.Helper()
	kit.MustEqual(t, tool.CodeOf(err), code, err)
	for _, w := range words {
		kit.Contains(t, tool.AsError(err).Message, w)
	}
}

func TestTheContractsRequestAndResponse(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newBench(t, Options{Allow: []string{"ls"}})
	c := &tool.Call{Args: json.RawMessage(`{"command":"ls","args":["-1","` + b.root + `"],"cwd":"` + b.root + `"}`), Spec: &tool.Spec{Name: execName}}
	r, err := b.Invoke(context.Background(), c, tool.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"stdout":"a.txt\nb.txt\nsub\n","stderr":"","exit_code":0}`; string(r.Output) != want || !r.OK {
		t.Errorf("got %s, want %s", r.Output, want)
	}
	_, err = b.exec("rm", "-rf", "/")
	if e := tool.AsError(err); e.Message != "Command 'rm' is not allowed by security policy" || e.Code != tool.CodeAccessDenied || e.Reason != "command_denied" {
		t.Errorf("got %+v", e)
	}
}

func TestCommandIsABareNameOrAnAllowedPath(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"ls", "/bin/cat"}})
	for _, command := range []string{"/bin/ls", "./ls", "../ls", "bin/ls", "", ".", "ls ", "ls\x00", "LS", "/bin/../bin/cat", "//bin/cat"} {
		kit.Refused(t, kit.Err(b.exec(command, "a.txt")), tool.CodeAccessDenied, "", command)
	}
	if r, err := b.exec("/bin/cat", "b.txt"); err != nil || r.Stdout != "two\n" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestProgramInAWritableFolderIsRefused(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"ls"}})
	b.write(t, "bin/ls", "#!/bin/sh\necho planted\n")
	for name, path := range map[string]string{"below a root": filepath.Join(b.root, "bin"), "a link to one": filepath.Join(b.outside, "bin")} {
		if name == "a link to one" {
			kit.OK(t, os.Mkdir(path, 0o755))
			kit.OK(t, os.Symlink(filepath.Join(b.root, "bin/ls"), filepath.Join(path, "ls")))
		}
		b.path = []string{path}
		_, err := b.exec("ls")
		refused(t, err, tool.CodeAccessDenied, "where tools can write")
	}
	t.Setenv("PATH", filepath.Join(b.root, "bin")+":relative:"+os.Getenv("PATH"))
	for _, folder := range searchPath(nil, b.ws.Roots()) {
		if strings.HasPrefix(folder, b.root) || !filepath.IsAbs(folder) {
			t.Errorf("%s is searched", folder)
		}
	}
}

func TestTheHostsEnvironmentDoesNotReachACommand(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", secretText)
	t.Setenv("LD_PRELOAD_NOT", secretText)
	b := newBench(t, Options{Rules: []Rule{{Program: "env", Trust: true}}, Env: map[string]string{"GREETING": "hello"}, CallerEnv: []string{"MOOD"}})
	r, err := b.invoke(call(execName, execArgs{Command: "env", Env: map[string]string{"MOOD": "calm"}}))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.Stdout, secretText) || !strings.Contains(r.Stdout, "GREETING=hello\n") || !strings.Contains(r.Stdout, "MOOD=calm\n") {
		t.Error(r.Stdout)
	}
	for line := range strings.Lines(r.Stdout) {
		if home, ok := strings.CutPrefix(line, "HOME="); ok && home == os.Getenv("HOME")+"\n" {
			t.Error("it has our HOME")
		}
	}
	_, err = b.invoke(call(execName, execArgs{Command: "env", Env: map[string]string{"OTHER": "x"}}))
	refused(t, err, tool.CodeAccessDenied, "OTHER", "caller_env")
}

func TestEachCallHasAnEmptyHome(t *testing.T) {
	b := newBench(t, Options{Rules: []Rule{{Program: "sh", Trust: true}}})
	b.write(t, "home.sh", "ls -A $HOME; touch $HOME/x; mkdir $HOME/d; touch $HOME/d/y; chmod 500 $HOME/d; echo $HOME\n")
	var homes []string
	for range 2 {
		r := b.must(t, "sh", "home.sh")
		homes = append(homes, strings.TrimSpace(r.Stdout))
	}
	if homes[0] == homes[1] || strings.Contains(homes[1], "x") && strings.Contains(homes[1], "\n") {
		t.Errorf("got %q", homes)
	}
	for _, h := range homes {
		kit.Fails(t, kit.Err(os.Stat(h)), "", "%s is left", h)
	}
}

func TestOutputIsStreamedWhileTheCommandRuns(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newBench(t, Options{Rules: []Rule{{Program: "sh", Trust: true}}})
	b.write(t, "slow.sh", "echo first; echo warn >&2; while [ ! -e go ]; do sleep 0.01; done; printf last\n")
	seen := map[string]string{}
	r, err := b.watch(call(execName, execArgs{Command: "sh", Args: []string{"slow.sh"}}), tool.SinkFunc(func(e tool.Event) error {
		var o tool.Output
		if err := json.Unmarshal(e.Data, &o); err != nil || e.Kind != tool.KindOutput {
			t.Errorf("%s %s: %v", e.Kind, e.Data, err)
		}
		seen[o.Stream] += o.Text
		if strings.Contains(seen["stdout"], "first\n") { // it continues only because we saw it
			b.write(t, "go", "")
		}
		return nil
	}))
	if err != nil || r.Stdout != "first\nlast" || r.Stderr != "warn\n" || r.Truncated {
		t.Errorf("%+v, %v", r, err)
	}
	if seen["stdout"] != r.Stdout || seen["stderr"] != r.Stderr {
		t.Errorf("the events said %q", seen)
	}
}

func TestOutputIsCappedAndTheCommandEndsByItself(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newBench(t, Options{Rules: []Rule{{Program: "sh", Trust: true}}, MaxOutput: 10})
	b.write(t, "much.sh", "i=0; while [ $i -lt 20000 ]; do echo 0123456789; echo 0123456789 >&2; i=$((i+1)); done; exit 3\n")
	n := 0
	r, err := b.watch(call(execName, execArgs{Command: "sh", Args: []string{"much.sh"}}), tool.SinkFunc(func(e tool.Event) error { n += len(e.Data); return nil }))
	if err != nil || r.Stdout != "0123456789" || r.Stderr != "0123456789" || !r.Truncated || r.ExitCode != 3 || n > 1000 {
		t.Errorf("%+v, %v, %d bytes of events", r, err, n)
	}
}

func TestBytesThatAreNoTextAreReplaced(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"printf"}, Rules: []Rule{{Program: "sh", Trust: true}}})
	b.write(t, "bytes.sh", `printf 'a\377b\303'; printf 'x\376' >&2`)
	r := b.must(t, "sh", "bytes.sh")
	if r.Stdout != "a\uFFFDb\uFFFD" || r.Stderr != "x\uFFFD\n" {
		t.Errorf("%+v", r)
	}
	if r := b.must(t, "printf", `\303\244`); r.Stdout != "ä" {
		t.Errorf("%+v", r)
	}
}

func TestStandardErrorKeepsItsLines(t *testing.T) {
	b := newBench(t, Options{Rules: []Rule{{Program: "python3", Code: CodeTree}}})
	long := strings.Repeat("x", 20000)
	b.write(t, "err.py", "import sys\nsys.stderr.write('a\\n\\nb\\n' + 'x'*20000 + '\\nend\\n')\n")
	if r := b.must(t, "python3", "err.py"); r.Stderr != "a\n\nb\n"+long+"\nend\n" {
		t.Errorf("%d bytes: %.20q ... %.20q", len(r.Stderr), r.Stderr, r.Stderr[max(0, len(r.Stderr)-20):])
	}
}

func TestATimeoutEndsTheWholeTree(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newBench(t, Options{Rules: []Rule{{Program: "sh", Trust: true}}})
	b.write(t, "tree.sh", "setsid sleep 600 & (sleep 600 &) & echo started; sleep 600\n")
	_, err := b.invoke(call(execName, execArgs{Command: "sh", Args: []string{"tree.sh"}, TimeoutMS: 300}))
	refused(t, err, tool.CodeTimeout, "sh did not end within 300ms")
}

func TestLeftoverProcessesAreEnded(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newBench(t, Options{Rules: []Rule{{Program: "sh", Trust: true}}})
	b.write(t, "leave.sh", "setsid sleep 600 & echo done\n")
	if r := b.must(t, "sh", "leave.sh"); r.Stdout != "done\n" || r.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
}

func TestACancelledCallLeavesNothing(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newBench(t, Options{Rules: []Rule{{Program: "sh", Trust: true}}})
	b.write(t, "wait.sh", "echo started; sleep 600\n")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := b.Invoke(ctx, call(execName, execArgs{Command: "sh", Args: []string{"wait.sh"}}), tool.SinkFunc(func(tool.Event) error { cancel(); return nil }))
	refused(t, err, tool.CodeCancelled)
}

func TestFailingSinkEndsTheCall(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newBench(t, Options{Rules: []Rule{{Program: "yes", Trust: true}}})
	gone := tool.Errorf(tool.CodeCancelled, "nobody listens")
	_, err := b.Invoke(context.Background(), call(execName, execArgs{Command: "yes"}), tool.SinkFunc(func(tool.Event) error { return gone }))
	refused(t, err, tool.CodeCancelled, "nobody listens")
}

func TestAnExitCodeIsAResult(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"grep", "false", "ls"}, Rules: []Rule{{Program: "sh", Trust: true}}})
	b.write(t, "kill.sh", "kill -TERM $$\n")
	for want, args := range map[int][]string{1: {"grep", "nothing", "a.txt"}, 2: {"ls", "missing"}, 128 + 15: {"sh", "kill.sh"}} {
		if r := b.must(t, args[0], args[1:]...); r.ExitCode != want {
			t.Errorf("%q: %+v, want %d", args, r, want)
		}
	}
}

func TestStdinIsFed(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newBench(t, Options{Allow: []string{"sort", "true"}})
	r, err := b.invoke(call(execName, execArgs{Command: "sort", Stdin: "b\na\n"}))
	if err != nil || r.Stdout != "a\nb\n" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := b.invoke(call(execName, execArgs{Command: "true", Stdin: strings.Repeat("x", maxStdin)})); err != nil {
		t.Error(err) // the program does not read it
	}
	_, err = b.invoke(call(execName, execArgs{Command: "true", Stdin: strings.Repeat("x", maxStdin+1)}))
	refused(t, err, tool.CodeInvalidInput, "stdin")
}

func TestTheWorkingFolderIsBelowARoot(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"pwd"}})
	kit.OK(t, os.Symlink(b.outside, filepath.Join(b.root, "out")))
	for cwd, want := range map[string]string{"": b.root, "sub": b.root + "/sub", b.readOnly: b.readOnly} {
		r, err := b.invoke(call(execName, execArgs{Command: "pwd", Args: []string{"-P"}, Cwd: cwd}))
		if err != nil || r.Stdout != want+"\n" {
			t.Errorf("%q: %+v, %v", cwd, r, err)
		}
	}
	for _, cwd := range []string{"..", b.outside, "/", "out", "sub/../../outside", "/proc/self/cwd", "~"} {
		kit.Fails(t, kit.Err(b.invoke(call(execName, execArgs{Command: "pwd", Cwd: cwd}))),
			"", "%q is a working folder", cwd)
	}
}

func TestLimitsHold(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, l := range sandbox.Probe() {
		if l.Name == sandbox.LayerMemory && !l.Works {
			t.Skip("memory cannot be limited here: " + l.Why)
		}
	}
	b := newBench(t, Options{
		Rules: []Rule{{Program: "sh", Trust: true}, {Program: "python3", Code: CodeTree}},
		Walls: walls.Options{CPUTime: config.Duration(time.Second), FileSize: 1 << 16, Files: 20, Memory: 64 << 20},
	})
	b.write(t, "limits.sh", "ulimit -t; ulimit -f; ulimit -n; ulimit -c\n")
	if r := b.must(t, "sh", "limits.sh"); r.Stdout != "1\n128\n20\n0\n" {
		t.Errorf("%+v", r)
	}
	b.write(t, "spin.sh", "while :; do :; done\n")
	if r := b.must(t, "sh", "spin.sh"); r.ExitCode < 128 {
		t.Errorf("%+v", r)
	}
	b.write(t, "hog.py", "x = bytearray(1 << 30)\n")
	if r := b.must(t, "python3", "hog.py"); r.ExitCode == 0 {
		t.Errorf("%+v", r)
	}
	b.write(t, "big.py", "open('big','w').write('x' * (1 << 17))\n")
	b.must(t, "python3", "big.py")
	if info, err := os.Stat(filepath.Join(b.root, "big")); err != nil || info.Size() > 1<<16 {
		t.Errorf("%v, %v", info, err)
	}
}

// An allowed command finds nothing beyond the offered folders, whatever it is.
func TestCommandsRunBehindWalls(t *testing.T) {
	tooltest.NoLeaks(t)
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	b := newBench(t, Options{Rules: []Rule{{Program: "python3", Code: CodeTree}}})
	b.write(t, "../.toolpost/token", secretText)
	code := fmt.Sprintf(`import os, socket, subprocess
def could(f):
    try: f(); return True
    except OSError: return False
print([could(f) for f in (
    lambda: open("a.txt").read(), lambda: open("new", "w"), lambda: open(%[1]q + "/r.txt").read(), lambda: open(%[1]q + "/new", "w"),
    lambda: open(%[2]q + "/secret.txt").read(), lambda: open(%[2]q + "/../.toolpost/token").read(), lambda: open("/proc/1/environ").read() and 1/0,
    lambda: socket.create_connection(("127.0.0.1", %[3]d), 5), lambda: subprocess.run(["true"]))])`, b.readOnly, b.outside, l.Addr().(*net.TCPAddr).Port)
	b.write(t, "try.py", code)
	result, err := b.Invoke(t.Context(), call(execName, execArgs{Command: "python3", Args: []string{"try.py"}}), tool.Discard)
	if err != nil {
		t.Fatal(err)
	}
	kit.Contains(t, string(result.Output), `[True, True, True, False, False, False, False, False, True]`)
	checks, _ := result.Trace.Details["capability_checks"].([]walls.Check)
	if len(checks) != 2 || checks[0].Capability != "filesystem_write" || checks[1].Capability != "network" {
		t.Errorf("what it tried: %v", checks)
	}
}

func TestBadArguments(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"ls", "echo"}, Line: true})
	for name, args := range map[string]string{
		"nothing": ``, "not an object": `[]`, "no command": `{}`, "an unknown name": `{"command":"ls","shell":true}`, "a duplicate": `{"command":"ls","command":"ls"}`,
		"another case": `{"Command":"ls"}`, "a string for args": `{"command":"ls","args":"-la"}`, "a number among them": `{"command":"ls","args":[1]}`,
		"half": `{"command":"ls"`, "invalid UTF-8": "{\"command\":\"l\xffs\"}", "a negative time": `{"command":"ls","timeout_ms":-1}`,
		"a NUL":      `{"command":"echo","args":["a\u0000b"]}`,
		"too many":   `{"command":"echo","args":[` + strings.Repeat(`"",`, 1000) + `""]}`,
		"too large":  `{"command":"echo","args":["` + strings.Repeat("x", maxArgBytes+1) + `"]}`,
		"wrong type": `{"command":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := &tool.Call{Args: json.RawMessage(args), Spec: &tool.Spec{Name: execName}}
			_, err := b.Invoke(context.Background(), c, tool.Discard)
			if code := tool.CodeOf(err); code != tool.CodeInvalidInput && code != tool.CodeAccessDenied {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestWrongOptionsAreToldAtOnce(t *testing.T) {
	ws := kit.Must(workspace.Open(t.TempDir(), workspace.Options{}))(t)
	defer ws.Close()
	for name, o := range map[string]Options{
		"a relative path":        {Path: []string{"bin"}},
		"LD_PRELOAD":             {CallerEnv: []string{"LD_PRELOAD"}},
		"PATH":                   {CallerEnv: []string{"PATH"}},
		"git_dir":                {CallerEnv: []string{"git_dir"}},
		"ZIP":                    {CallerEnv: []string{"ZIP"}},
		"BZIP2":                  {CallerEnv: []string{"BZIP2"}},
		"no name of a variable":  {CallerEnv: []string{"A=B"}},
		"a bad variable":         {Env: map[string]string{"A=B": "x"}},
		"a relative program":     {Allow: []string{"./ls"}},
		"a program with dots":    {Rules: []Rule{{Program: "/bin/../bin/ls"}}},
		"a rule without program": {Rules: []Rule{{Trust: true}}},
		"an empty entry":         {Allow: []string{""}},
	} {
		kit.Refused(t, kit.Err(New(".", ws, o)), tool.CodeInvalidInput, "", name)
	}
}

func TestSpecs(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"ls", "git status"}, Line: true, CallerEnv: []string{"MOOD"}})
	specs, err := b.Tools.Tools(context.Background())
	if err != nil || len(specs) != 2 {
		t.Fatal(specs, err)
	}
	for _, s := range specs {
		if !json.Valid(s.Input) || !json.Valid(s.Output) || s.Tier != 2 || !s.Effects.Exec || s.Timeout != defaultTimeout || !strings.Contains(s.Description+string(s.Input), "git status, ls") {
			t.Errorf("%+v", s)
		}
	}
	b = newBench(t, Options{Allow: []string{"ls"}})
	if specs, _ := b.Tools.Tools(context.Background()); len(specs) != 1 || specs[0].Name != "execShell" {
		t.Errorf("%v", specs)
	}
}

// What a guarantee forbids is refused if the walls of a command would not hold it.
func TestGuaranteesHoldForCommandsAndRedirections(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"cat", "echo"}, Line: true})
	b.write(t, "f.txt", "content")
	for line, g := range map[string]tool.Guarantees{
		"echo x > w.txt": {NoFilesystemWrite: true}, "echo x 2>> f.txt": {NoFilesystemWrite: true},
		"cat f.txt": {NoFilesystemRead: true}, "cat < f.txt": {NoFilesystemRead: true},
	} {
		c := call(lineName, lineArgs{Line: line})
		c.Guarantees = g
		r, err := b.invoke(c)
		if tool.CodeOf(err) != tool.CodeAccessDenied || tool.AsError(err).Reason != walls.GuaranteeBlocked {
			t.Errorf("%s: %+v, %v", line, r, err)
		}
	}
	c := call(lineName, lineArgs{Line: "echo x > /dev/null"})
	c.Guarantees = tool.Guarantees{NoFilesystemWrite: true}
	kit.Check(t, kit.Err(b.invoke(c)))
}

func TestProgramThatAnotherSourceCanWriteIsNotRun(t *testing.T) {
	b := newJudged(t, Options{Rules: []Rule{{Program: "mytool", Trust: true}}, Path: []string{t.TempDir()}})
	folder := b.o.Path[0]
	kit.OK(t, os.WriteFile(filepath.Join(folder, "mytool"), []byte("#!/bin/sh\n"), 0o755))
	b.must(t, "mytool")
	b.checker.Set(&offlimits.List{Writable: []offlimits.Owned{{Path: folder, Source: "other"}}})
	_, err := b.exec("mytool")
	refused(t, err, tool.CodeAccessDenied, "another source can write")
}
