//go:build linux

package sandbox_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// An attempt is a program that tries to do what a guarantee forbids, and prints ESCAPED if it could.
type attempt struct {
	name  string
	with  string // py, py alone (it changes the process for good), c, sh, bash, node
	code  string
	means string // what it needs to succeed: "root"; "maybe" if this machine may not have it; "walls" if it is only tried within them
}

// only returns the layer without which an attempt succeeds. These attempts list the room's own folders, or show that a
// file exists, but not its content.
func only() map[string]string {
	return map[string]string{"list": sandbox.LayerLandlock, "scandir of the root": sandbox.LayerLandlock, "stat": sandbox.LayerMounts, "stat above the root": sandbox.LayerMounts}
}

// A siege is a guarantee and the attempts against it.
type siege struct {
	name string
	g    tool.Guarantees // nothing else is forbidden
	base func(l *lab) sandbox.Profile
	try  []attempt
	fit  func(sandbox.Profile) sandbox.Profile // adapts the profile to what a lesser machine can build; nil if it needs no change
}

// open returns a profile that allows as much as possible, so that each guarantee is tested alone.
func open(l *lab) sandbox.Profile {
	return sandbox.Profile{
		Readable: []string{l.read}, Writable: []string{l.work}, Executable: []string{l.tool},
		Tmp: 1 << 20, Proc: sandbox.ProcOwn, Network: sandbox.NetworkAll, Unix: true, Subprocess: true,
		Limits: sandbox.Limits{Processes: 64},
	}
}

func sieges() []siege {
	return []siege{
		{"no_network", tool.Guarantees{NoNetwork: true}, open, network(), nil},
		{"no_filesystem_write", tool.Guarantees{NoFilesystemWrite: true}, open, writing(), nil},
		{"no_filesystem_read", tool.Guarantees{NoFilesystemRead: true}, open, reading(), nil},
		{"no_subprocess", tool.Guarantees{NoSubprocess: true}, open, spawning(), nil},
		{"no_env_read", tool.Guarantees{NoEnvRead: true}, open, environment(), nil},
		{"every profile", tool.Guarantees{}, open, kernel(), nil},
		{"no set-id bits", tool.Guarantees{}, open, setIDs(), nil},
	}
}

