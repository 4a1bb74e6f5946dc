package run_test

// callPython defines call, which makes a system call by its number on amd64 and returns the kernel's result. On other
// machines the numbers mean other calls, which are refused or harmless too.
const callPython = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    n = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return n if n >= 0 else -ctypes.get_errno()
`

// machinePython defines machine, which runs amd64 instructions and returns eax at their end.
const machinePython = `
import ctypes, mmap, platform
def machine(code):
    if platform.machine() != "x86_64": return -1
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex(code))
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
`

// pythonKernel are escapes by parts of the kernel that most programs never use.
func pythonKernel() []escape {
	asked := func(name, code string) escape { return only(name, callPython+code) }
	return []escape{
		asked("io_uring", `return "ESCAPED" if call(425, 8, ctypes.create_string_buffer(256)) >= 0 else "no"`),
		asked("a file by its handle", `
handle = ctypes.create_string_buffer(140)
handle[0:4] = (128).to_bytes(4, "little")
mount = ctypes.c_int()
for path in (b"/", b"SECRET", b"/usr"):
    if call(303, -100, path, handle, ctypes.byref(mount), 0) == 0 and call(304, -100, handle, 0) >= 0: return "ESCAPED"
return "no"`),
		asked("a key of the kernel's", `return "ESCAPED" if call(248, b"user", b"tp-escape", b"x", 1, -4) > 0 else "no"`),
		asked("a keyring", `return "ESCAPED" if call(250, 1, b"tp-escape") > 0 else "no"`),
		asked("a program for the kernel", `return "ESCAPED" if call(321, 0, ctypes.create_string_buffer(128), 128) >= 0 else "no"`),
		asked("the kernel's counters", `
attr = ctypes.create_string_buffer(128)
attr[4:8] = (128).to_bytes(4, "little")
return "ESCAPED" if call(298, attr, os.getppid(), -1, -1, 0) >= 0 else "no"`),
		asked("faults of its own", `return "ESCAPED" if call(323, 0) >= 0 else "no"`),
		asked("the server's descriptors", `
fd = call(434, os.getppid(), 0)
return "ESCAPED" if fd >= 0 and any(call(438, fd, n, 0) >= 0 for n in range(16)) else "no"`),
		asked("writing into the server", `
class Vec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
data = ctypes.create_string_buffer(8)
mine, theirs = Vec(ctypes.addressof(data), 8), Vec(id(call), 8)
return "ESCAPED" if call(311, os.getppid(), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) > 0 else "no"`),
		asked("comparing with the server", `return "ESCAPED" if call(312, os.getpid(), os.getppid(), 0, 4, 4) >= 0 else "no"`),
		asked("namespaces by clone", `
pid = call(56, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
return "ESCAPED" if pid > 0 else "no"`),
		asked("namespaces by clone3", `
args = ctypes.create_string_buffer(88)
args[0:8] = (0x10000000).to_bytes(8, "little")
args[32:40] = (17).to_bytes(8, "little")
pid = call(435, args, 88)
if pid == 0: os._exit(0)
return "ESCAPED" if pid > 0 else "no"`),
		asked("the namespaces of the server", `
fd = call(434, os.getppid(), 0)
return "ESCAPED" if fd >= 0 and call(308, fd, 0x20000) == 0 else "no"`),
		asked("the new way of mounting", `
for number, args in ((430, (b"tmpfs", 0)), (428, (-100, b"/usr", 1)), (433, (-100, b"/usr", 0))):
    if call(number, *args) >= 0: return f"ESCAPED {number}"
return "no"`),
		asked("another root", `return "ESCAPED" if call(155, b"/usr", b"/usr") == 0 or call(161, b"/usr") == 0 else "no"`),
		asked("privileges again", `
libc.prctl(38, 0, 0, 0, 0)
return "ESCAPED" if libc.prctl(39, 0, 0, 0, 0) != 1 or call(105, 0) == 0 and os.getuid() == 0 and libc.mount(b"x", b"/usr", b"tmpfs", 0, None) == 0 else "no"`),
		asked("no filter any more", `return "ESCAPED" if libc.prctl(22, 0, 0, 0, 0) == 0 else "no"`),
		asked("the clock", `
import time
try:
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return "ESCAPED"
except OSError as e:
    return str(e)`),
		asked("the name of the machine", `return "ESCAPED" if call(170, b"tp-escape", 9) == 0 else "no"`),
		asked("a module for the kernel", `return "ESCAPED" if call(313, 0, b"", 0) == 0 or call(175, b"x", 1, b"") == 0 else "no"`),
		asked("swap, accounting, reboot", `
return "ESCAPED" if any(call(n, *a) == 0 for n, a in ((167, (b"/usr/x", 0)), (163, (b"/usr/x",)), (169, (0xfee1dead, 672274793, 0, 0)))) else "no"`),
		asked("the log of the kernel", `
text = ctypes.create_string_buffer(64)
return "ESCAPED" if call(103, 3, text, 64) > 0 else "no"`),
		alone("32-bit calls", machinePython+`
pid = machine("b802000000cd80c3") # fork, as i386 has it
if pid == 0:
    import os
    os._exit(0)
return "ESCAPED" if pid > 0 else "no"`),
		alone("calls of x32", machinePython+`
pid = machine("b8390000400f05c3") # fork, as x32 has it
if pid == 0:
    import os
    os._exit(0)
return "ESCAPED" if pid > 0 else "no"`),
	}
}

// pythonOthers are escapes to the fork server, and to what a program should not withhold from later ones.
func pythonOthers() []escape {
	return []escape{
		alone("the limits of its server", `
import os, resource
resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))
return "ESCAPED"`),
		alone("the order of its server", `
