package process

import (
	"strings"
	"syscall"
	"testing"

	"toolpost/internal/kit"
)

func TestExitInWords(t *testing.T) {
	for e, want := range map[Exit]string{
		{}:                                       "exit status 0",
		{Code: 3}:                                "exit status 3",
		{Code: -1, Signal: syscall.SIGSEGV}:      "killed by SIGSEGV (segmentation fault)",
		{Code: -1, Signal: syscall.SIGTERM}:      "killed by SIGTERM (terminated)",
		{Code: -1, Signal: syscall.Signal(0x28)}: "killed by signal 40",
	} {
		kit.Equal(t, e.String(), want)
	}
}

func TestDescribeSaysWhy(t *testing.T) {
	sigkill := Exit{Code: -1, Signal: syscall.SIGKILL}
	for _, test := range []struct {
		name   string
		e      Exit
		tail   string
		killed bool
		want   string
	}{
		{"silence", Exit{Code: 2}, "", false, "exit status 2"},
		{"its last words", Exit{Code: 1}, "a\nb\n\n c\r\nd\n", false, "exit status 1; the last it wrote to stderr: b | c | d"},
		{"no escapes", Exit{Code: 1}, "\x1b[31mred\x07\tblue\n", false, "exit status 1; the last it wrote to stderr: [31mred blue"},
		{
			"why, above where", Exit{Code: 1},
			"    throw new X(\n\nError [ERR_MODULE_NOT_FOUND]: Cannot find module 'x'\n    at a (b:1:1)\n    at c (d:2:2)\n}\n\nNode.js v22\n", false,
			"exit status 1; the last it wrote to stderr: Error [ERR_MODULE_NOT_FOUND]: Cannot find module 'x'",
		},
		{"killed by us", sigkill, "", true, "killed by SIGKILL (killed) by toolpost"},
		{"killed by another process", sigkill, "", false, "killed by SIGKILL (killed), but not by toolpost: the machine may have run out of memory"},
		{
			"a missing library", Exit{Code: 127},
			"x: error while loading shared libraries: libfoo.so.1: cannot open shared object file: No such file or directory\n", false,
			"exit status 127: the shared library libfoo.so.1 is missing: install the package that brings it",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			kit.Equal(t, describe(test.e, test.tail, test.killed), test.want)
		})
	}
	if got := describe(Exit{Code: 1}, strings.Repeat("é", 2000), false); len(got) > 600 {
		t.Errorf("a long line is quoted with %d bytes", len(got))
	}
}