func network() []attempt {
	return []attempt{
		{"tcp connect", "py", `socket.create_connection(("127.0.0.1",$TCP),5); escaped()`, ""},
		{"connect_ex", "py", `s=socket.socket(); s.connect_ex(("127.0.0.1",$TCP))==0 and escaped()`, ""},
		{"udp sendto", "py", `socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b"x",("127.0.0.1",$TCP)); escaped()`, ""},
		{"udp sendmsg", "py", `socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendmsg([b"x"],[],0,("127.0.0.1",$TCP)); escaped()`, ""},
		{"udp over IPv6", "py", `socket.socket(socket.AF_INET6,socket.SOCK_DGRAM).sendto(b"x",("::1",$TCP)); escaped()`, "maybe"},
		{"listen for others", "py", `s=socket.socket(); s.bind(("127.0.0.1",0)); s.listen(); escaped()`, ""},
		{"MPTCP", "py", `s=socket.socket(socket.AF_INET,socket.SOCK_STREAM,262); s.settimeout(5); s.connect(("127.0.0.1",$TCP)); escaped()`, "maybe"},
		{"SCTP", "py", `socket.socket(socket.AF_INET,socket.SOCK_STREAM,132); escaped()`, "maybe"},
		{"raw socket", "py", `socket.socket(socket.AF_INET,socket.SOCK_RAW,1); escaped()`, "root"},
		{"ping socket", "py", `socket.socket(socket.AF_INET,socket.SOCK_DGRAM,1); escaped()`, "maybe"},
		{"packet socket", "py", `socket.socket(17,socket.SOCK_RAW,0x300); escaped()`, "root"},
		{"netlink", "py", `socket.socket(socket.AF_NETLINK,socket.SOCK_RAW,0); escaped()`, ""},
		{"netlink audit", "py", `socket.socket(socket.AF_NETLINK,socket.SOCK_RAW,9); escaped()`, "maybe"},
		{"vsock", "py", `socket.socket(40,socket.SOCK_STREAM); escaped()`, "maybe"},
		{"AF_ALG", "py", `socket.socket(38,socket.SOCK_SEQPACKET); escaped()`, "maybe"},
		{"bluetooth", "py", `socket.socket(31,socket.SOCK_RAW,1); escaped()`, "maybe"},
		{"unix socket by path", "py", `s=socket.socket(socket.AF_UNIX); s.connect("$UNIX"); escaped()`, ""},
		{"unix socket, abstract", "py", `s=socket.socket(socket.AF_UNIX); s.connect("\0$ABSTRACT"); escaped()`, ""},
		{"unix datagram out of a pair", "py", `a,b=socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM); a.sendto(b"x","$READ/dgram"); escaped()`, ""},
		{"a pair that connects elsewhere", "py", `a,b=socket.socketpair(); a.shutdown(2); b.close(); a.connect("$UNIX"); escaped()`, "never"},
		{"high bits in socket()", "c", `socket-high`, ""},
		{"the x32 entry", "c", `socket-x32`, "maybe"},
		{"int 0x80", "c", `socket-80`, "maybe"},
		{"io_uring", "c", `io_uring`, "maybe"},
		{"a child's network", "py alone", `import subprocess; subprocess.run([sys.executable,"-c","import socket; socket.create_connection(('127.0.0.1',$TCP),5); print('ESCAPED 0')"])`, ""},
		{"a thread's network", "py", "import threading\ndef f():\n socket.create_connection(('127.0.0.1',$TCP),5); escaped()\nt=threading.Thread(target=f); t.start(); t.join()", ""},
		{"the shell's network", "bash", `exec 3<>/dev/tcp/127.0.0.1/$TCP && echo ESCAPED`, ""},
		{"node", "node", `require("net").connect($TCP,"127.0.0.1",()=>{console.log("ESCAPED");process.exit()}).on("error",()=>process.exit(1))`, "maybe"},
		{"the parent's network", "py alone", `call(308,os.open("/proc/$PARENT/ns/net",0),0); escaped()`, "root"},
		{"a network of its own", "py alone", `libc.unshare(0x50000000)==0 and escaped()`, "maybe"},
	}
}