import os
os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)
return "ESCAPED" if os.getppid() and os.getpriority(os.PRIO_PROCESS, os.getppid()) == 19 else "no"`),
		alone("the processors of its server", `
import os
if os.getppid() == 0: return "nobody"
before = os.sched_getaffinity(os.getppid())
os.sched_setaffinity(os.getppid(), {min(before)})
return "ESCAPED" if len(before) > 1 else "no"`),
		alone("stopping its server by a thread's name", callPython+`
for number, args in ((234, (os.getppid(), os.getppid(), 19)), (200, (os.getppid(), 19)), (129, (os.getppid(), 19, ctypes.create_string_buffer(128)))):
    if os.getppid() and call(number, *args) == 0: return f"ESCAPED {number}"
return "no"`),
		alone("a signal by a descriptor", callPython+`
fd = call(434, os.getppid(), 0)
return "ESCAPED" if fd >= 0 and call(424, fd, 19, 0, 0) == 0 else "no"`),
		endless("stopping itself", "import os\nos.kill(os.getpid(), 19)\nreturn 1"),
		alone("a queue of messages", callPython+`return "ESCAPED" if libc.mq_open(b"/tp-escape", 0o102, 0o600, None) >= 0 else "no"`),
		alone("a semaphore with a name", callPython+`
libc.sem_open.restype = ctypes.c_void_p
return "ESCAPED" if libc.sem_open(b"/tp-escape-test", 0o100, 0o600, 1) else "no"`),
	}
}

// pythonSockets are escapes by other kinds of sockets.
func pythonSockets() []escape {
	return []escape{
		alone("raw packets", `
import socket
for family, kind in ((socket.AF_PACKET, socket.SOCK_RAW), (socket.AF_INET, socket.SOCK_RAW), (socket.AF_INET6, socket.SOCK_STREAM), (40, socket.SOCK_STREAM), (31, socket.SOCK_RAW)):
    try:
        s = socket.socket(family, kind, 1 if kind == socket.SOCK_RAW and family == socket.AF_INET else 0)
    except OSError:
        continue
    if family in (socket.AF_INET, socket.AF_INET6):
        try:
            s.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", PORT))
        except OSError:
            continue
    return f"ESCAPED {family}"
return "no"`),
		alone("the kernel's ciphers", `
import socket
s = socket.socket(38, socket.SOCK_SEQPACKET)
s.bind(("hash", "sha256"))
return "ESCAPED"`),
		alone("multipath TCP and SCTP", `
import socket
for kind in (262, 132, 136, 33):
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, kind)
        s.connect(("127.0.0.1", PORT))
        return f"ESCAPED {kind}"
    except OSError:
        pass
return "no"`),
		alone("data with the first packet", callPython+`
import socket
s = socket.socket()
s.sendto(b"x", 0x20000000, ("127.0.0.1", PORT))
return "ESCAPED"`),
		alone("descriptors over the channel", `
import array, gc, os, socket
mine = [o for o in gc.get_objects() if type(o).__name__ == "Channel"][0]
r, w = os.pipe()
for _ in range(100):
    mine.sock.sendmsg([b" "], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [r] * 200))])
return (await tools.probe.who())["caller"]`),
	}
}

// pythonHoards are escapes to memory that is not counted as a program's.
func pythonHoards() []escape {
	return []escape{
		alone("memory in files of the kernel", `
import os
fd = os.memfd_create("x")
piece = bytes(16 << 20)
for n in range(128):
    os.write(fd, piece)
return "ESCAPED 2 GiB"`),
		alone("memory in pipes", `
