package process

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/tool/tooltest"
)

// walledIn returns the command of a peer behind walls that allow what peers do.
func walledIn(behaviour string, args ...string) Command {
	cmd := command(behaviour, args...)
	here, _ := os.Getwd()
	cmd.Confine = &sandbox.Confinement{Profile: sandbox.Profile{
		Subprocess: true, Proc: sandbox.ProcOwn, Executable: []string{pythonHome(), here + "/testdata"}, Limits: sandbox.Limits{Processes: 1000},
	}}
	return cmd
}

// pythonHome returns the folder of the interpreter.
func pythonHome() string {
	home, _, _ := strings.Cut(python(), "/bin/")
	return home
}

// A Toolpost that runs as a tool has such a namespace for each of its own sandboxes.
func TestSweepDoesNotWaitForDeadProcessesThatOnlyTheChildCanReap(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("namespace"))
	p.pids(2)
	begin := time.Now()
	p.Sweep()
	if took := time.Since(begin); took > endTime/2 {
		t.Errorf("it took %v", took)
	}
	mustRun(t, p.Pid())
	p.CloseStdin()
	kit.Equal(t, p.Wait(), Exit{}, "it ended with")
}

// inRoom lists the processes in a child's room besides the child.
func inRoom(p *peer) []int {
	var pids []int
	for _, pid := range append(tooltest.Descendants(p.room.Init), tooltest.Descendants(p.Pid())...) {
		if runs(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestAConfinedTreeEndsWhole(t *testing.T) {
	for behaviour, end := range map[string]func(*Child) Exit{
		"leave": (*Child).Wait, "daemons": (*Child).Kill, "bomb": (*Child).Kill, "hop": (*Child).Wait, "headless": (*Child).Kill,
		"stubborn": func(c *Child) Exit { return c.Stop(Ladder{Stdin: time.Millisecond, Term: time.Millisecond}) },
	} {
		t.Run(behaviour, func(t *testing.T) {
			tooltest.NoLeaks(t)
			p := start(t, walledIn(behaviour))
			p.next()
			end(p.Child)
			mustHaveEnded(t, p)
		})
	}
}

func TestTheLadderReachesAConfinedChild(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, walledIn("until-term"))
	p.next()
	if e := p.Stop(Ladder{Stdin: time.Millisecond, Term: hang}); e.Code != 8 {
		t.Errorf("it ended with %v", e)
	}
}

func TestSweepSparesTheConfinedChildAlone(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, walledIn("workshop"))
	p.next()
	for range 3 {
		kit.Must(p.Stdin.WriteString("work\n"))(t)
		for range 4 { // three pids in the room's numbering, and the message that it is done
			p.next()
		}
		kit.Equal(t, len(inRoom(p)), 3, "processes run beside it")
		p.Sweep()
		mustBeGone(t, inRoom(p)...)
		mustRun(t, p.Pid())
	}
	p.CloseStdin()
	kit.Equal(t, p.Wait(), Exit{}, "it ended with")
}

func TestConfinedAndOtherTreesDoNotHarmEachOther(t *testing.T) {
	tooltest.NoLeaks(t)
	walled, other := start(t, walledIn("workshop")), start(t, command("workshop"))
	for _, p := range []*peer{walled, other} {
		p.next()
		kit.Must(p.Stdin.WriteString("work\n"))(t)
	}
	for range 4 {
		walled.next()
	}
	below := other.pids(3)
	other.next()
	other.Sweep()
	kit.Equal(t, len(inRoom(walled)), 3, "processes are left of the confined tree")
	mustBeGone(t, below...)
	third := start(t, walledIn("until-eof"))
	third.next()
	walled.Kill()
	mustRun(t, other.Pid(), third.Pid())
	third.CloseStdin()
	if e := third.Wait(); e.Code != 7 {
		t.Errorf("it ended with %v", e)
	}
}

func TestAConfinedChildTellsItsLimit(t *testing.T) {
	tooltest.NoLeaks(t)
	c := &Child{reaped: make(chan struct{}), reached: []sandbox.Violation{{Capability: "memory", Target: "64 MiB"}}, stderr: &stderr{}}
	close(c.reaped)
	got := c.Describe(Exit{Code: -1, Signal: syscall.SIGKILL})
	kit.Equal(t, got, "killed by SIGKILL (killed): it reached its limit of memory (64 MiB), set by walls.memory")
}

func BenchmarkStartAndWaitConfined(b *testing.B) {
	defer sandbox.Keep()()
	for b.Loop() {
		c := kit.Must(Start(Command{Argv: []string{"true"}, Confine: &sandbox.Confinement{}}))(b)
		c.Wait()
		c.Close()
	}
}
