//go:build linux

package sandbox_test

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
)

// The descriptors needed to build a room are in the places of the files of a child with many.
func TestAChildWithManyFilesHasThemAll(t *testing.T) {
	interpreter, needs := python()
	const n = 40
	var files []*os.File
	for i := range n {
		r, w, err := os.Pipe()
		kit.OK(t, err)
		defer r.Close()
		_, err = fmt.Fprint(w, i)
		kit.OK(t, err)
		kit.OK(t, w.Close())
		files = append(files, r)
	}
	code := fmt.Sprintf("import os; print(*[os.read(3+i, 10).decode() for i in range(%d)])", n)
	child := kit.Must(process.Start(process.Command{
		Argv: []string{interpreter, "-I", "-c", code}, Dir: "/", Files: files,
		Confine: &sandbox.Confinement{Profile: sandbox.Feasible(sandbox.Profile{Executable: needs})},
	}))(t)
	defer child.Close()
	said := kit.Must(io.ReadAll(child.Stdout))(t)
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
	}
	if exit := child.Wait(); exit.Code != 0 || !slices.Equal(strings.Fields(string(said)), want) {
		t.Errorf("%s: %s, %s", exit, said, child.Tail())
	}
}

// The kernel counts the descriptors that all processes of a user are handing over against the limit of files of each.
func TestAStartWaitsUntilOthersHaveHandedOver(t *testing.T) {
	interpreter, needs := python()
	pair := kit.Must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	for range 100 {
		kit.OK(t, unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(pair[0]), nil, 0))
	}
	time.AfterFunc(200*time.Millisecond, func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) }) // after some tries
	said, exit := run(t, process.Command{
		Argv: []string{interpreter, "-I", "-c", "print('here')"}, Dir: "/",
		Confine: &sandbox.Confinement{
			Profile:   sandbox.Feasible(sandbox.Profile{Executable: needs, Limits: sandbox.Limits{Files: 32}}),
			Violation: func(sandbox.Violation) {},
		},
	})
	if exit.Code != 0 || said != "here\n" {
		t.Errorf("%s: %s", exit, said)
	}
}
