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

	"toolpost/bench/attempt"
	"toolpost/host/process"
	"toolpost/host/sandbox"
)

// asNobody measures as an ordinary user: in another bench that prints its measurement.
func asNobody[T any](ctx context.Context, l *lab, word string, measure func(context.Context, *lab) T) (told T) {
	if os.Geteuid() != 0 {
		return measure(ctx, l)
	}
	dir := attempt.Must(os.MkdirTemp("", "toolpost-bench-nobody-"))
	defer os.RemoveAll(dir)
	self, temp := filepath.Join(dir, "bench"), filepath.Join(dir, "tmp") // in a folder that every user can reach
	attempt.Check(errors.Join(os.Chmod(dir, 0o755), copyFile("/proc/self/exe", self), os.Chmod(self, 0o755),
		os.Mkdir(temp, 0o700), os.Chmod(temp, 0o777)))
	const nobody = 65534
	cmd := exec.CommandContext(ctx, self, word)
	cmd.Dir, cmd.Stderr = temp, os.Stderr
	// Nothing of any user's home.
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + temp, "TMPDIR=" + temp}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.Output()
	if err != nil {
		attempt.Check(fmt.Errorf("as an ordinary user: %w", err))
	}
	attempt.Check(json.Unmarshal(out, &told))
	return told
}

// confinedSpawn compares a one-shot start behind the default walls with the same under bwrap, which builds fewer.
func confinedSpawn(ctx context.Context, l *lab) row { return measureSpawns(ctx, l).row() }

// confinedSpawnAsNobody does the same as an ordinary user.
func confinedSpawnAsNobody(ctx context.Context, l *lab) row {
	return asNobody(ctx, l, wordSpawns, measureSpawns).row()
}

// spawns are the times to start /bin/true and wait for it.
type spawns struct {
	Confined, Bwrap, Plain time.Duration

	// Of many in a row, which includes work done in advance and in the background.
	ConfinedInRow, BwrapInRow time.Duration
}

func (s spawns) row() row {
	one := longer(s.Confined, s.Bwrap, ms)
	one.target, one.pass = "<= 1x", s.Confined <= s.Bwrap
	one.note = fmt.Sprintf("%s ten in a row, %s as plain os/exec",
		longer(s.ConfinedInRow, s.BwrapInRow, ms).ratio, longer(s.Confined, s.Plain, ms).ratio)
	return one
}

func measureSpawns(ctx context.Context, _ *lab) (s spawns) {
	need("bwrap")
	defer sandbox.Keep()()
	bwrap := func() error { return spawnBwrap(ctx) }
	s.Confined, s.Bwrap = compare(101, clock(spawnConfined), clock(bwrap))
	s.ConfinedInRow, s.BwrapInRow = compare(15, batch(10, spawnConfined), batch(10, bwrap))
	s.Plain = alone(101, clock(func() error { return exec.CommandContext(ctx, "/bin/true").Run() }))
	return s
}

func spawnConfined() error {
	c := attempt.Must(process.Start(process.Command{
		Argv: []string{"/bin/true"}, Confine: &sandbox.Confinement{Profile: sandbox.Default()},
	}))
	defer c.Close()
	if exit := c.Wait(); exit != (process.Exit{}) {
		return fmt.Errorf("the confined /bin/true: %s", c.Describe(exit))
	}
	return nil
}

// spawnBwrap leaves an orphan, the init of its namespace, to the nearest subreaper. That must not be this process: it
// never waits for the orphan, and both measurements would slow down as the orphans pile up.
func spawnBwrap(ctx context.Context) error {
	adopt := func(yes uintptr) error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, yes, 0, 0, 0) }
	attempt.Check(adopt(0))
	err := exec.CommandContext(ctx, "bwrap", "--ro-bind", "/", "/", "--unshare-all", "/bin/true").Run()
	return errors.Join(err, adopt(1))
}

const walledConfig = `sources:
  - {name: walled, protocol: namel3ss, tool: walled, entry: "tools.sample:greet"}
  - {name: strict, protocol: namel3ss, tool: strict, entry: "tools.sample:greet",
     guarantees: {no_network: true, no_filesystem_write: true, no_subprocess: true}}
  - {name: open, protocol: namel3ss, tool: open, entry: "tools.sample:greet", walls: {off: true}}
`

// warm holds the times of a call in a clean forked process: behind the default walls, and behind separate walls for its
// guarantees, each beside one without any.
type warm struct{ Walled, Open, Strict, OpenBeside time.Duration }

// walledCall compares them through the whole engine.
func walledCall(ctx context.Context, l *lab) row { return measureWarm(ctx, l).row() }

// walledCallAsNobody does the same as an ordinary user.
func walledCallAsNobody(ctx context.Context, l *lab) row {
	return asNobody(ctx, l, wordWarm, measureWarm).row()
}

func (w warm) row() row {
	r, strict := asLong(w.Walled, w.Open, ms, 2), asLong(w.Strict, w.OpenBeside, ms, 2)
	r.note = strict.ratio + " with guarantees, whose target is the same"
	r.pass = r.pass && strict.pass
	return r
}

func measureWarm(ctx context.Context, l *lab) (w warm) {
	need("python3")
	release := sandbox.Keep()
	l.atEnd(func() error { release(); return nil })
	files := greeting()
	files["toolpost.yaml"] = walledConfig
	n := l.open(ctx, filepath.Join(l.dir, "walled"), files)
	call := func(name string) timed { return clock(greet(ctx, n, name)) }
	w.Walled, w.Open = compare(101, call("walled"), call("open"))
	w.Strict, w.OpenBeside = compare(101, call("strict"), call("open"))
	return w
}
