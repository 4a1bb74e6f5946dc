package hogs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/internal/served"
	"toolpost/tool/tooltest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

// A hog is a tool that takes as much as it can get.
type hog struct {
	name  string
	cpu   string // its share of a processor, if that can be limited
	walls string // its limit, as config
	more  string // further fields of its source
	says  string // what its caller is told about its end
	layer string // what limits it, if not every machine has that
}

func hogs() []hog {
	const lines = "max_output: 8388608, max_line: 1048576"
	return []hog{
		{name: "fork", cpu: "0.2", walls: "processes: 32", says: "limit of processes (32)", layer: sandbox.LayerPids},
		{name: "bomb", cpu: "0.1", walls: "processes: 32", more: "timeout: 2s", says: "ran longer than its 2s", layer: sandbox.LayerPids},
		{name: "memory", cpu: "0.2", walls: "memory: 67108864", says: "limit of memory (64 MiB)", layer: sandbox.LayerMemory},
		{name: "herd", cpu: "0.3", walls: "memory: 67108864", says: "limit of memory (64 MiB)", layer: sandbox.LayerMemory},
		{name: "tmp", cpu: "0.1", walls: "tmp: 8388608", says: "No space left on device after 8388608 bytes"},
		{name: "disk", cpu: "0.1", walls: "write: [full], file_size: 8388608", says: "File too large after 8388608 bytes"},
		{name: "files", cpu: "0.1", walls: "files: 64", says: "Too many open files after number 63"},
		{name: "spin", cpu: "0.3", walls: "cpu_time: 1s", says: "CPU time limit exceeded"},
		{name: "flood", cpu: "0.1", more: lines, says: "the output is longer than 8388608 bytes"},
		{name: "line", cpu: "0.1", more: lines, says: "line 1 is longer than 1048576 bytes"},
	}
}

// stays is a hog that takes nothing, but starts daemons.
const stays = "stay"

// source returns the hog's source in the config.
func (h hog) source(python, mark string) string {
	return fmt.Sprintf("- {name: %[1]s, protocol: narratoria, command: [%[2]q, -I, -S, hog.py, %[1]s, %[3]s, full], walls: {%[4]s}, %[5]s}\n",
		h.name, python, mark, strings.Join(slices.DeleteFunc([]string{h.walls, h.cpu}, func(s string) bool { return s == "" }), ", "), h.more)
}

// TestServerStaysResponsiveUnderHogs runs ten at once while the server continues to serve; then it kills the server under
// them.
func TestServerStaysResponsiveUnderHogs(t *testing.T) {
	tooltest.NoLeaks(t)
	python := requirePython(t)
	m := thisMachine(t)
	bin := served.Build(t)
	t.Run("ten at once", func(t *testing.T) { tenAtOnce(t, newPlace(t, bin, python, m), m) })
	t.Run("the server is killed", func(t *testing.T) { killed(t, newPlace(t, bin, python, m), m) })
}

// A machine describes what the kernel can do here.
type machine struct {
	hogs []hog // those that can be limited
	fair bool  // processors can be limited
}

// thisMachine detects it. Cgroups may be missing; without the rest no tool runs at all.
func thisMachine(t *testing.T) machine {
	t.Helper()
	missing := map[string]string{}
	for _, l := range sandbox.Probe() {
		if !l.Works {
			missing[l.Name] = "missing: " + l.Name + ", " + l.Why
		}
	}
	for _, layer := range []string{sandbox.LayerPid, sandbox.LayerMounts, sandbox.LayerSeccomp} {
		if why := missing[layer]; why != "" {
			unfit(t, why)
		}
	}
	why := missing[sandbox.LayerCPU]
	m := machine{fair: why == ""}
	if !m.fair {
		t.Log("how long others take is not looked at; " + why)
	}
	for _, h := range hogs() {
		if why := missing[h.layer]; why != "" {
			t.Logf("the hog %s is left out; %s", h.name, why)
			continue
		}
		if h.cpu = "cpu: " + h.cpu; !m.fair {
			h.cpu = ""
		}
		m.hogs = append(m.hogs, h)
	}
	return m
}

// unfit skips a test on a machine that cannot run it.
func unfit(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// requirePython returns the interpreter itself: python3 may be a script that looks for it each time.
func requirePython(t *testing.T) string {
	t.Helper()
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		unfit(t, "python3 is missing; `make setup` installs it")
	}
	return strings.TrimSpace(string(path))
}

