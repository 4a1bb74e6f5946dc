package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/tool"
)

// An escape is a program that tries to reach something that is not its own. If it succeeds, it returns a text with the word
// ESCAPED in it, or what it has found. In its code SECRET is a file that it was not given, with the canary in it, OUTSIDE
// the folder of that file, PORT a port with a listener, and LISTENER a Unix socket with one.
//
// Without walls each of them succeeds: see TestEveryEscapeWorksWithoutWalls. Those that cannot, or would do harm, are marked
// as only. Escapes are tried one after the other in one program, unless they are marked as alone: the effects of these would
// be mistaken for those of others.
type escape struct {
	name, code  string
	only, alone bool
	endless     bool // only its timeout ends it
}

func way(name, code string) escape { return escape{name: name, code: code} }

func only(name, code string) escape { return escape{name: name, code: code, only: true} }

func alone(name, code string) escape { return escape{name: name, code: code, only: true, alone: true} }

func endless(name, code string) escape {
	return escape{name: name, code: code, only: true, alone: true, endless: true}
}

func pythonEscapes() []escape {
	return slices.Concat(pythonFiles(), pythonPrograms(), pythonNetwork(), pythonServer(), pythonTooMuch(),
		pythonKernel(), pythonOthers(), pythonSockets(), pythonHoards())
}

func pythonFiles() []escape {
	return []escape{
		way("open", `return open("SECRET").read()`),
		way("os.open", `import os; return os.read(os.open("SECRET", os.O_RDONLY), 100).decode()`),
		way("pathlib with dots", `import pathlib; return pathlib.Path("/usr/../SECRET").read_text()`),
		way("a folder's list", `import os; return "ESCAPED" if os.listdir("OUTSIDE") else "empty"`),
		way("linecache", `import linecache; return linecache.getline("SECRET", 1)`),
		way("a loader", `import importlib.machinery as m; return m.SourceFileLoader("evil", "OUTSIDE/evil.py").load_module().ESCAPED`),
		way("sys.path", `import sys; sys.path.insert(0, "OUTSIDE"); import evil; return evil.ESCAPED`),
		way("runpy", `import runpy; return runpy.run_path("OUTSIDE/evil.py")["ESCAPED"]`),
		way("mmap", `import mmap, os; return mmap.mmap(os.open("SECRET", 0), 0, prot=mmap.PROT_READ)[:].decode()`),
		way("ctypes: open", `
import ctypes
libc = ctypes.CDLL(None)
fd = libc.open(b"SECRET", 0)
data = ctypes.create_string_buffer(100)
libc.read(fd, data, 100)
return data.value.decode()`),
		way("ctypes: syscall", `
import ctypes, platform
libc = ctypes.CDLL(None)
fd = libc.syscall(257 if platform.machine() == "x86_64" else 56, -100, b"SECRET", 0, 0)
data = ctypes.create_string_buffer(100)
libc.read(fd, data, 100)
return data.value.decode()`),
		way("an audit hook's frame", `
import sys
sys.addaudithook(lambda *a: None)
return (lambda f: f.f_builtins["open"]("SECRET").read())(sys._getframe())`),
		way("write", `open("OUTSIDE/made", "w").write("x"); return "ESCAPED"`),
		way("write to /tmp", `open("/tmp/tp-escape-test", "w").write("x"); return "ESCAPED"`),
		way("write to /dev/shm", `open("/dev/shm/tp-escape-test", "w").write("x"); return "ESCAPED"`),
		way("write to the current folder", `open("made-here", "w").write("x"); return "ESCAPED"`),
		way("a link", `import os; os.symlink("SECRET", "OUTSIDE/link"); return "ESCAPED"`),
		only("write to the interpreter", `import os; open(os.path.dirname(os.__file__) + "/tp_escape.py", "w").write("x"); return "ESCAPED"`),
		only("a set-user-id file", `import os; os.chmod(os.__file__, 0o4755); return "ESCAPED"`),
	}
}