func writing() []attempt {
	return []attempt{
		{"open", "py", `open("$WORK/new","w").write("x"); escaped()`, ""},
		{"io.open of what is there", "py", `import io; io.open("$READ/file","r+"); escaped()`, ""},
		{"os.open", "py", `os.open("$WORK/new2",os.O_CREAT|os.O_WRONLY); escaped()`, ""},
		{"append", "py", `open("$READ/file","a"); escaped()`, ""},
		{"unlink", "py", `open("$WORK/f1","w") if os.access("$WORK",os.W_OK) else 0; os.unlink("$WORK/f1" if os.path.exists("$WORK/f1") else "$READ/file"); escaped()`, ""},
		{"rename", "py", `os.rename("$READ/empty","$READ/other"); os.rename("$READ/other","$READ/empty"); escaped()`, ""},
		{"exchange", "py", `call(316,-100,b"$READ/empty",-100,b"$READ/file",2); call(316,-100,b"$READ/empty",-100,b"$READ/file",2); escaped()`, ""},
		{"mkdir", "py", `os.mkdir("$WORK/d"); escaped()`, ""},
		{"rmdir", "py", `os.rmdir("$READ/empty"); os.mkdir("$READ/empty"); escaped()`, ""},
		{"symlink", "py", `os.symlink("/","$WORK/s"); escaped()`, ""},
		{"hard link", "py", `os.link("$READ/file","$WORK/h"); escaped()`, ""},
		{"fifo", "py", `os.mkfifo("$WORK/p"); escaped()`, ""},
		{"a socket's file", "py", `socket.socket(socket.AF_UNIX).bind("$WORK/sock"); escaped()`, ""},
		{"truncate", "py", `os.truncate("$READ/file",3); escaped()`, ""},
		{"chmod", "py", `os.chmod("$READ/file",0o600); os.chmod("$READ/file",0o644); escaped()`, ""},
		{"fchmod", "py", `os.fchmod(os.open("$READ/file",0),0o644); escaped()`, ""},
		{"chown", "py", `os.chown("$READ/file",os.getuid(),os.getgid()); escaped()`, ""},
		{"utime", "py", `os.utime("$READ/file",(1,1)); escaped()`, ""},
		{"an attribute", "py", `os.setxattr("$READ/file","user.x",b"1"); escaped()`, "maybe"},
		{"sqlite3", "py", `import sqlite3; sqlite3.connect("$WORK/db").execute("create table t(x)"); escaped()`, ""},
		{"a temporary file", "py", `import tempfile; tempfile.NamedTemporaryFile(dir="$WORK"); escaped()`, ""},
		{"its own tool file", "py", `open("$TOOL/try.py","a"); escaped()`, ""},
		{"through /proc/self/fd", "py", `fd=os.open("$READ/file",os.O_RDONLY); os.open("/proc/self/fd/%d"%fd,os.O_WRONLY); escaped()`, ""},
		{"through a thread's /proc", "py", `fd=os.open("$READ/file",os.O_RDONLY); os.open("/proc/thread-self/fd/%d"%fd,os.O_RDWR); escaped()`, ""},
		{"a mapping", "py", `import mmap; mmap.mmap(os.open("$READ/file",os.O_RDWR),2); escaped()`, ""},
		{"the shell", "sh", `echo x > $WORK/shell && echo ESCAPED`, ""},
		{"a child of the shell", "sh", `cp $READ/file $WORK/copy && echo ESCAPED`, ""},
		{"/tmp", "py", `os.open("/tmp/sandbox-test-%d"%os.getpid(),os.O_CREAT|os.O_WRONLY|os.O_EXCL); os.unlink("/tmp/sandbox-test-%d"%os.getpid()); escaped()`, ""},
		{"/dev/shm", "py", `os.open("/dev/shm/sandbox-test-%d"%os.getpid(),os.O_CREAT|os.O_WRONLY); os.unlink("/dev/shm/sandbox-test-%d"%os.getpid()); escaped()`, "maybe"},
		{"/var/tmp", "py", `n="/var/tmp/sandbox-test-%d"%os.getpid(); os.open(n,os.O_CREAT|os.O_WRONLY); os.unlink(n); escaped()`, "maybe"},
		{"creat by int 0x80", "c", `open-80 $WORK/old`, "maybe"},
		{"node", "node", `require("fs").writeFileSync("$WORK/node","x");console.log("ESCAPED")`, "maybe"},
		{"a mount over it", "py", `libc.mount(b"tmpfs",b"$WORK",b"tmpfs",0,None)==0 and (libc.umount2(b"$WORK",2),escaped())`, "root"},
		{"a kernel setting", "py", `open("/proc/sys/kernel/domainname","w"); escaped()`, "root"},
	}
}

