package namel3ss

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/host/forks"
	"toolpost/host/sandbox"
	"toolpost/host/secret"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// obey is a tool that evaluates its argument.
const (
	obey   = "import os, socket, subprocess\ndef run(p):\n    return eval(p['do'], globals())\n"
	obeyJS = `
import fs from "node:fs";
import net from "node:net";
import { execFileSync } from "node:child_process";
const connect = (host, port) => new Promise((ok, no) => net.connect(port, host, () => ok(1)).on("error", no));
export const run = (p) => eval(p.do);
`
)

// ways are the three ways in which we start a tool ourselves.
func ways() []string { return []string{modeFresh, modeWarm, appfile.KindNode} }

// obedient opens the tool `t` with the code of obey, in one of the ways.
func obedient(t *testing.T, way, root string, o Options) *Runner {
	t.Helper()
	o.Tool, o.Entry, o.Mode = "t", "code:run", way
	if way == appfile.KindNode {
		o.Kind, o.Mode = appfile.KindNode, ""
	}
	r := open(t, root, o)
	if err := r.Unavailable("t"); err != nil {
		t.Skipf("no Node.js on this machine: %v", err)
	}
	return r
}

func obedience(t *testing.T) string {
	return write(t, map[string]string{"code.py": obey, "code.mjs": obeyJS})
}

// tell calls the tool `t`, with guarantees that policy adds.
func tell(t *testing.T, r *Runner, do string, g tool.Guarantees, out tool.Sink) *tool.Result {
	t.Helper()
	args, _ := json.Marshal(map[string]string{"do": do})
	res, err := r.Invoke(t.Context(), &tool.Call{Tool: "t", Args: args, Spec: &tool.Spec{Guarantees: g}}, out)
	kit.OK(t, err, do)
	return res
}

// stopped lists the attempts that the walls stopped, as "capability target source".
func stopped(res *tool.Result) []string {
	var all []string
	checks, _ := res.Trace.Details["capability_checks"].([]any)
	for _, c := range checks {
		if c, ok := c.(walls.Check); ok && !c.Allowed && c.Reason == "guarantee_blocked" {
			all = append(all, c.Capability+" "+c.Target+" "+c.Source)
		}
	}
	return all
}

// loopback is a local server that accepts every connection.
func loopback(t *testing.T) *net.TCPAddr {
	t.Helper()
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().(*net.TCPAddr)
}

// An attempt is an action of a tool, in Python and in JavaScript, and the report of it if it is stopped.
type attempt struct {
	py, js string
	seen   string // capability and target; empty if it is stopped unseen
}

func (a attempt) in(way string) string {
	if way == appfile.KindNode {
		return a.js
	}
	return a.py
}

// attempts are those at something outside the tool's own folder: a file to read, one to write, and a server.
func attempts(outside string, server *net.TCPAddr) map[string]attempt {
	secret, fresh := filepath.Join(outside, "secret"), filepath.Join(outside, "new")
	return map[string]attempt{
		"no_filesystem_read": {
			py: fmt.Sprintf("open(%q).read()", secret), js: fmt.Sprintf("fs.readFileSync(%q, 'utf8')", secret),
		},
		"no_filesystem_write": {
			py: fmt.Sprintf("open(%q, 'w').write('x')", fresh), js: fmt.Sprintf("fs.writeFileSync(%q, 'x') ?? 1", fresh),
			seen: "filesystem_write " + fresh,
		},
		"no_network": {
			py: fmt.Sprintf("socket.create_connection(('127.0.0.1', %d)).close()", server.Port), js: fmt.Sprintf("connect('127.0.0.1', %d)", server.Port),
			seen: "network " + server.String(),
		},
		"no_subprocess": {py: "subprocess.run(['/bin/true']).returncode", js: "String(execFileSync('/bin/true'))", seen: "subprocess a new process"},
		"no_env_read":   {py: "os.environ['GIVEN']", js: "process.env.GIVEN.length"},
	}
}

