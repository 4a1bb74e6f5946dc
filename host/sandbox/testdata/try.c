// try makes one attempt, named by its first argument, with the numbers that follow. It prints ESCAPED when it
// succeeds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int check(long r) {
  if (r < 0) {
    perror("no");
    return 1;
  }
  puts("ESCAPED");
  return 0;
}

#ifdef __x86_64__
static long int80(long nr, long a, long b, long c) {
  long r;
  __asm__ volatile("int $0x80" : "=a"(r) : "a"(nr), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
  return r;
}
#endif

static int run_memory(const char *program, int flags, int by_path) {
  char buf[1 << 16];
  int in = open(program, O_RDONLY | O_CLOEXEC), fd = memfd_create("x", flags);
  if (in < 0 || fd < 0) return check(-1);
  for (ssize_t n; (n = read(in, buf, sizeof buf)) > 0;)
    if (write(fd, buf, n) != n) return check(-1);
  char *argv[] = {"echo", "ESCAPED", NULL}, *envp[] = {NULL};
  if (by_path) {
    snprintf(buf, sizeof buf, "/proc/self/fd/%d", fd);
    execve(buf, argv, envp);
  } else {
    syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH);
  }
  return check(-1);
}

int main(int argc, char **argv) {
  const char *what = argv[1];
  pid_t parent = argc > 2 ? atoi(argv[2]) : 0;
  char *echo[] = {"/bin/echo", "ESCAPED", NULL}, *envp[] = {NULL};
  if (!strcmp(what, "vfork")) {
    pid_t p = vfork();
    if (p == 0) _exit(0);
    return check(p);
  }
  if (!strcmp(what, "clone3")) {
    uint64_t args[11] = {0};
    args[4] = SIGCHLD;
    long p = syscall(SYS_clone3, args, sizeof args);
    if (p == 0) _exit(0);
    return check(p);
  }
  if (!strcmp(what, "clone-high")) { /* CLONE_THREAD in the half that the kernel does not look at */
    long p = syscall(SYS_clone, ((uint64_t)CLONE_THREAD << 32) | SIGCHLD, 0, 0, 0, 0);
    if (p == 0) _exit(0);
    return check(p);
  }
  if (!strcmp(what, "exec-loader")) {
    char *loader = argv[2], *args[] = {loader, "/bin/echo", "ESCAPED", NULL};
    execve(loader, args, envp);
    return check(-1);
  }
  if (!strcmp(what, "exec-twice")) {
    execve("/bin/echo", echo, envp);
    execve("/bin/echo", echo, envp);
    return check(-1);
  }
  if (!strcmp(what, "memfd")) return run_memory("/bin/echo", 0, 0);
  if (!strcmp(what, "memfd-path")) return run_memory("/bin/echo", 0, 1);
  if (!strcmp(what, "memfd-exec")) return run_memory("/bin/echo", 0x10 /* MFD_EXEC */, 0);
  if (!strcmp(what, "ptrace")) return check(ptrace(PTRACE_SEIZE, parent, 0, 0));
  if (!strcmp(what, "ptrace-child")) {
    pid_t p = fork();
    if (p == 0) pause();
    int r = check(ptrace(PTRACE_SEIZE, p, 0, 0));
    kill(p, SIGKILL);
    return r;
  }
  if (!strcmp(what, "vm-read")) {
    char buf[8], *remote = (char *)strtoull(argv[3], NULL, 0);
    struct iovec l = {buf, 8}, r = {remote, 8};
    return check(process_vm_readv(parent, &l, 1, &r, 1, 0));
  }
  if (!strcmp(what, "pidfd-getfd")) return check(syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, parent, 0), 0, 0));
  if (!strcmp(what, "socket-high")) return check(syscall(SYS_socket, (1ull << 32) | AF_INET, SOCK_STREAM, 0));
  if (!strcmp(what, "socket-x32")) return check(syscall(0x40000000 | SYS_socket, AF_INET, SOCK_STREAM, 0));
#ifdef __x86_64__
  if (!strcmp(what, "socket-80")) { /* socket is 359 in the old table */
    return check(int80(359, AF_INET, SOCK_STREAM, 0));
  }
  if (!strcmp(what, "fork-80")) {
    long p = int80(2, 0, 0, 0);
    if (p == 0) _exit(0);
    return check(p < 0 ? -1 : 0);
  }
  if (!strcmp(what, "open-80")) { /* creat is 8; its path must lie low */
    char *path = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    strcpy(path, argv[2]);
    return check(int80(8, (long)path, argc > 3 ? strtol(argv[3], NULL, 8) : 0600, 0) < 0 ? -1 : 0);
  }
#endif
  if (!strcmp(what, "io_uring")) {
    char params[256] = {0};
    return check(syscall(425, 4, params));
  }
  if (!strcmp(what, "handle")) {
    char space[256];
    struct file_handle *h = (void *)space;
    int id;
    h->handle_bytes = 128;
    if (name_to_handle_at(AT_FDCWD, argv[2], h, &id, 0) < 0) return check(-1);
    return check(open_by_handle_at(open("/usr", O_RDONLY), h, O_RDONLY));
  }
  if (!strcmp(what, "sigqueue")) return check(kill(parent, 0));
  fprintf(stderr, "unknown: %s\n", what);
  return 2;
}