func pythonPrograms() []escape {
	return []escape{
		way("subprocess", `import subprocess; return "ESCAPED" + subprocess.run(["cat", "SECRET"], capture_output=True, text=True, check=True).stdout`),
		way("os.system", `import os; return "ESCAPED" if os.system("true") == 0 else "no"`),
		way("os.popen", `import os; return os.popen("cat SECRET").read()`),
		way("fork", "import os\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)\nreturn 'ESCAPED'"),
		way("posix_spawn", `import os; return f"ESCAPED {os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[0]}"`),
		way("multiprocessing", `
import multiprocessing
p = multiprocessing.get_context("fork").Process(target=print)
p.start()
p.join()
return "ESCAPED" if p.exitcode == 0 else "no"`),
		way("ctypes: fork", `
import ctypes, os
pid = ctypes.CDLL(None, use_errno=True).fork()
if pid == 0: os._exit(0)
return "ESCAPED" if pid > 0 else "no"`),
		alone("exec", `import os; os.execv("/bin/cat", ["cat", "SECRET"])`),
		alone("a program in memory", `
import os
fd = os.memfd_create("x", 0)
os.write(fd, open("/bin/true", "rb").read())
os.execv(f"/dev/fd/{fd}", ["x"])`),
		way("a terminal", `
import os, pty
pid = pty.fork()[0]
if pid == 0: os._exit(0)
return "ESCAPED"`),
	}
}

func pythonNetwork() []escape {
	return []escape{
		way("a connection", `import socket; socket.create_connection(("127.0.0.1", PORT), 5); return "ESCAPED"`),
		way("asyncio", `import asyncio; await asyncio.open_connection("127.0.0.1", PORT); return "ESCAPED"`),
		way("urllib", `
import urllib.error, urllib.request
try:
    urllib.request.urlopen("http://127.0.0.1:PORT/", timeout=1)
except urllib.error.URLError as e:
    return str(e)
except Exception:
    return "ESCAPED"`), // the listener sends nothing
		way("a datagram", `import socket; return "ESCAPED" if socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT)) else "no"`),
		way("a Unix socket", `import socket; s = socket.socket(socket.AF_UNIX); s.connect("LISTENER"); return "ESCAPED"`),
		way("an abstract socket", `import socket; s = socket.socket(socket.AF_UNIX); s.bind("\0tp-escape-test"); return "ESCAPED"`),
		way("netlink", `import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); return "ESCAPED"`),
		way("listening", `import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); return "ESCAPED"`),
	}
}

func pythonServer() []escape {
	return []escape{
		way("the environment", `import os; return str(dict(os.environ))`),
		way("ctypes: the environment", `
import ctypes
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
return str(libc.getenv(b"TP_CANARY"))`),
		way("/proc/self/environ", `return open("/proc/self/environ").read()`),
		only("/proc of others", `
import glob
return "".join(open(p, errors="replace").read() for p in glob.glob("/proc/[0-9]*/environ")) or "nothing"`),
		only("/proc/1/root", `return open("/proc/1/rootSECRET").read()`),
		way("/proc/self/maps", `return "ESCAPED" if open("/proc/self/maps").read() else "no"`),
		way("/proc/self/mem", `open("/proc/self/mem", "rb"); return "ESCAPED"`),
		only("all objects of the interpreter", `
import gc
found = [o for o in gc.get_objects() if isinstance(o, dict) and any(isinstance(v, str) and "cana" + "ry-" in v for v in o.values())]
return f"ESCAPED {found}" if found else "nothing"`),
		only("the frames above", `
import sys
frame, found = sys._getframe(), []
while frame:
    found += [n for n, v in {**frame.f_globals, **frame.f_locals}.items() if isinstance(v, str) and "cana" + "ry-" in v]
    frame = frame.f_back
return f"ESCAPED {found}" if found else "nothing"`),
		only("the control socket of the server", `
import gc, socket
for s in [o for o in gc.get_objects() if isinstance(o, socket.socket)]:
    try:
        peer = s.fileno()
    except OSError:
        continue
    if peer >= 0 and s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_SEQPACKET:
        return "ESCAPED"
return "closed"`),
		alone("inherited descriptors", `
import os, stat
mine = []
for fd in range(3, 1024):
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        continue
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode):
        mine.append(fd)
    elif stat.S_ISSOCK(mode):
        mine.append("s")
return "ESCAPED" if [m for m in mine if m != "s"] or mine.count("s") > 3 else f"only sockets of its own: {len(mine)}"`),
		only("ptrace", `
import ctypes, os
return "ESCAPED" if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0 else "no"`),
		only("reading the server's memory", `
import ctypes, os
class Vec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
data = ctypes.create_string_buffer(64)
mine, theirs = Vec(ctypes.addressof(data), 64), Vec(id(os), 64)
n = ctypes.CDLL(None).process_vm_readv(os.getppid(), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
return "ESCAPED" if n > 0 else "no"`),
		only("another user", `import os; os.setuid(12345); return "ESCAPED" if os.getuid() == 12345 else "no"`),
		only("namespaces", `import ctypes; return "ESCAPED" if ctypes.CDLL(None).unshare(0x10000000) == 0 else "no"`),
		only("mounting", `import ctypes; return "ESCAPED" if ctypes.CDLL(None).mount(b"none", b"/mnt", b"tmpfs", 0, None) == 0 else "no"`),
		only("a root of its own", `import os; os.chroot("/usr"); return "ESCAPED"`),
		only("more memory", `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))
return "ESCAPED"`),
		alone("killing all", "import os\nos.kill(-1, 9)\nreturn 'alone'"),
		alone("killing its server", "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(1)\nreturn 'alone'"),
		alone("stopping its server", "import os\nos.kill(os.getppid(), 19)\nreturn 'alone'"),
		endless("ignoring signals", "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\nwhile True: pass"),
	}
}