// elsewhere makes a folder with a secret outside of any tool's own folders: /tmp is private.
func elsewhere(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "elsewhere")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.WriteFile(filepath.Join(dir, "secret"), []byte("s"), 0o644)
	}
	kit.OK(t, err)
	return dir
}

// much returns options that permit all of the attempts.
func much(outside string) Options {
	return Options{Options: spawn.Options{Env: map[string]string{"GIVEN": "yes"}, Walls: walls.Options{Read: []string{outside}, Write: []string{outside}, Network: walls.Network{"all"}}}}
}

// With a guarantee a tool cannot do what it can do without, and the stopped attempt is reported.
func TestGuaranteesHoldAgainstEveryAttempt(t *testing.T) {
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			tooltest.NoLeaks(t)
			outside := elsewhere(t)
			r := obedient(t, way, obedience(t), much(outside))
			for guarantee, a := range attempts(outside, loopback(t)) {
				if free := tell(t, r, a.in(way), tool.Guarantees{}, tool.Discard); !free.OK || len(stopped(free)) > 0 {
					t.Errorf("%s is not there, and %s failed: %v, %q", guarantee, a.in(way), free.Failure, stopped(free))
				}
				_ = os.Remove(filepath.Join(outside, "new"))
				var got tooltest.Collect
				res := tell(t, r, a.in(way), only(guarantee), &got)
				if res.OK || res.Trace.Details["enforcement_level"] != "enforced" {
					t.Errorf("%s: %s gave %s", guarantee, a.in(way), res.Output)
				}
				if unseen := fmt.Sprint(res.Trace.Details["attempts_not_reported"]); !strings.Contains(unseen, guarantee) {
					checkSeen(t, a, res, got.Logs(), "policy")
				} else if a.seen != "" && (guarantee != "no_subprocess" || way != modeWarm) {
					t.Errorf("%s was not to be seen", a.seen)
				}
				kit.Fails(t, kit.Err(os.Stat(filepath.Join(outside, "new"))), "", "%s: the file was written", guarantee)
			}
		})
	}
}

// checkSeen looks for an attempt in the call's reports and in its trace.
func checkSeen(t *testing.T, a attempt, res *tool.Result, logs []string, source string) {
	t.Helper()
	if a.seen == "" {
		return
	}
	capability, target, _ := strings.Cut(a.seen, " ")
	if all := stopped(res); !slices.Contains(all, a.seen+" "+source) {
		t.Errorf("%q by %s is not in the trace: %q", a.seen, source, all)
	}
	if !slices.ContainsFunc(logs, func(l string) bool { return strings.HasPrefix(l, "blocked: "+capability+": "+target) }) {
		t.Errorf("%q was not reported: %q", a.seen, logs)
	}
}

// The programs that a fork tries to start are not watched. The trace then reports that.
func TestExecAttemptsAreReportedOrDeclaredUnwatched(t *testing.T) {
	for _, way := range modes() {
		t.Run(way, func(t *testing.T) {
			tooltest.NoLeaks(t)
			r := obedient(t, way, obedience(t), Options{})
			res := tell(t, r, "os.execv('/bin/true', ['true'])", tool.Guarantees{NoSubprocess: true, NoFilesystemRead: true}, tool.Discard)
			unseen := fmt.Sprint(res.Trace.Details["attempts_not_reported"])
			seen := slices.Contains(stopped(res), "subprocess /bin/true policy")
			if res.OK || seen == strings.Contains(unseen, "no_subprocess") || !strings.Contains(unseen, "no_filesystem_read") || seen != (way == modeFresh) {
				t.Errorf("%+v, seen %v, said to be unseen %s", res.Failure, seen, unseen)
			}
		})
	}
}

