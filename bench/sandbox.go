package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/tool"
)

// What another bench starts this one for: to measure as somebody else.
const (
	wordSpawns = "spawns"
	wordWarm   = "warm"
)

// part is what a bench does that another one started: it tells what it measured, or is measured itself.
func part(ctx context.Context, words []string) (err error) {
	var told any
	switch words[0] {
	case wordSpawns:
		told, err = measureSpawns(ctx)
	case wordWarm:
		told, err = measureWarm(ctx, os.TempDir())
	default:
		return toolhost(ctx, words)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(told)
}

// asNobody lets a bench of an ordinary user tell what it measured.
func asNobody(ctx context.Context, word string, into any) error {
	dir, err := os.MkdirTemp("", "toolpost-bench-nobody-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, temp := filepath.Join(dir, "bench"), filepath.Join(dir, "tmp") // where everybody can reach them
	err = errors.Join(os.Chmod(dir, 0o755), copyFile("/proc/self/exe", self), os.Chmod(self, 0o755),
		os.Mkdir(temp, 0o700), os.Chmod(temp, 0o777))
	if err != nil {
		return err
	}
	const nobody = 65534
	cmd := exec.CommandContext(ctx, self, word)
	cmd.Dir, cmd.Stderr = temp, os.Stderr
	// not what is in somebody's home
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + temp, "TMPDIR=" + temp}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("as an ordinary user: %w", err)
	}
	return json.Unmarshal(out, into)
}

// confinedSpawn compares a one-shot start behind the default walls with the same under bwrap, which builds fewer.
func confinedSpawn(ctx context.Context, _ lab) (row, error) {
	s, err := measureSpawns(ctx)
	return s.row(), err
}

// confinedSpawnAsNobody does so as an ordinary user.
func confinedSpawnAsNobody(ctx context.Context, l lab) (row, error) {
	if os.Geteuid() != 0 {
		return confinedSpawn(ctx, l)
	}
	var s spawns
	err := asNobody(ctx, wordSpawns, &s)
	return s.row(), err
}

// spawns are how long it takes to start /bin/true and to wait for it.
type spawns struct {
	Confined, Bwrap, Plain time.Duration

	// Of many in a row: what is done in advance and in the background counts too.
	ConfinedInRow, BwrapInRow time.Duration
}

func (s spawns) row() row {
	over := func(a, b time.Duration) float64 { return float64(a) / float64(b) }
	return row{
		measured: ms(s.Confined), reference: ms(s.Bwrap), target: "<= 1x", pass: s.Confined <= s.Bwrap,
		ratio: fmt.Sprintf("%.2fx as long (%.2fx ten in a row, %.1fx plain os/exec)",
			over(s.Confined, s.Bwrap), over(s.ConfinedInRow, s.BwrapInRow), over(s.Confined, s.Plain)),
	}
}

func measureSpawns(ctx context.Context) (s spawns, err error) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		return s, fmt.Errorf("the reference is missing; `make setup` installs it: %w", err)
	}
	defer sandbox.Keep()()
	bwrap := func() error { return spawnBwrap(ctx) }
	if s.Confined, s.Bwrap, err = compare(101, clock(spawnConfined), clock(bwrap)); err != nil {
		return s, err
	}
	if s.ConfinedInRow, s.BwrapInRow, err = compare(15, batch(10, spawnConfined), batch(10, bwrap)); err != nil {
		return s, err
	}
	plain := clock(func() error { return exec.CommandContext(ctx, "/bin/true").Run() })
	_, s.Plain, err = compare(101, plain, plain)
	return s, err
}

func spawnConfined() error {
	c, err := process.Start(process.Command{
		Argv: []string{"/bin/true"}, Confine: &sandbox.Confinement{Profile: sandbox.Default()},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if exit := c.Wait(); exit != (process.Exit{}) {
		return fmt.Errorf("the confined /bin/true: %s", c.Describe(exit))
	}
	return nil
}

// spawnBwrap leaves an orphan, the room's init, to whoever takes those. That must not be us: nobody here waits for it,
// and both would slow down as they become more.
func spawnBwrap(ctx context.Context) error {
	adopt := func(yes uintptr) error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, yes, 0, 0, 0) }
	if err := adopt(0); err != nil {
		return err
	}
	err := exec.CommandContext(ctx, "bwrap", "--ro-bind", "/", "/", "--unshare-all", "/bin/true").Run()
	return errors.Join(err, adopt(1))
}

const walledConfig = `sources:
  - {name: walled, protocol: namel3ss, tool: walled, entry: "tools.sample:greet"}
  - {name: strict, protocol: namel3ss, tool: strict, entry: "tools.sample:greet", guarantees: {no_network: true, no_filesystem_write: true, no_subprocess: true}}
  - {name: open, protocol: namel3ss, tool: open, entry: "tools.sample:greet", walls: {off: true}}
`

// warm is how long a call takes in a clean forked process: behind the default walls, behind walls of its own for its
// guarantees, each beside one without any.
type warm struct{ Walled, Open, Strict, OpenBeside time.Duration }

// walledCall compares them through the whole engine.
func walledCall(ctx context.Context, l lab) (row, error) {
	w, err := measureWarm(ctx, l.dir)
	return w.row(), err
}

// walledCallAsNobody does so as an ordinary user.
func walledCallAsNobody(ctx context.Context, l lab) (row, error) {
	if os.Geteuid() != 0 {
		return walledCall(ctx, l)
	}
	var w warm
	err := asNobody(ctx, wordWarm, &w)
	return w.row(), err
}

func (w warm) row() row {
	r, strict := asLong(w.Walled, w.Open, ms, 2), asLong(w.Strict, w.OpenBeside, ms, 2)
	r.ratio += fmt.Sprintf(" (%s with guarantees)", strict.ratio)
	r.pass = r.pass && strict.pass
	return r
}

func measureWarm(ctx context.Context, dir string) (w warm, err error) {
	defer sandbox.Keep()()
	files := greeting()
	files["toolpost.yaml"] = walledConfig
	n, err := openNode(ctx, filepath.Join(dir, "walled"), files)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, closeNode(n)) }()
	call := func(name string) timed {
		c := &tool.Call{Tool: name, Args: []byte(`{"name":"Ada"}`)}
		return clock(func() error { return wantHello(invoke(ctx, n.Handler(), c)) })
	}
	if w.Walled, w.Open, err = compare(101, call("walled"), call("open")); err != nil {
		return w, err
	}
	w.Strict, w.OpenBeside, err = compare(101, call("strict"), call("open"))
	return w, err
}