func reading() []attempt {
	return []attempt{
		{"open", "py", `open("$SECRET").read(); escaped()`, ""},
		{"what is readable otherwise", "py", `open("$READ/file").read(); escaped()`, ""},
		{"a link to it", "py", `open("$READ/link").read(); escaped()`, ""},
		{"a new link to it", "py", `os.symlink("$SECRET","$WORK/l"); open("$WORK/l").read(); escaped()`, ""},
		{"a hard link to it", "py", `os.link("$SECRET","$WORK/hard"); open("$WORK/hard").read(); escaped()`, ""},
		{"dots", "py", `open("$TOOL/../secret").read(); escaped()`, ""},
		{"list", "py", `os.listdir("$DIR"); escaped()`, ""},
		{"scandir of the root", "py", `list(os.scandir("/")); escaped()`, ""},
		{"stat", "py", `os.stat("$SECRET"); escaped()`, ""},
		{"dots above the root", "py", `open("/..$SECRET").read(); escaped()`, ""},
		{"stat above the root", "py", `os.stat("/..$SECRET"); escaped()`, ""},
		{"what it wrote itself", "py", `open("$WORK/own","w").write("x"); open("$WORK/own").read(); escaped()`, ""},
		{"a child", "sh", `cat $SECRET && echo ESCAPED`, ""},
		{"sqlite3", "py", `import sqlite3; sqlite3.connect("file:$READ/file?mode=ro",uri=True).execute("select 1").fetchall(); open("$READ/file"); escaped()`, ""},
		{"a mapping", "py", `import mmap; mmap.mmap(os.open("$SECRET",0),0,prot=1); escaped()`, ""},
		{"openat2", "py", `call(437,-100,b"$SECRET",ctypes.create_string_buffer(24),24); escaped()`, ""},
		{"O_PATH, then again", "py", `fd=os.open("$SECRET",os.O_PATH); os.open("/proc/self/fd/%d"%fd,0); escaped()`, ""},
		{"the parent's root", "py", `open("/proc/$PARENT/root$SECRET").read(); escaped()`, ""},
		{"the parent's folder", "py", `os.listdir("/proc/$PARENT/cwd/"); escaped()`, ""},
		{"the parent's descriptors", "py", `os.listdir("/proc/$PARENT/fd"); escaped()`, ""},
		{"init's root", "py", `os.listdir("/proc/1/root/home"); escaped()`, "maybe"},
		{"/etc/shadow", "py", `open("/etc/shadow").read(); escaped()`, "root"},
		{"chroot", "py alone", `os.chroot("/usr"); escaped()`, "root"},
		{"a file handle", "c", `handle $SECRET`, "root"},
		{"a bind mount", "py", `libc.mount(b"/",b"/mnt",None,4096,None)==0 and (libc.umount2(b"/mnt",2),escaped())`, "root"},
		{"mounts of its own", "py alone", `libc.unshare(0x10020000)==0 and escaped()`, "maybe"},
		{"open_tree", "py", `call(428,-100,b"/",1); escaped()`, "root"},
		{"a disk", "py", `import glob; os.open((glob.glob("/dev/vd*")+glob.glob("/dev/sd*")+glob.glob("/dev/nvme*n*")+["/none"])[0],0); escaped()`, "maybe"},
		{"kernel messages", "py", `os.open("/dev/kmsg",0); escaped()`, "maybe"},
		{"node", "node", `require("fs").readFileSync("$SECRET");console.log("ESCAPED")`, "maybe"},
	}
}

func spawning() []attempt {
	return []attempt{
		{"fork", "py", "if os.fork()==0: os._exit(0)\nescaped()", ""},
		{"subprocess", "py", `import subprocess; subprocess.run(["/bin/true"],check=True); escaped()`, ""},
		{"posix_spawn", "py", `os.waitpid(os.posix_spawn("/bin/true",["true"],{}),0)[1]==0 and escaped()`, ""},
		{"system", "py", `os.system("true")==0 and escaped()`, ""},
		{"popen", "py alone", `os.popen("echo ESCAPED").read()=="ESCAPED\n" and escaped()`, ""},
		{"multiprocessing", "py alone", "import multiprocessing\np=multiprocessing.get_context('fork').Process(target=escaped); p.start(); p.join()", ""},
		{"pty", "py alone", "import pty\nif pty.fork()[0]==0: os._exit(0)\nescaped()", "maybe"},
		{"exec", "py alone", `os.execv("/bin/echo",["echo","ESCAPED 0"])`, ""},
		{"exec of itself", "py alone", `os.execv(sys.executable,[sys.executable,"-c","print('ESCAPED 0')"])`, ""},
		{"exec twice", "c", `exec-twice`, ""},
		{"the loader", "c", `exec-loader $LOADER`, "maybe"},
		{"vfork", "c", `vfork`, ""},
		{"clone3", "c", `clone3`, ""},
		{"high bits in clone()", "c", `clone-high`, ""},
		{"fork by int 0x80", "c", `fork-80`, "maybe"},
		{"a program in memory", "c", `memfd`, ""},
		{"a program in memory, by path", "c", `memfd-path`, ""},
		{"exec in a thread", "py alone", "import threading\nt=threading.Thread(target=lambda: os.execv('/bin/echo',['echo','ESCAPED 0'])); t.start(); t.join()", ""},
		{"the shell's last command", "sh", `exec /bin/echo ESCAPED`, ""},
		{"the shell's child", "sh", `/bin/echo ESCAPED; true`, ""},
		{"the shell's subshell", "sh", `(echo ESCAPED)`, ""},
		{"node", "node", `console.log(require("child_process").execFileSync("/bin/echo",["ESC","APED"]).toString().replace(" ",""))`, "maybe"},
	}
}