// Without any settings for walls a tool can read its own folder, and nothing of others.
func TestDefaultWallsAllowOnlyTheToolsFolder(t *testing.T) {
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			tooltest.NoLeaks(t)
			outside, root, server := elsewhere(t), obedience(t), loopback(t)
			kit.OK(t, os.Mkdir(filepath.Join(root, ".toolpost"), 0o755))
			kit.OK(t, os.WriteFile(filepath.Join(root, ".toolpost", "token"), []byte("s"), 0o644))
			all := attempts(outside, server)
			own := filepath.Join(root, "code.py")
			tries := []attempt{
				all["no_filesystem_read"], all["no_filesystem_write"], all["no_network"],
				{py: fmt.Sprintf("open(%q, 'a').write('#')", own), js: fmt.Sprintf("fs.appendFileSync(%q, '#') ?? 1", own), seen: "filesystem_write " + own},
				{py: "open('.toolpost/token').read()", js: "fs.readFileSync('.toolpost/token', 'utf8')"},
				{py: fmt.Sprintf("open('/proc/%d/environ').read()", os.Getpid()), js: fmt.Sprintf("fs.readFileSync('/proc/%d/environ', 'utf8')", os.Getpid())},
			}
			confined := obedient(t, way, root, Options{})
			if res := tell(t, confined, attempt{py: "open('code.py').read()", js: "fs.readFileSync('code.mjs', 'utf8')"}.in(way), tool.Guarantees{}, tool.Discard); !res.OK || len(stopped(res)) > 0 {
				t.Errorf("its own folder: %+v, %q", res.Failure, stopped(res))
			}
			for _, a := range tries {
				var got tooltest.Collect
				res := tell(t, confined, a.in(way), tool.Guarantees{}, &got)
				if res.OK {
					t.Errorf("%s gave %s", a.in(way), res.Output)
				}
				checkSeen(t, a, res, got.Logs(), "engine")
			}
			free := obedient(t, way, root, Options{Options: spawn.Options{Walls: walls.Options{Off: true}}})
			for _, a := range tries { // each attempt is possible
				if res := tell(t, free, a.in(way), tool.Guarantees{}, tool.Discard); !res.OK {
					t.Errorf("without walls %s failed: %+v", a.in(way), res.Failure)
				}
			}
		})
	}
}

func TestConfiguredWallsGrantMore(t *testing.T) {
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			tooltest.NoLeaks(t)
			outside, root := elsewhere(t), obedience(t)
			text := fmt.Sprintf("sources: [{name: a, protocol: namel3ss, tool: t, entry: 'code:run', kind: %s, walls: {read: [.], write: [%s], network: all}}]",
				map[string]string{modeFresh: "python, mode: fresh", modeWarm: "python, mode: warm", appfile.KindNode: "node"}[way], outside)
			cfg := kit.Must(config.Parse(filepath.Join(root, "toolpost.yaml"), []byte(text)))(t)
			opened := kit.Must(Open(t.Context(), cfg.Sources[0], quiet()))(t)
			r := opened.(*Runner)
			defer r.Close(context.Background())
			if r.Unavailable("t") != nil {
				t.Skip("no Node.js on this machine")
			}
			all := attempts(outside, loopback(t))
			for _, a := range []attempt{all["no_filesystem_read"], all["no_filesystem_write"], all["no_network"], all["no_subprocess"]} {
				if res := tell(t, r, a.in(way), tool.Guarantees{}, tool.Discard); !res.OK || len(stopped(res)) > 0 || res.Trace.Details["enforcement_level"] != "enforced" {
					t.Errorf("%s: %+v, %q", a.in(way), res.Failure, stopped(res))
				}
			}
		})
	}
}