import fcntl, os
n = 0
try:
    while n < 2 << 30:
        r, w = os.pipe()
        os.set_blocking(w, False)
        try:
            fcntl.fcntl(w, 1031, 1 << 20)
        except OSError:
            pass
        try:
            while True: n += os.write(w, bytes(65536))
        except BlockingIOError:
            pass
except OSError:
    return f"no: {n >> 20} MiB"
return "ESCAPED"`),
		alone("memory in sockets", `
import socket
n, kept = 0, []
try:
    while n < 2 << 30:
        a, b = socket.socketpair()
        kept += [a, b]
        a.setblocking(False)
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
        try:
            while True: n += a.send(bytes(65536))
        except BlockingIOError:
            pass
except OSError:
    return f"no: {n >> 20} MiB"
return "ESCAPED"`),
		alone("sockets in sockets", `
import array, socket
try:
    while True:
        a, b = socket.socketpair()
        a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [a.fileno(), b.fileno()]))])
        a.close()
        b.close()
except OSError as e:
    return str(e)`),
		alone("locked memory", callPython+`
import mmap
page = mmap.mmap(-1, 1 << 30)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
return "ESCAPED" if libc.mlock(ctypes.c_void_p(at), ctypes.c_size_t(1 << 30)) == 0 else "no"`),
		alone("a core on the disk", "import ctypes\nctypes.string_at(0)"),
	}
}

// nodeOthers are escapes that Node.js itself offers.
func nodeOthers() []escape {
	return []escape{
		{name: "a blob of a file", alone: true, code: `const fs = require('fs'); return fs.openAsBlob ? await (await fs.openAsBlob('SECRET')).text() : fs.readFileSync('SECRET', 'utf8')`},
		alone("an environment from a file", `process.loadEnvFile('SECRET'); return 'ESCAPED'`),
		alone("what the process says of itself", `return process.report.getReport().environmentVariables?.TP_CANARY ? 'ESCAPED' : 'no'`),
		alone("the binding that spawns", `
const r = process.binding('spawn_sync').spawn({file: '/bin/true', args: ['true'], envPairs: [], stdio: [{type: 'pipe', readable: true, writable: false}]})
return r && r.pid > 0 && !r.error ? 'ESCAPED' : 'no'`),
		alone("the binding of TCP", `
const { TCP, TCPConnectWrap } = process.binding('tcp_wrap')
const s = new TCP(0), q = new TCPConnectWrap()
return await new Promise((resolve) => { q.oncomplete = (e) => resolve(e ? 'no' : 'ESCAPED')
  if (s.connect(q, '127.0.0.1', PORT)) resolve('no') })`),
		alone("a name of a host", `
const { Resolver } = require('dns').promises
const r = new Resolver({timeout: 500, tries: 1}); r.setServers(['127.0.0.1:PORT'])
try { await r.resolve4('canary.example'); return 'ESCAPED' } catch (e) { return e.code }`),
		alone("a debugger in its parent", `try { process._debugProcess(process.ppid) } catch (e) { return String(e) } return 'alone'`),
		alone("another folder of modules", `
const m = require('module'); m.globalPaths.push('OUTSIDE'); return m._load('evil.cjs')`),
		alone("a module made of text", `
const M = require('module'); const m = new M('x'); m._compile("module.exports = require('fs').readFileSync('SECRET', 'utf8')", '/x.js')
return m.exports`),
		alone("a cluster", `
const cluster = require('cluster'); cluster.setupPrimary({exec: 'OUTSIDE/evil.cjs'})
return await new Promise((resolve) => { const w = cluster.fork(); w.on('online', () => resolve('ESCAPED')); w.on('error', () => resolve('no')); w.on('exit', () => resolve('no')) })`),
		alone("memory of WebAssembly", `const all = []; for (;;) { const m = new WebAssembly.Memory({initial: 1024}); new Uint8Array(m.buffer).fill(1); all.push(m) }`),
		alone("its channel in other hands", `
const fs = require('fs')
fs.writeSync(3, '{"id":7,"tool":"hidden","args":{}}\n')
const net = require('net'); const n = new net.Socket({fd: 3, readable: true})
return await new Promise((resolve) => { n.on('data', (d) => resolve(String(d).includes('output') ? 'ESCAPED' : 'no')); setTimeout(() => resolve('no'), 1000) })`),
		alone("a program that changes the protocol", `
JSON.stringify = () => '{"id":1,"tool":"who","args":{},"caller":"owner"}'
return (await tools.probe.who()).caller === 'owner' ? 'ESCAPED' : 'no'`),
		alone("an exception that is a flood", `const e = new Error('x'.repeat(1 << 26)); e.stack = 'at program.js:1:1\n'.repeat(1 << 20); throw e`),
	}
}