func pythonTooMuch() []escape {
	return []escape{
		alone("memory", "all = []\nwhile True: all.append(bytearray(64 << 20))"),
		alone("threads", "import threading, time\nfor _ in range(100000): threading.Thread(target=time.sleep, args=(60,)).start()\nreturn 'ESCAPED'"),
		alone("a fork bomb", "import os\nwhile True: os.fork()"),
		alone("recursion", "def f(): f()\nimport sys\nsys.setrecursionlimit(10**8)\nf()"),
		endless("standard error", "import os\nwhile True: os.write(2, b'\\xff' * 65536)"),
		alone("closing everything", "import os\nos.closerange(0, 1024)\nreturn 1"),
	}
}

func nodeEscapes() []escape { return append(nodeOthers(), nodeWays()...) }

func nodeWays() []escape {
	return []escape{
		way("fs", `return require('fs').readFileSync('SECRET', 'utf8')`),
		way("fs.promises", `return await (await import('node:fs/promises')).readFile('SECRET', 'utf8')`),
		way("fs with dots", `return require('fs').readFileSync('/usr/../SECRET', 'utf8')`),
		way("a list", `return require('fs').readdirSync('OUTSIDE').length ? 'ESCAPED' : 'empty'`),
		way("require", `return require('OUTSIDE/evil.cjs')`),
		way("import", `return (await import('file://OUTSIDE/evil.cjs')).default`),
		way("a stream", `let t = ''; for await (const p of require('fs').createReadStream('SECRET')) t += p; return t`),
		way("Function's constructor", `return (() => {}).constructor('r', "return r('fs').readFileSync('SECRET', 'utf8')")(require)`),
		way("a context of its own", `return require('vm').runInNewContext("r('fs').readFileSync('SECRET', 'utf8')", {r: require})`),
		way("process.binding", `return process.binding('fs') && require('fs').readFileSync('SECRET', 'latin1')`),
		way("a worker", `
const { Worker } = require('worker_threads')
return await new Promise((resolve, reject) => {
  const w = new Worker("require('worker_threads').parentPort.postMessage(require('fs').readFileSync('SECRET', 'utf8'))", {eval: true, execArgv: []})
  w.on('message', resolve); w.on('error', reject) })`),
		way("WASI", `
const { WASI } = require('wasi')
new WASI({version: 'preview1', preopens: {'/x': 'OUTSIDE'}})
return require('fs').statSync('SECRET').size ? 'ESCAPED' : ''`),
		way("write", `require('fs').writeFileSync('OUTSIDE/made', 'x'); return 'ESCAPED'`),
		way("write to /tmp", `require('fs').writeFileSync('/tmp/tp-escape-test', 'x'); return 'ESCAPED'`),
		way("a heap snapshot", `return require('v8').writeHeapSnapshot('/tmp/tp-escape-test.heap') ? 'ESCAPED' : ''`),
		way("a report", `
process.report.directory = '/tmp'; process.report.filename = 'tp-escape-test.json'
process.report.writeReport()
return require('fs').existsSync('/tmp/tp-escape-test.json') ? 'ESCAPED' : 'no'`),
		way("execSync", `return 'ESCAPED' + require('child_process').execSync('cat SECRET')`),
		way("spawnSync", `const r = require('child_process').spawnSync('/bin/true'); if (r.error) throw r.error; return 'ESCAPED'`),
		way("fork", `
const c = require('child_process').spawn(process.execPath, ['-e', '0'])
return await new Promise((resolve, reject) => { c.on('exit', () => resolve('ESCAPED')); c.on('error', reject) })`),
		way("a connection", `
return await new Promise((resolve, reject) => require('net').connect(PORT, '127.0.0.1', () => resolve('ESCAPED')).on('error', reject))`),
		way("fetch", `
try { await fetch('http://127.0.0.1:PORT/', {signal: AbortSignal.timeout(1000)}); return 'ESCAPED' }
catch (e) { return e.name === 'TimeoutError' ? 'ESCAPED' : String(e.cause) }`), // the listener sends nothing
		way("a datagram", `
return await new Promise((resolve, reject) => { const s = require('dgram').createSocket('udp4').on('error', reject)
  s.send('x', PORT, '127.0.0.1', (e) => { s.close(); e ? reject(e) : resolve('ESCAPED') }) })`),
		way("a Unix socket", `
return await new Promise((resolve, reject) => require('net').connect('LISTENER', () => resolve('ESCAPED')).on('error', reject))`),
		way("listening", `
return await new Promise((resolve, reject) => { const s = require('net').createServer().on('error', reject)
  s.listen(0, '127.0.0.1', () => { s.close(); resolve('ESCAPED') }) })`),
		way("the environment", `return JSON.stringify(process.env)`),
		way("/proc/self/environ", `return require('fs').readFileSync('/proc/self/environ', 'utf8')`),
		way("/proc/self/fd", `return require('fs').readdirSync('/proc/self/fd').length ? 'ESCAPED' : ''`),
		alone("descriptors", `
const fs = require('fs'); const mine = []
for (let fd = 4; fd < 256; fd++) { try { const s = fs.fstatSync(fd); if (s.isFile() || s.isDirectory()) mine.push(fd) } catch {} }
return mine.length ? 'ESCAPED ' + mine : 'none'`),
		only("the inspector", `require('inspector').open(0, '127.0.0.1'); return require('inspector').url() ? 'ESCAPED' : 'no'`),
		only("another user", `process.setuid(12345); return process.getuid() === 12345 ? 'ESCAPED' : 'no'`),
		only("a library", `process.dlopen({exports: {}}, 'OUTSIDE/evil.cjs'); return 'ESCAPED'`),
		alone("its parent", `try { process.kill(process.ppid, 9) } catch (e) { return e.code } return 'alone'`),
		alone("all", `try { process.kill(-1, 9) } catch (e) { return e.code } return 'alone'`),
		alone("exit", `process.exit(3)`),
		alone("abort", `process.abort()`),
		alone("the prototype of everything", `
Object.prototype.parent = 'forged'; Object.prototype.caller = 'owner'; Array.prototype.toJSON = () => ({caller: 'owner'})
return (await tools.probe.who()).caller`),
		alone("memory", `const all = []; for (;;) all.push(new Array(1e6).fill(1.5))`),
		alone("buffers", `const all = []; for (;;) all.push(Buffer.alloc(64 << 20, 1))`),
		alone("workers", `const { Worker } = require('worker_threads'); for (let i = 0; i < 1000; i++) new Worker('for(;;);', {eval: true}); return 'alone'`),
		endless("standard error", `for (;;) require('fs').writeSync(2, Buffer.alloc(65536, 255))`),
		endless("a loop", `for (;;);`),
		alone("closing the channel", `require('fs').closeSync(3); return 1`),
	}
}