func TestToolsGetTheSecretsThatAreAllowedAndNoOthers(t *testing.T) {
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			tooltest.NoLeaks(t)
			r := obedient(t, way, obedience(t), Options{Options: spawn.Options{Env: map[string]string{"ONE": "1", "TWO": "2"}}})
			a := attempt{py: "[os.environ.get('ONE'), os.environ.get('TWO')]", js: "[process.env.ONE ?? null, process.env.TWO ?? null]"}
			if res := tell(t, r, a.in(way), tool.Guarantees{SecretsAllowed: []string{"TWO"}}, tool.Discard); string(res.Output) != `[null,"2"]` {
				t.Errorf("got %s, %+v", res.Output, res.Failure)
			}
			nothing := attempt{py: "[n for n in os.environ if n != 'LC_CTYPE'] + [len(open('/proc/self/environ').read())]", js: "Object.keys(process.env).concat(fs.readFileSync('/proc/self/environ').length)"}
			if res := tell(t, r, nothing.in(way), tool.Guarantees{NoEnvRead: true}, tool.Discard); string(res.Output) != `[0]` {
				t.Errorf("got %s, %+v", res.Output, res.Failure)
			}
		})
	}
}

// A guarantee also holds for the code that a tool runs while it is imported.
func TestGuaranteesHoldWhileAToolIsImported(t *testing.T) {
	const code = "import os, socket, subprocess\ndid = []\n" +
		"for do in %q.split(';'):\n    try:\n        did.append(eval(do))\n    except OSError as err:\n        pass\n" +
		"def run(p):\n    return len(did)\n"
	outside := elsewhere(t)
	all := attempts(outside, loopback(t))
	var dos []string
	for _, name := range []string{"no_filesystem_read", "no_filesystem_write", "no_network", "no_subprocess"} {
		dos = append(dos, all[name].py)
	}
	everything := tool.Guarantees{NoFilesystemRead: true, NoFilesystemWrite: true, NoNetwork: true, NoSubprocess: true}
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) {
			tooltest.NoLeaks(t)
			o := much(outside)
			o.Mode = mode
			r := python(t, fmt.Sprintf(code, strings.Join(dos, ";")), o)
			if res := tell(t, r, "", tool.Guarantees{}, tool.Discard); string(res.Output) != "4" {
				t.Errorf("without guarantees it did %s of 4", res.Output)
			}
			res := tell(t, r, "", everything, tool.Discard)
			if string(res.Output) != "0" || res.Trace.Details["mode"] != mode {
				t.Errorf("it did %s, %+v, %v", res.Output, res.Failure, res.Trace.Details["mode"])
			}
			// Attempts before the first call are in that call's trace.
			everything := everything
			everything.NoSubprocess = false
			if res := tell(t, r, "", everything, tool.Discard); string(res.Output) != "1" || !slices.Contains(stopped(res), all["no_network"].seen+" policy") {
				t.Errorf("it did %s, and %q was seen", res.Output, stopped(res))
			}
		})
	}
}

// A fork can reach neither its server nor what the next call will get.
func TestAForkCannotReachItsServer(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{})
	for _, do := range []string{
		"os.kill(os.getppid(), 0)", "os.kill(os.getppid(), 9)", "os.kill(os.getppid(), 19)", "open(f'/proc/{os.getppid()}/mem', 'r+b')", "open(f'/proc/{os.getppid()}/environ')",
		"os.readlink(f'/proc/{os.getppid()}/fd/4')", "__import__('ctypes').CDLL(None).ptrace(16, os.getppid(), 0, 0) == -1 and os.close(-1)",
	} {
		if res := tell(t, r, do, tool.Guarantees{}, tool.Discard); res.OK {
			t.Errorf("%s gave %s", do, res.Output)
		}
	}
	before := server(t, r)
	// Files that it leaves in its /tmp are gone for the next call; a call that leaves none keeps its server.
	if res := tell(t, r, "open('/tmp/kept', 'w').close() or os.unlink('/tmp/kept') or os.getpid()", tool.Guarantees{}, tool.Discard); !res.OK {
		t.Error(res.Failure)
	}
	if tell(t, r, "1", tool.Guarantees{}, tool.Discard); server(t, r) != before {
		t.Error("a call that left nothing cost its server")
	}
	tell(t, r, "open('/tmp/left', 'w').write('x')", tool.Guarantees{}, tool.Discard)
	if res := tell(t, r, "os.path.exists('/tmp/left')", tool.Guarantees{}, tool.Discard); string(res.Output) != "false" {
		t.Errorf("the next call finds %s, %+v", res.Output, res.Failure)
	}
}