func environment() []attempt {
	return []attempt{
		{"its own", "py", `"SANDBOX_TEST_GIVEN" in os.environ and escaped()`, ""},
		{"getenv", "py", `libc.getenv.restype=ctypes.c_char_p; libc.getenv(b"SANDBOX_TEST_GIVEN") and escaped()`, ""},
		{"its own /proc", "py", `b"SANDBOX_TEST_GIVEN" in open("/proc/self/environ","rb").read() and escaped()`, ""},
		{"the parent's", "py", `b"PATH=" in open("/proc/$PARENT/environ","rb").read() and escaped()`, ""},
		{"the parent's memory", "py", `open("/proc/$PARENT/mem","rb"); escaped()`, "maybe"},
		{"every process's", "py", "import glob\nfor p in glob.glob('/proc/*/environ'):\n if p.split('/')[2] in ('self','thread-self',str(os.getpid())): continue\n try: open(p,'rb').read() and escaped()\n except OSError: pass", "root"},
		{"the shell's", "sh", `[ -n "$SANDBOX_TEST_GIVEN" ] && echo ESCAPED`, ""},
	}
}

// kernel returns attempts that no profile allows, however open it is.
func kernel() []attempt {
	return []attempt{
		{"a signal to the parent", "py", `os.kill($PARENT,0); escaped()`, ""},
		{"a signal to its own parent", "py", `os.getppid() and (os.kill(os.getppid(),0), escaped())`, ""},
		{"a queued signal", "c", `sigqueue $PARENT`, ""},
		{"a pidfd of the parent", "py", `os.pidfd_open($PARENT); escaped()`, ""},
		{"the parent's priority", "py", `os.getpriority(os.PRIO_PROCESS,$PARENT); escaped()`, ""},
		{"the parent's limits", "py", `import resource; resource.prlimit($PARENT,resource.RLIMIT_NOFILE); escaped()`, ""},
		{"ptrace of the parent", "c", `ptrace $PARENT`, "maybe"},
		{"ptrace of a child", "c", `ptrace-child`, "maybe"},
		{"the parent's memory", "c", `vm-read $PARENT $ADDRESS`, "maybe"},
		{"the parent's descriptor", "c", `pidfd-getfd $PARENT`, "maybe"},
		{"keyctl", "py", `call(250,0,-3,1); escaped()`, "maybe"},
		{"add_key", "py", `call(248,b"user",b"sandbox-test",b"x",1,-2); escaped()`, "maybe"},
		{"bpf", "py", `call(321,0,ctypes.create_string_buffer(struct.pack("IIII",1,4,4,1)+bytes(112)),128); escaped()`, "root"},
		{"perf events", "py", `call(298,ctypes.create_string_buffer(struct.pack("II",1,112)+bytes(120)),0,-1,-1,0); escaped()`, "maybe"},
		{"userfaultfd", "py", `call(323,1); escaped()`, "maybe"},
		{"io_uring", "c", `io_uring`, "maybe"},
		{"a user namespace", "py alone", `libc.unshare(0x10000000)==0 and escaped()`, "maybe"},
		{"a namespace by clone", "py alone", "p=call(56,0x10000000|17,0,0,0,0)\nif p==0: os._exit(0)\nescaped()", "maybe"},
		{"setns", "py alone", `call(308,os.open("/proc/self/ns/uts",0),0); escaped()`, "root"},
		{"a host name", "py alone", `socket.sethostname(socket.gethostname()); escaped()`, "root"},
		{"mount", "py", `libc.mount(b"none",b"/mnt",b"tmpfs",0,None)==0 and (libc.umount2(b"/mnt",2),escaped())`, "root"},
		{"a device node", "py", `os.mknod("$WORK/null",0o20666,os.makedev(1,3)); escaped()`, "root"},
		{"the kernel's log", "py", `libc.klogctl(3,ctypes.create_string_buffer(64),64)>=0 and escaped()`, "root"},
		{"another personality", "py alone", `libc.personality(0x0040000)>=0 and escaped()`, ""},
		{"a program that it wrote", "sh", `cp /bin/echo $WORK/program && chmod +x $WORK/program && $WORK/program ESCAPED`, ""},
		{"a script that it wrote", "sh", `printf '#!/bin/echo ESCAPED\n' > $WORK/script && chmod +x $WORK/script && $WORK/script`, ""},
		{"a program in memory", "c", `memfd`, ""},
		{"a program in memory, by path", "c", `memfd-path`, ""},
		{"a program in memory that says so", "c", `memfd-exec`, "maybe"},
		{"what may only be read", "sh", `cp /bin/echo $WORK/x 2>/dev/null; $READ/program ESCAPED`, ""},
		{"another user", "py alone", `os.setuid(1); escaped()`, "root"},
		{"more files", "py alone", `import resource; resource.setrlimit(resource.RLIMIT_NOFILE,(4000,4000)); escaped()`, ""},
		{"a core file's size", "py", `import resource; resource.getrlimit(resource.RLIMIT_CORE)[1]!=0 and escaped()`, "maybe"},
		{"a capability", "py", `int([l for l in open("/proc/self/status") if l.startswith("CapBnd")][0].split()[1],16)!=0 and escaped()`, ""},
		{"a realtime schedule", "py alone", `os.sched_setscheduler(0,os.SCHED_FIFO,os.sched_param(1)); escaped()`, "root"},
		{"the clock", "py", `import time; time.clock_settime(time.CLOCK_REALTIME,time.time()); escaped()`, "walls"},
		{"its cgroup", "py", `open("/sys/fs/cgroup/cgroup.procs"); escaped()`, "maybe"},
		{"a Unix socket that was not given", "py", `s=socket.socket(socket.AF_UNIX); s.connect("$DIR/hidden"); escaped()`, "maybe"},
		{"an abstract socket of others", "py", `s=socket.socket(socket.AF_UNIX); s.connect("\0$ABSTRACT"); escaped()`, ""},
		{"writing into the terminal", "py", "import fcntl,pty\na,b=pty.openpty(); fcntl.ioctl(b,0x5412,b'x'); escaped()", "maybe"},
	}
}