// newPlace writes the folder of a server.
func newPlace(t *testing.T, bin, python string, m machine) place {
	t.Helper()
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	p := place{mark: fmt.Sprintf("hog-of-%d-%d", os.Getpid(), time.Now().UnixNano()), dir: dir, bin: bin, mounts: mounts()}
	t.Cleanup(p.clear)
	kit.OK(t, os.CopyFS(dir, os.DirFS("testdata")))
	kit.OK(t, errors.Join(os.Mkdir(p.temp(), 0o755), os.Mkdir(filepath.Join(dir, "full"), 0o755)))
	text := "limits: {timeout: 10m, breaker: {off: true}}\nsources:\n- {name: echo, protocol: narratoria, command: [sh, echo.sh]}\n"
	for _, h := range append(slices.Clone(m.hogs), hog{name: stays}) {
		text += h.source(python, p.mark)
	}
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), []byte(text), 0o644))
	return p
}

// tenAtOnce runs ten hogs. Every run logs how long other tools take beside them. It is checked only if nothing else runs
// on the machine, with TOOLPOST_LONG, and then measured up to five times: other load on the machine comes and goes, but a
// missing wall is always missing.
func tenAtOnce(t *testing.T, p place, m machine) {
	s := serve(t, p)
	s.alone(t)
	before := s.memory(t, "VmRSS")
	often := 1
	if m.fair {
		often = rounds.Of(1, 5)
	}
	for round := 1; round <= often; round++ {
		alone := s.alone(t)
		among := s.among(t, m.hogs)
		t.Logf("p99 of an echo alone: %v, among hogs: %v", alone, among)
		if among <= max(3*alone, alone+50*time.Millisecond) {
			break
		}
		if round == 5 {
			t.Error("others take longer because of the hogs")
		}
	}
	const most = 256 << 20
	if grown := s.memory(t, "VmHWM") - before; grown > most {
		t.Errorf("the server's memory grew by %d MiB", grown>>20)
	}
	s.Stop(t)
	p.nothingLeft(t, s.Pid())
}

// among calls the innocent tool while hogs run, until each has been stopped at least once.
func (s *server) among(t *testing.T, hogs []hog) time.Duration {
	t.Helper()
	ctx, enough := context.WithCancel(t.Context())
	var work, first sync.WaitGroup
	for _, h := range hogs {
		first.Add(1)
		work.Go(func() { s.hold(ctx, t, h, sync.OnceFunc(first.Done)) })
	}
	all := make(chan struct{})
	work.Go(func() { first.Wait(); close(all) })
	p99, err := s.echo(ctx, all)
	enough()
	work.Wait()
	kit.OK(t, err)
	return p99
}

// hold runs a hog until it is stopped. With TOOLPOST_LONG, when its effect on others is checked, it runs the hog again
// until ctx ends.
func (s *server) hold(ctx context.Context, t *testing.T, h hog, stopped func()) {
	defer stopped()
	for {
		o, err := s.Call(ctx, h.name, `{}`)
		if ctx.Err() != nil {
			return
		}
		if err != nil || o.OK || !strings.Contains(o.Error.Message, h.says) {
			t.Errorf("%s: %v, %+v; it should say %q", h.name, err, o, h.says)
			return
		}
		if stopped(); rounds.Of(0, 1) == 0 {
			return
		}
	}
}

// alone calls the innocent tool while nothing else runs.
func (s *server) alone(t *testing.T) time.Duration {
	t.Helper()
	return kit.Must(s.echo(t.Context(), nil))(t)
}

// echo calls the innocent tool a hundred times, or fewer if the time is only logged, and continues until all is closed.
// It returns the 99th percentile of the times.
func (s *server) echo(ctx context.Context, all <-chan struct{}) (time.Duration, error) {
	least := rounds.Of(20, 100)
	var took []time.Duration
	for deadline := time.Now().Add(5 * served.Hang); len(took) < least || all != nil && !isClosed(all); {
		began := time.Now()
		o, err := s.Call(ctx, "echo", `{"says":"hello"}`)
		if took = append(took, time.Since(began)); err != nil || !o.OK || o.Output["says"] != "hello" {
			return 0, fmt.Errorf("echo, call %d: %v, %+v\n%s", len(took), err, o, s.Log())
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("after %d calls of echo there are still hogs that nobody stopped", len(took))
		}
	}
	slices.Sort(took)
	return took[len(took)*99/100], nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func killed(t *testing.T, p place, m machine) {
	s := serve(t, p)
	var work sync.WaitGroup
	for _, h := range append(slices.Clone(m.hogs), hog{name: stays}) {
		work.Go(func() {
			for err := error(nil); err == nil; { // until the server is gone
				_, err = s.Call(context.Background(), h.name, `{}`)
			}
		})
	}
	kit.Until(t, func() error {
		if daemons, all := len(p.processes(stays)), len(p.processes("")); daemons < 3 || all < 5 {
			return fmt.Errorf("only %d processes of hogs run, %d of them daemons", all, daemons)
		}
		return nil
	})
	s.Kill()
	work.Wait()
	again := serve(t, p)
	again.alone(t)
	again.Stop(t)
	p.nothingLeft(t, s.Pid(), again.Pid())
}