// Only a limited number of attempts per child are reported, and a server has many calls.
func TestAttemptsOfLaterCallsAreReported(t *testing.T) {
	tooltest.NoLeaks(t)
	r := python(t, "import os\ndef run(p):\n    for n in range(p['n']):\n        try:\n            open('/new', 'w')\n        except OSError:\n            pass\n", Options{})
	for range 3 {
		must(t, r, "t", `{"n":40}`)
	}
	kit.EqualSlices(t, stopped(must(t, r, "t", `{"n":1}`)), []string{"filesystem_write /new engine"})
}

// System V objects and POSIX queues have no owner whose end removes them. No later call finds the objects of an earlier one,
// and unneeded objects are removed.
func TestACallFindsNoObjectsOfAnother(t *testing.T) {
	const libc = "__import__('ctypes').CDLL(None, use_errno=True)."
	for name, c := range map[string]struct{ makes, finds string }{
		"memory":     {libc + "shmget(77, 4096, 0o1600)", libc + "shmget(77, 0, 0)"},
		"semaphores": {libc + "semget(77, 1, 0o1600)", libc + "semget(77, 0, 0)"},
		"messages":   {libc + "msgget(77, 0o1600)", libc + "msgget(77, 0)"},
		"a queue":    {libc + "mq_open(b'/call', 0o102, 0o600, None)", libc + "mq_open(b'/call', 2)"},
		"a folder":   {"os.open('/dev/shm/call', os.O_CREAT | os.O_RDWR)", "os.open('/dev/shm/call', os.O_RDWR)"},
	} {
		t.Run(name, func(t *testing.T) {
			tooltest.NoLeaks(t)
			r := obedient(t, modeWarm, obedience(t), Options{Workers: 1})
			mode := tell(t, r, "1", tool.Guarantees{}, tool.Discard).Trace.Details["mode"]
			made := tell(t, r, c.makes, tool.Guarantees{}, tool.Discard)
			found := tell(t, r, c.finds, tool.Guarantees{}, tool.Discard)
			if mode != modeWarm || found.OK && string(found.Output) != "-1" {
				t.Errorf("in a %v interpreter %s was made, and found as %s", mode, made.Output, found.Output)
			}
		})
	}
}

// Objects that a module makes when it is imported would be shared by all calls.
func TestAModuleWithObjectsIsNotForked(t *testing.T) {
	tooltest.NoLeaks(t)
	r := python(t, "import ctypes\nctypes.CDLL(None).shmget(77, 4096, 0o1600)\ndef run(p):\n    return ctypes.CDLL(None).shmget(77, 4096, 0o600)\n", Options{})
	res := must(t, r, "t", `{}`)
	if reason, _ := res.Trace.Details["mode_reason"].(string); res.Trace.Details["mode"] != modeFresh || !strings.Contains(reason, "System V") {
		t.Errorf("got %v", res.Trace.Details)
	}
}

// If a call has left something in its server's room, the server ends with that call, not with the next one, which may never
// come.
func TestLeftoversOfACallEndItsServer(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{Workers: 1})
	for leaves, want := range map[string]int{
		"1": 1, "__import__('ctypes').CDLL(None).shmget(78, 4096, 0o1600)": 0, "open('/tmp/left', 'w').write('x' * 5000)": 0,
	} {
		tell(t, r, "1", tool.Guarantees{}, tool.Discard)
		tell(t, r, leaves, tool.Guarantees{}, tool.Discard)
		kit.Equal(t, interpreters(), want, "after %s", leaves)
	}
}