// setIDs returns attempts to make a file that runs as its owner, no matter which user starts it.
func setIDs() []attempt {
	return []attempt{
		{"chmod", "py", `os.chmod(new("$WORK/a1"),0o4755); marked("$WORK/a1")`, ""},
		{"chmod of the group", "py", `os.chmod(new("$WORK/a2"),0o2755); marked("$WORK/a2")`, ""},
		{"chmod of a folder", "py", `os.mkdir("$WORK/a3"); os.chmod("$WORK/a3",0o2755); marked("$WORK/a3")`, ""},
		{"chmod itself", "py", `call(90,new("$WORK/a4").encode(),0o6755); marked("$WORK/a4")`, ""},
		{"chmod, high bits", "py", `call(90,new("$WORK/a5").encode(),0o4755|1<<32); marked("$WORK/a5")`, ""},
		{"fchmod", "py", `call(91,os.open(new("$WORK/a6"),os.O_RDWR),0o4755); marked("$WORK/a6")`, ""},
		{"fchmodat", "py", `call(268,-100,new("$WORK/a7").encode(),0o4755); marked("$WORK/a7")`, ""},
		{"fchmodat2", "py", `call(452,-100,new("$WORK/a8").encode(),0o4755,0); marked("$WORK/a8")`, "maybe"},
		{"fchmodat2 of a descriptor", "py", `call(452,os.open(new("$WORK/a9"),os.O_PATH),b"",0o4755,0x1000); marked("$WORK/a9")`, "maybe"},
		{"through /proc", "py", `os.chmod("/proc/self/fd/%d"%os.open(new("$WORK/b1"),os.O_PATH),0o4755); marked("$WORK/b1")`, ""},
		{"open", "py", `call(2,b"$WORK/b2",os.O_CREAT|os.O_WRONLY,0o4755); marked("$WORK/b2")`, ""},
		{"creat", "py", `call(85,b"$WORK/b3",0o4755); marked("$WORK/b3")`, ""},
		{"openat", "py", `call(257,-100,b"$WORK/b4",os.O_CREAT|os.O_RDWR,0o4755); marked("$WORK/b4")`, ""},
		{"openat of the group", "py", `os.open("$WORK/b5",os.O_CREAT|os.O_RDWR|os.O_EXCL,0o2755); marked("$WORK/b5")`, ""},
		{"openat2", "py", `call(437,-100,b"$WORK/b6",ctypes.create_string_buffer(struct.pack("QQQ",os.O_CREAT|os.O_RDWR,0o4755,0),24),24); marked("$WORK/b6")`, ""},
		{"a file without a name", "py", `fd=os.open("$WORK",os.O_TMPFILE|os.O_RDWR,0o4755); call(265,-100,b"/proc/self/fd/%d"%fd,-100,b"$WORK/b7",0x400); marked("$WORK/b7")`, "maybe"},
		{"mknod", "py", `call(133,b"$WORK/b8",0o104755,0); marked("$WORK/b8")`, ""},
		{"mknodat", "py", `call(259,-100,b"$WORK/b9",0o106755,0); marked("$WORK/b9")`, ""},
		{"mkdir", "py", `call(83,b"$WORK/c1",0o2755); marked("$WORK/c1")`, "never"},
		{"mkdirat", "py", `call(258,-100,b"$WORK/c2",0o6755); marked("$WORK/c2")`, "never"},
		{"another's bits", "py", `import shutil; shutil.copy("/bin/echo","$WORK/c3"); shutil.copymode("/usr/bin/passwd","$WORK/c3"); marked("$WORK/c3")`, "maybe"},
		{"a capability of a file", "py", `os.setxattr(new("$WORK/c4"),"security.capability",struct.pack("<IIIII",0x2000001,1<<7,0,0,0)); escaped()`, "root"},
		{"an access list", "py", `os.setxattr(new("$WORK/c5"),"system.posix_acl_access",struct.pack("<I",2)+b"".join(struct.pack("<HHI",t,0o4007,0xffffffff) for t in (1,4,32))); marked("$WORK/c5")`, "never"},
		{"creat by int 0x80", "c", `open-80 $WORK/old 4755`, "maybe"},
		{"a child's chmod", "sh", `cp /bin/echo $WORK/c6 && chmod u+s $WORK/c6 && echo ESCAPED`, ""},
		{"install", "sh", `install -m 4755 /bin/echo $WORK/c7 && [ -u $WORK/c7 ] && echo ESCAPED`, ""},
		{"tar", "sh", `mkdir -p $WORK/in && cp /bin/echo $WORK/in/c8 && tar -C $WORK/in --mode=u+s -cf $WORK/c8.tar c8 && tar -C $WORK -xpf $WORK/c8.tar; [ -u $WORK/c8 ] && echo ESCAPED`, ""},
		{"node", "node", `const f=require("fs");f.writeFileSync("$WORK/c9","x");f.chmodSync("$WORK/c9",0o4755);f.statSync("$WORK/c9").mode&0o6000&&console.log("ESCAPED")`, "maybe"},
		{"node's open", "node", `const f=require("fs");f.openSync("$WORK/d1","w",0o4755);f.statSync("$WORK/d1").mode&0o6000&&console.log("ESCAPED")`, "maybe"},
	}
}