// A stage has the targets of the escapes: listeners, and a file.
type stage struct {
	tcp    net.Listener
	unix   net.Listener
	touch  sync.Mutex
	caught []string
	fill   *strings.Replacer
}

func newStage(t *testing.T, outside string) *stage {
	t.Helper()
	s := &stage{}
	var err error
	if s.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	short := kit.Must(os.MkdirTemp("", "tp"))(t) // the name of a socket must be short
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	if s.unix, err = net.Listen("unix", filepath.Join(short, "s")); err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	for _, l := range []net.Listener{s.tcp, s.unix} {
		open.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				s.catch("a connection to " + l.Addr().String())
				defer conn.Close()
			}
		})
	}
	t.Cleanup(func() { _ = s.tcp.Close(); _ = s.unix.Close(); open.Wait() })
	s.fill = strings.NewReplacer("SECRET", filepath.Join(outside, "secret.txt"), "OUTSIDE", outside,
		"PORT", fmt.Sprint(s.tcp.Addr().(*net.TCPAddr).Port), "LISTENER", s.unix.Addr().String(), "tp-escape-test", mark())
	return s
}

func (s *stage) catch(what string) {
	s.touch.Lock()
	defer s.touch.Unlock()
	s.caught = append(s.caught, what)
}

// takes returns what was received since.
func (s *stage) takes() []string {
	s.touch.Lock()
	defer s.touch.Unlock()
	caught := s.caught
	s.caught = nil
	return caught
}

