package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/internal/kit"
	"toolpost/tool/tooltest"
)

func TestAChildThatExitsLeavesNothing(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("leave"))
	left := p.pids(2)
	if e := p.Wait(); e.Code != 3 {
		t.Errorf("it ended with %v", e)
	}
	mustBeGone(t, left...)
	mustHaveEnded(t, p)
}

// mustHaveEnded fails unless stdout ends: that happens when no process holds the other end, so it proves that the whole
// tree is dead, however it hides.
func mustHaveEnded(t *testing.T, p *peer) {
	t.Helper()
	p.Stdout.SetReadDeadline(time.Now().Add(hang))
	kit.Check(t, kit.Err(io.Copy(io.Discard, p.Stdout)), "somebody still holds the child's stdout")
}

func TestDaemonsDieWithTheirTree(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("daemons"))
	daemons := p.pids(2) // one with our marker, one with an empty environment
	p.next()
	for _, pid := range daemons {
		kit.Eventually(t, "it has become sleep", func() bool {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			return string(name) == "sleep\n"
		})
	}
	mustRun(t, daemons...)
	p.Kill()
	mustBeGone(t, daemons...)
}

// A container's monitor is such a daemon: it keeps no environment, but the container's name is on its command line.
func TestClaimedDaemonDiesOnlyWithItsOwnTree(t *testing.T) {
	tooltest.NoLeaks(t)
	cmd := command("daemons")
	cmd.Claim = "sleep\x001000"
	p := start(t, cmd)
	daemons := p.pids(2)
	p.next()
	for _, pid := range daemons {
		kit.Eventually(t, "it has become sleep", func() bool {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			return string(name) == "sleep\n"
		})
	}
	start(t, command("workshop")).Kill()
	mustRun(t, daemons...)
	p.Kill()
	mustBeGone(t, daemons...)
}

func TestAForkBombIsDefused(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("bomb"))
	p.next()
	p.Kill()
	mustHaveEnded(t, p)
	mustBeGone(t, carrying(p.Child)...)
	mustBeGone(t, tooltest.Descendants(os.Getpid())...)
}

func TestAProcessThatKeepsForkingAwayIsCaught(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("hop"))
	p.next()
	p.Wait()
	mustHaveEnded(t, p)
}

func TestAProcessWithoutItsFirstThreadIsNotTakenForDead(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("headless"))
	headless := p.pids(1)[0]
	kit.Eventually(t, "the first thread is gone", func() bool {
		s, _ := ours.proc.stat(headless)
		return s.state == 'Z'
	})
	mustRun(t, headless)
	p.Kill()
	mustBeGone(t, headless)
}

func TestSweepSparesTheChildAlone(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("workshop"))
	p.next()
	for range 3 {
		kit.Must(p.Stdin.WriteString("work\n"))(t)
		left := p.pids(3)
		p.next()
		mustRun(t, left...)
		p.Sweep()
		mustBeGone(t, left...)
		mustRun(t, p.Pid())
	}
	p.CloseStdin()
	kit.Equal(t, p.Wait(), Exit{}, "it ended with")
}

func TestOrphansThatDieAreReaped(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("zombies"))
	p.next()
	kit.Eventually(t, "the child alone is left", func() bool {
		return slices.Equal(ours.proc.scan()[os.Getpid()], []int{p.Pid()})
	})
	p.CloseStdin()
	p.Wait()
}

func TestTreesDoNotHarmEachOther(t *testing.T) {
	tooltest.NoLeaks(t)
	stranger := exec.Command("sleep", "1000") // started by other code in this program
	kit.OK(t, stranger.Start())
	var trees []*peer
	var below [][]int
	for range 8 {
		p := start(t, command("workshop"))
		p.next()
		fmt.Fprintln(p.Stdin, "work")
		below = append(below, p.pids(3))
		p.next()
		trees = append(trees, p)
	}
	var ending sync.WaitGroup
	for _, p := range trees[:4] {
		ending.Go(func() { p.Kill() })
	}
	ending.Wait()
	for i, p := range trees {
		check := mustRun
		if i < 4 {
			check = mustBeGone
		}
		check(t, append(below[i], p.Pid())...)
	}
	for _, p := range trees[4:] {
		ending.Go(func() { p.Sweep(); p.Stop(Ladder{Stdin: hang}) })
	}
	ending.Wait()
	mustBeGone(t, slices.Concat(below...)...)
	mustRun(t, stranger.Process.Pid)
	_ = stranger.Process.Kill()
	if err := stranger.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the stranger's own parent cannot wait for it: %v", err)
	}
}

func TestStrayKeepsItsOwnerDuringExec(t *testing.T) {
	tooltest.NoLeaks(t)
	script := filepath.Join(t.TempDir(), "again")
	write(t, script, "#!/bin/sh\nexec \"$0\"\n", 0o755)
	p := start(t, Command{Argv: []string{"sh", "-c", `(setsid "$0" & echo $!); exec sleep 1000`, script}, Env: command("").Env})
	restless := p.pids(1)[0]
	kit.Eventually(t, "it is a stray", func() bool {
		s, _ := ours.proc.stat(restless)
		return s.parent == os.Getpid() && s.session == restless
	})
	other := start(t, Command{Argv: []string{"sleep", "1000"}})
	for range 1000 {
		other.Sweep()
	}
	mustRun(t, restless)
	other.Kill()
	p.Kill()
	mustBeGone(t, restless)
}

func TestZombieTriggersAnotherLook(t *testing.T) {
	tooltest.NoLeaks(t)
	stray := exec.Command("true")
	stray.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	kit.OK(t, stray.Start())
	kit.Eventually(t, "it is a zombie", func() bool { return !runs(stray.Process.Pid) })
	h := &hunt{registry: &registry{proc: "/proc"}, child: &Child{proc: stray.Process}}
	if h.look(); !h.news {
		t.Error("what it may have forked before it died would be missed")
	}
	if h.look(); h.news {
		t.Error("it was not reaped")
	}
	_ = stray.Wait() // there is nothing left to wait for
}

func TestChildrenThatAreStartedWhileTreesEndAreSafe(t *testing.T) {
	tooltest.NoLeaks(t)
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range 20 {
				c, err := Start(Command{Argv: []string{"sh", "-c", "exit 5"}})
				if err != nil {
					t.Error(err)
					return
				}
				if e := c.Wait(); e.Code != 5 {
					t.Errorf("it ended with %v", e)
				}
				c.Close()
			}
		})
	}
	work.Wait()
}

func TestASignalNeverReachesAnotherProcessWithTheSamePid(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("until-eof"))
	p.next()
	s, _ := ours.proc.stat(p.Pid())
	kit.Fails(t, ours.send(p.Pid(), s.start-1, unix.SIGKILL),
		"", "the signal was sent, although the process was started later")
	p.CloseStdin()
	if e := p.Wait(); e.Code != 7 {
		t.Errorf("it ended with %v", e)
	}
}

func BenchmarkStartAndWait(b *testing.B) {
	for b.Loop() {
		c := kit.Must(Start(Command{Argv: []string{"true"}}))(b)
		c.Wait()
		c.Close()
	}
}

func BenchmarkSweepOfNothing(b *testing.B) {
	c := kit.Must(Start(Command{Argv: []string{"sleep", "1000"}}))(b)
	defer c.Close()
	for b.Loop() {
		c.Sweep()
	}
	b.ReportMetric(float64(len(ours.proc.numbers(""))), "processes")
}