// interpreters counts the Python programs below this process.
func interpreters() (n int) {
	for _, pid := range tooltest.Descendants(os.Getpid()) {
		if argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(argv), "posix.pread") {
			n++
		}
	}
	return n
}

func TestALimitThatAToolReachesIsNamed(t *testing.T) {
	for _, l := range sandbox.Probe() {
		if l.Name == sandbox.LayerMemory && !l.Works {
			t.Skip("memory cannot be limited here: " + l.Why)
		}
	}
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			tooltest.NoLeaks(t)
			r := obedient(t, way, obedience(t), Options{Options: spawn.Options{Walls: walls.Options{Memory: 160 << 20}}})
			a := attempt{py: "len(b'x' * (400 << 20))", js: "Buffer.alloc(400 << 20, 'x').length"}
			args, _ := json.Marshal(map[string]string{"do": a.in(way)})
			for range map[string]int{modeFresh: 1, modeWarm: 6, appfile.KindNode: 1}[way] { // 6 crashes are more than a pool tolerates
				res, err := call(r, "t", string(args), tool.Discard)
				if tool.CodeOf(err) != tool.CodeCrash || !strings.Contains(err.Error(), "reached its limit of memory") {
					t.Fatalf("got %+v, %v", res, err)
				}
			}
			if res := tell(t, r, "1", tool.Guarantees{}, tool.Discard); !res.OK {
				t.Error(res.Failure)
			}
		})
	}
}

func TestWarmPoolsAreBounded(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{Options: spawn.Options{Env: map[string]string{"S0": "0", "S1": "1"}, Walls: walls.Options{Off: true}}})
	for n := range maxPools + 2 {
		g := tool.Guarantees{SecretsAllowed: []string{fmt.Sprintf("S%d", n)}}
		if res := tell(t, r, fmt.Sprintf("os.environ.get('S%d')", 1-n%2), g, tool.Discard); string(res.Output) != "null" || res.Trace.Details["mode"] != modeWarm {
			t.Errorf("set %d: %s, %v", n, res.Output, res.Trace.Details["mode"])
		}
	}
	p := localOf(r, "t").pools
	if len(p.all) != maxPools || !soon(func() bool { return len(pythons(os.Getpid())) == maxPools }) {
		t.Errorf("there are %d pools, and %d servers", len(p.all), len(pythons(os.Getpid())))
	}
	for _, o := range p.all {
		o.users++ // as a call does
	}
	if res := tell(t, r, "1", tool.Guarantees{}, tool.Discard); res.Trace.Details["mode"] != modeFresh || !strings.Contains(fmt.Sprint(res.Trace.Details["mode_reason"]), "in use") {
		t.Errorf("with all in use it ran %v because %v", res.Trace.Details["mode"], res.Trace.Details["mode_reason"])
	}
}

func TestCallRunsFreshIfItCannotBeForkedBehindWalls(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{})
	localOf(r, "t").fork = func(sandbox.Profile) ([]byte, error) {
		return nil, tool.Errorf(tool.CodeUnsupported, "landlock is missing").Because(sandbox.CoverageMissing)
	}
	d := tell(t, r, "1", tool.Guarantees{}, tool.Discard).Trace.Details
	if d["mode"] != modeFresh || d["enforcement_level"] != "enforced" || !strings.Contains(fmt.Sprint(d["mode_reason"]), "landlock is missing") {
		t.Errorf("trace %v", d)
	}
}