func escaped(text string) bool {
	return strings.Contains(text, "ESCAPED") || strings.Contains(text, secret)
}

// mark is in the names of everything that an escape makes: tests of other trees try the same on this machine.
func mark() string { return fmt.Sprintf("tp-escape-%d", os.Getpid()) }

// left lists files that an escape has made.
func left(outside string) (found []string) {
	for _, pattern := range []string{outside + "/made", outside + "/link", "/tmp/" + mark() + "*", "/dev/shm/*" + mark(), "made-here"} {
		files, _ := filepath.Glob(pattern)
		found = append(found, files...)
	}
	return found
}

func removeLeft(outside string) {
	for _, file := range left(outside) {
		_ = os.Remove(file)
	}
}

// A trial is a program that makes some escapes; it returns the text of each under its name.
type trial struct {
	language, code string
	escapes        []escape
	timeout        float64 // seconds; 0 means the default
}

// trials makes programs of escapes: one of all those that do not disturb each other, and one of each of the others; with
// TOOLPOST_LONG, one of each.
func trials(language string, all []escape) (list []trial) {
	var together []escape
	for _, e := range all {
		switch {
		case e.endless:
			list = append(list, trial{language, program(language, e), []escape{e}, 2})
		case e.alone || rounds.Of(0, 1) == 1:
			list = append(list, trial{language, program(language, e), []escape{e}, 0})
		default:
			together = append(together, e)
		}
	}
	if len(together) == 0 {
		return list
	}
	return append(list, trial{language, program(language, together...), together, 0})
}

// program returns the code of some escapes, each in its own function. If one fails, its text is its error.
func program(language string, escapes ...escape) string {
	var b strings.Builder
	if language == "javascript" {
		b.WriteString("const found = {}\n")
		for _, e := range escapes {
			fmt.Fprintf(&b, "try { found[%q] = String(await (async () => {%s\n})()) }\n", e.name, e.code)
			fmt.Fprintf(&b, "catch (e) { found[%q] = String(e) }\n", e.name)
		}
		return b.String() + "return found"
	}
	b.WriteString("found = {}\n")
	for _, e := range escapes {
		fmt.Fprintf(&b, "async def attempt():\n    %s\n", strings.ReplaceAll(e.code, "\n", "\n    "))
		fmt.Fprintf(&b, "try:\n    found[%q] = str(await attempt())\n", e.name)
		fmt.Fprintf(&b, "except BaseException as e:\n    found[%q] = repr(e)\n", e.name)
	}
	return b.String() + "return found"
}