func TestNothingEscapes(t *testing.T) {
	tooltest.NoLeaks(t)
	t.Cleanup(sandbox.Keep())
	total := 0
	for _, s := range sieges() {
		t.Run(s.name, func(t *testing.T) {
			free, walled := s.all(t, false), s.all(t, true)
			for i, a := range s.try {
				t.Run(a.name, func(t *testing.T) { a.judge(t, free[i], walled[i]) })
			}
		})
		total += len(s.try)
	}
	t.Logf("%d attempts", total)
	if total < 60 {
		t.Errorf("there are only %d attempts", total)
	}
}

// If a machine lacks a layer, the others still hold their guarantees. TOOLPOST_LONG tries more such machines.
func TestNothingEscapesWhereALayerIsMissing(t *testing.T) {
	machines := map[string][]string{"no landlock": {sandbox.LayerLandlock}, "no namespaces": {sandbox.LayerNamespaces}}
	if os.Getenv("TOOLPOST_LONG") != "" {
		machines["no mounts"] = []string{sandbox.LayerMounts}
		machines["no network namespace"] = []string{sandbox.LayerNetwork}
		machines["no cgroups"] = []string{sandbox.LayerMemory, sandbox.LayerPids, sandbox.LayerCPU}
		machines["no namespaces, no cgroups"] = []string{sandbox.LayerNamespaces, sandbox.LayerMemory, sandbox.LayerPids, sandbox.LayerCPU}
	}
	for name, without := range machines {
		t.Run(name, func(t *testing.T) {
			tooltest.NoLeaks(t)
			sandbox.Without(t, without...)
			for _, s := range sieges() {
				s.fit = sandbox.Feasible
				for i, r := range s.all(t, true) {
					a := s.try[i]
					if r.escaped && !slices.Contains(sandbox.Missing(), only()[a.name]) {
						t.Errorf("%s, %s: it escaped: %s", s.name, a.name, r.out)
					}
				}
			}
		})
	}
}