// A server that cannot build the walls of its forks runs none of them.
func TestAForkWithoutWallsIsNotRun(t *testing.T) {
	tooltest.NoLeaks(t)
	elsewhere := elsewhere(t)
	script := func(p sandbox.Profile) ([]byte, error) {
		p.Executable = append(slices.Clone(p.Executable), elsewhere) // it is not in the room that the script is for
		return forks.Script(p)
	}
	r := obedient(t, modeWarm, obedience(t), Options{})
	localOf(r, "t").fork = script // it fails in the server
	d := tell(t, r, "1", tool.Guarantees{}, tool.Discard).Trace.Details
	if d["mode"] != modeFresh || !strings.Contains(fmt.Sprint(d["mode_reason"]), "cannot build walls") {
		t.Errorf("trace %v", d)
	}
	r = obedient(t, modeWarm, obedience(t), Options{})
	localOf(r, "t").fork = func(p sandbox.Profile) ([]byte, error) { // and this one in the fork
		b, err := script(p)
		return slices.Concat(make([]byte, 8), b[8:]), err // the server ignores it
	}
	res, err := call(r, "t", `{"do":"1"}`, tool.Discard)
	if e := tool.AsError(err); e == nil || e.Reason != sandbox.CoverageMissing || !strings.Contains(e.Message, "walls could not be built") || !strings.Contains(string(e.Details), `"blocked"`) {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestRecordNamesTheEnforcedGuarantees(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{})
	record := &tool.Record{}
	c := &tool.Call{Tool: "t", Args: json.RawMessage(`{"do":"1"}`), Spec: &tool.Spec{Guarantees: tool.Guarantees{NoNetwork: true}}, Notes: tool.Notes{Record: record}}
	if _, err := r.Invoke(t.Context(), c, tool.Discard); err != nil || !strings.HasPrefix(record.Walls, "no_network,layers:") {
		t.Errorf("%q, %v", record.Walls, err)
	}
}

// A tool gets the secrets that its source declares and its guarantees allow, and no others.
func TestOnlyDeclaredSecretsReachATool(t *testing.T) {
	tooltest.NoLeaks(t)
	root := obedience(t)
	kept := tooltest.Vault{"KEY_A": "value-of-a", "KEY_B": "value-of-b", "KEY_C": "value-of-c"}
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			r := obedient(t, way, root, Options{Options: spawn.Options{Grant: secret.Grant{Secrets: []string{"KEY_A", "KEY_B"}, Vault: kept}}})
			do := "sorted(v for v in os.environ.values() if v.startswith('value-of-'))"
			if way == appfile.KindNode {
				do = "Object.values(process.env).filter((v) => v.startsWith('value-of-')).sort()"
			}
			for _, c := range []struct {
				allowed []string
				want    string
			}{{nil, `["value-of-a","value-of-b"]`}, {[]string{"KEY_B", "KEY_C"}, `["value-of-b"]`}, {[]string{}, `[]`}} {
				if res := tell(t, r, do, tool.Guarantees{SecretsAllowed: c.allowed}, tool.Discard); string(res.Output) != c.want {
					t.Errorf("%q allowed: it has %s", c.allowed, res.Output)
				}
			}
			r = obedient(t, way, root, Options{Options: spawn.Options{Grant: secret.Grant{SecretFiles: []string{"KEY_A", "KEY_B"}, Vault: kept}}})
			do = "os.read(int(os.environ['KEY_B_FD']), 100).decode() + ' '.join(v for v in os.environ.values() if v.startswith('value-of-'))"
			if way == appfile.KindNode {
				do = "fs.readFileSync(Number(process.env.KEY_B_FD), 'utf8')"
			}
			for range 2 {
				if res := tell(t, r, do, tool.Guarantees{}, tool.Discard); string(res.Output) != `"value-of-b"` {
					t.Errorf("by its descriptor it reads %s", res.Output)
				}
			}
			r = obedient(t, way, root, Options{Options: spawn.Options{Grant: secret.Grant{Secrets: []string{"NONE"}, Vault: kept}}})
			if _, err := r.Invoke(t.Context(), &tool.Call{Tool: "t", Args: json.RawMessage(`{"do":"1"}`)}, tool.Discard); tool.CodeOf(err) != tool.CodeUnavailable {
				t.Errorf("without its secret it runs: %v", err)
			}
		})
	}
}