// No program gets more than its caller may: none sees the secret, makes a file, reaches a listener or leaves a process, and
// the next program runs as if nothing had happened.
func TestNoProgramEscapes(t *testing.T) {
	t.Setenv("TP_CANARY", secret)
	w := newWorld(t, "{timeout: 60s, memory: 268435456, max_output: 4096}")
	s := newStage(t, w.outside)
	removeLeft(w.outside)
	n := 0
	for language, all := range escapes() {
		for _, one := range trials(language, all) {
			n += len(one.escapes)
			w.try(s, one)
		}
		w.want(language, "return 1 + 1", 2)
	}
	if n < 100 {
		t.Errorf("only %d escapes were tried", n)
	}
	t.Log(n, "escapes")
}

func escapes() map[string][]escape {
	return map[string][]escape{"python": pythonEscapes(), "javascript": nodeEscapes()}
}

// try makes the escapes of a trial, and fails if one succeeds.
func (w *world) try(s *stage, one trial) {
	w.t.Helper()
	name := one.language + ", " + one.escapes[0].name
	if len(one.escapes) > 1 {
		name = one.language
	}
	o := w.run(one.language, s.fill.Replace(one.code), one.timeout)
	if o.err != nil && o.err.Code != tool.CodeToolError && o.err.Code != tool.CodeTimeout {
		w.t.Errorf("%s: it was not even tried: %v", name, o.err)
	}
	found, _ := o.Result.(map[string]any)
	for _, e := range one.escapes {
		text, tried := found[e.name].(string)
		if escaped(text) {
			w.t.Errorf("%s, %s: %s", one.language, e.name, text)
		}
		if !tried && !e.alone {
			w.t.Errorf("%s, %s: it was not even tried, or took the program with it: %s", one.language, e.name, o.all())
		}
	}
	if strings.Contains(o.all(), secret) {
		w.t.Errorf("%s: %s", name, o.all())
	}
	if caught := s.takes(); len(caught) > 0 {
		w.t.Errorf("%s: %v", name, caught)
	}
	if made := left(w.outside); len(made) > 0 {
		w.t.Errorf("%s: it made %v", name, made)
		removeLeft(w.outside)
	}
	for _, r := range w.rows(o.id) {
		if r.Caller != "ada" || r.Parent != o.id {
			w.t.Errorf("%s: on record is %+v", name, r)
		}
	}
}

// This shows that the test above would notice: without walls the same programs do escape.
func TestEveryEscapeWorksWithoutWalls(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	w := &world{t: t, dir: filepath.Dir(outside)}
	w.write("outside/secret.txt", secret)
	w.write("outside/evil.py", "ESCAPED = '"+secret+"'\n")
	w.write("outside/evil.cjs", "module.exports = '"+secret+"'\n")
	s := newStage(t, outside)
	removeLeft(outside)
	defer removeLeft(outside)
	for language, all := range escapes() {
		ways := slices.DeleteFunc(all, func(e escape) bool { return e.only })
		for _, one := range trials(language, ways) {
			found, said := bare(t, outside, language, s.fill.Replace(one.code))
			for _, e := range one.escapes {
				if !escaped(found[e.name]) {
					t.Errorf("%s, %s: it does not even escape where nothing is in its way: %q\n%s",
						language, e.name, found[e.name], said)
				}
			}
		}
	}
}

// bare runs a program without walls, and returns its result.
func bare(t *testing.T, dir, language, code string) (found map[string]string, said string) {
	t.Helper()
	argv := []string{"python3", "-c", "import asyncio, json\nasync def main():\n    " +
		strings.ReplaceAll(code, "\n", "\n    ") + "\nprint('FOUND' + json.dumps(asyncio.run(main())))"}
	if language == "javascript" {
		argv = []string{"node", "--no-warnings", "--input-type=module", "-e",
			"const require = (await import('node:module')).createRequire('/');\n" +
				"console.log('FOUND' + JSON.stringify(await (async () => {\n" + code + "\n})())); process.exit(0)"}
	}
	ctx := kit.Context(t)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = []string{"TP_CANARY=" + secret, "PATH=" + os.Getenv("PATH")}, dir
	out, err := cmd.CombinedOutput()
	said, last, _ := strings.Cut(string(out), "FOUND")
	if err := json.Unmarshal([]byte(last), &found); err != nil {
		t.Errorf("%s: %v\n%s", language, err, out)
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", language, err, out)
	}
	return found, said
}