func TestNothingEscapesWhereALayerIsMissingAsAnOrdinaryUser(t *testing.T) {
	if os.Getenv("TOOLPOST_LONG") == "" {
		t.Skip("only with TOOLPOST_LONG")
	}
	asNobody(t, "TestNothingEscapesWhereALayerIsMissing")
}

func TestNothingEscapesAsAnOrdinaryUser(t *testing.T) { asNobody(t, "TestNothingEscapes") }

// judge checks the result of an attempt: without walls it must have succeeded, with them it must not.
func (a attempt) judge(t *testing.T, free, walled result) {
	if walled.skipped {
		t.Skip("this machine has no means for it")
	}
	if walled.escaped {
		t.Errorf("it escaped: %s", walled.out)
	}
	switch {
	case free.escaped || a.means == "never" || a.means == "walls":
	case a.means == "" || a.means == "root" && os.Geteuid() == 0:
		t.Errorf("without walls it does not succeed either: %s", free.out)
	default:
		t.Logf("without walls it does not succeed here: %s", free.out)
	}
}

// A result is the outcome of one attempt.
type result struct {
	escaped, skipped bool
	out              string
}

// all makes every attempt of a siege: those that leave their process unchanged in one process, the others one by one.
func (s siege) all(t *testing.T, walls bool) []result {
	l := newLab(t)
	copyFile(t, "/bin/echo", l.read+"/program", 0o755)
	results := make([]result, len(s.try))
	var batch []int
	argv := []string{l.python, "-I", "-S", l.tool + "/try.py"}
	for i, a := range s.try {
		if a.means == "walls" && !walls {
			continue
		}
		if a.with == "py" {
			batch = append(batch, i)
			argv = append(argv, l.fill(a.code))
			continue
		}
		if one := l.argv(a); one == nil {
			results[i].skipped = true
		} else {
			out := s.run(t, l, one, walls)
			results[i] = result{escaped: strings.Contains(out, "ESCAPED"), out: out}
		}
	}
	out := s.run(t, l, argv, walls) + "\n"
	if !strings.Contains(out, "DONE\n") {
		t.Fatalf("not every attempt was made: %s", out)
	}
	for n, i := range batch {
		results[i] = result{escaped: strings.Contains(out, fmt.Sprintf("ESCAPED %d\n", n)), out: out}
	}
	return results
}

func (s siege) run(t *testing.T, l *lab, argv []string, walls bool) string {
	t.Helper()
	cmd := process.Command{Argv: argv, Env: []string{"PATH=/usr/bin:/bin", "SANDBOX_TEST_GIVEN=1"}, Dir: l.tool}
	if walls {
		profile := sandbox.FromGuarantees(s.g, s.base(l))
		if s.fit != nil {
			profile = s.fit(profile)
		}
		_, extra := python()
		profile.Executable = append(slices.Clone(profile.Executable), extra...)
		cmd.Confine = &sandbox.Confinement{Profile: profile}
	}
	out, _ := run(t, cmd)
	return out
}

// argv returns the program of an attempt, or nil if this machine cannot run it.
func (l *lab) argv(a attempt) []string {
	code := l.fill(a.code)
	switch a.with {
	case "py alone":
		return []string{l.python, "-I", "-S", l.tool + "/try.py", code}
	case "c":
		if l.c == "" {
			return nil
		}
		return append([]string{l.c}, strings.Fields(special(code))...)
	case "node":
		if _, err := os.Stat("/usr/bin/node"); err != nil {
			return nil
		}
		return []string{"/usr/bin/node", "-e", code}
	default:
		return []string{"/bin/" + a.with, "-c", code}
	}
}