// A line that a program itself writes to its channel is a call with a name and arguments, or rejected.
func TestTheChannelTakesCallsAndNothingElse(t *testing.T) {
	w := newWorld(t, "{timeout: 20s}")
	forged := []string{
		`{"id":1,"tool":"who","args":{},"parent":"p1"}`, `{"id":1,"tool":"who","args":{},"caller":"owner"}`,
		`{"id":1,"tool":"who","args":{},"caller":{"id":"owner","door":"cli"}}`, `{"id":1,"tool":"who","args":{},"session":"s"}`,
		`{"id":1,"tool":"who","args":{},"depth":-9}`, `{"id":1,"tool":"who","args":{},"lease":"x","key":"k"}`,
		`{"id":1,"tool":"who","args":{},"resume":"a","answers":{}}`, `{"id":1,"tool":"who","args":{},"guarantees":{}}`,
		`{"id":1,"Tool":"who"}`, `{"id":"1","tool":"who"}`, `{"id":1.5,"tool":"who"}`, `{"id":1,"tool":"who","id":2}`,
		`{"id":1,"tool":"who","return":1}`, `{"cancel":1,"return":1}`, `{"tool":"who"}`, `{"id":1}`, `{}`, `[]`, `null`, `x`, ``,
		`{"id":1,"tool":"who","args":` + strings.Repeat("[", 100000) + `}`, `{"id":1,"tool":"who","args":{"a":1,"a":2}}`,
		`{"id":9223372036854775808,"tool":"who"}`, "{\"id\":1,\"tool\":\"\xff\"}",
	}
	for _, text := range forged {
		quoted, _ := json.Marshal([]byte(text + "\n")) // base64
		o := w.run("python", `
import base64, gc, time
mine = [o for o in gc.get_objects() if type(o).__name__ == "Channel"][0]
mine.sock.setblocking(True)
mine.sock.sendall(base64.b64decode(`+string(quoted)+`))
time.sleep(60)`)
		if o.err == nil || o.err.Reason != "broken_channel" || len(w.rows(o.id)) != 0 {
			t.Errorf("%.80s: %v, %v", text, o.err, w.rows(o.id))
		}
	}
	// In JavaScript the channel is descriptor 3.
	o := w.run("javascript", `require('fs').writeSync(3, '{"id":1,"tool":"who","args":{},"caller":"owner"}\n'); await new Promise(() => {})`)
	if o.err == nil || o.err.Reason != "broken_channel" || len(w.rows(o.id)) != 0 {
		t.Errorf("%v", o.err)
	}
}

// A number belongs to one call until it is answered, and never to a call of another program.
func TestCallNumbersAreScopedToTheirProgram(t *testing.T) {
	w := newWorld(t, "{timeout: 20s}")
	twice := `{"id":1,"tool":"wait","args":{}}\n`
	o := w.run("javascript", `require('fs').writeSync(3, '`+twice+twice+`'); await new Promise(() => {})`)
	if o.err == nil || o.err.Reason != "broken_channel" || !strings.Contains(o.err.Message, "not answered yet") {
		t.Errorf("%v", o.err)
	}
	kit.Eventually(t, "no call runs", func() bool { return w.probe.running.Load() == 0 })
	w.probe.begun.Store(0)
	done := make(chan outcome)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- w.runAs(ctx, tool.Call{Caller: ada()}, "python", "await tools.probe.wait()") }()
	kit.Eventually(t, "it waits", func() bool { return w.probe.begun.Load() == 1 })
	w.want("javascript", `
for (let id = -100; id < 100; id++) require('fs').writeSync(3, JSON.stringify({cancel: id}) + '\n')
return (await tools.probe.who()).caller`, "ada")
	kit.Equal(t, w.probe.running.Load(), 1, "a program ended the call of another")
	cancel()
	<-done
}

// A flood of calls waits for its turn; a flood of bytes is cut off.
func TestAFloodOnTheChannelIsBounded(t *testing.T) {
	w := newWorld(t, "{timeout: 30s, max_calls: 100000}")
	done := make(chan outcome)
	ctx, cancel := context.WithCancel(t.Context())
	w.probe.begun.Store(0)
	go func() {
		done <- w.runAs(ctx, tool.Call{Caller: ada()}, "javascript", `
const fs = require('fs')
for (let id = 1; ; id++) {
  const line = Buffer.from(JSON.stringify({id, tool: 'wait', args: {}}) + '\n')
  for (let n = 0; n < line.length;) { try { n += fs.writeSync(3, line, n) } catch (e) { if (e.code !== 'EAGAIN') throw e } }
}`)
	}()
	kit.Eventually(t, "its places are taken", func() bool { return w.probe.begun.Load() == 64 })
	w.probe.release <- struct{}{}
	kit.Eventually(t, "the next call has its place", func() bool {
		return w.probe.begun.Load() == 65 && w.probe.running.Load() == 64
	})
	cancel()
	<-done
	kit.Equal(t, w.probe.begun.Load(), 65, "calls that got a place")
	if n := w.probe.running.Load(); n != 0 {
		t.Errorf("%d calls run on", n)
	}
	o := w.run("javascript", `
const piece = Buffer.alloc(65536, 120)
for (;;) { try { require('fs').writeSync(3, piece) } catch (e) { if (e.code !== 'EAGAIN') throw e } }`)
	if o.err == nil || o.err.Reason != "broken_channel" || !strings.Contains(o.err.Message, "longer than") {
		t.Errorf("a line without an end: %v", o.err)
	}
}

// A program cannot do what its caller may not do itself, by whichever name.
func TestProgramHasOnlyTheRightsOfItsCaller(t *testing.T) {
	w := newWorld(t, "{}")
	for _, name := range []string{
		"hidden", "probe.hidden", "probe.HIDDEN", "Hidden", " hidden", "hidden\\u0000", "probe..hidden", "../hidden", "",
	} {
		code := fmt.Sprintf("try:\n    return await tools[\"%s\"]()\nexcept ToolError as e:\n    return e.code", name)
		if o := w.run("python", code); o.Result != "not_found" && (o.err == nil || o.err.Reason != "broken_channel") {
			t.Errorf("%q: %v, %v", name, o.Result, o.err)
		}
	}
	for _, name := range []string{"forbidden", "probe.forbidden"} {
		w.want("python", fmt.Sprintf("try:\n    return await tools[%q](no=1)\nexcept ToolError as e:\n    return e.code", name), "access_denied")
	}
	// Operators' tools are for operators only.
	for name, args := range map[string]string{
		"lease.issue": `tool="who"`, "config.reload": "", "token.issue": `name="x"`, "audit.export": "",
	} {
		code := fmt.Sprintf("try:\n    return await tools.toolpost.%s(%s)\nexcept ToolError as e:\n    return e.code", name, args)
		if o := w.run("python", code); o.Result != "access_denied" && o.Result != "not_found" && o.Result != "invalid_input" {
			t.Errorf("%s: %v, %v", name, o.Result, o.err)
		}
	}
	text := w.run("python", `return (await tools.files.describe_tools())["text"] + (await tools.files.describe_tools(search="probe"))["text"]`)
	if found := fmt.Sprint(text.Result); strings.Contains(found, "hidden(") || !strings.Contains(found, "who(") {
		t.Errorf("%s, %v", found, text.err)
	}
	w.want("python", "try:\n    await tools.files.describe_tools(tools=['hidden'])\nexcept ToolError as e:\n    return e.code", "not_found")
}

// Nothing of a program is left when the next one begins, in the same interpreter.
func TestProgramLeavesNothingForTheNext(t *testing.T) {
	w := newWorld(t, "{workers: 1}")
	for range 3 {
		w.want("python", `
import builtins, sys
seen = [hasattr(builtins, "left"), "left" in sys.modules, "left" in vars(type(tools))]
builtins.left = 1
sys.modules["left"] = sys
type(tools).left = 1
return seen`, []any{false, false, false})
	}
}

func TestSystemVObjectsDoNotOutliveAProgram(t *testing.T) {
	w := newWorld(t, "{workers: 1}")
	for range 2 {
		w.want("python", `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
old = libc.shmget(0x7470, 4096, 0o600)
libc.shmget(0x7470, 4096, 0o1600)
return old`, -1)
	}
}
