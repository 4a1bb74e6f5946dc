package fleets

import (
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/tool/tooltest"
)

// Calls that only read go on elsewhere if their worker is killed: none of 40 fails.
func TestReadsGoOnElsewhereIfTheirWorkerIsKilled(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, "sqlite:hub.db", 1)
	one, two := s.work("one", netns.New(t, 11)), s.work("two", netns.New(t, 12))
	one.hold(t, "gate")
	release := two.hold(t, "gate")
	got := calls(t.Context(), s.hubs[0], "read", `{}`, 40)
	s.busy(s.hubs[0], 40, "one", "two")
	one.Kill()
	release()
	for range 40 {
		kit.Equal(t, kit.Receive(t, "an answer", got).said(), "two")
	}
}

// A worker that is cut off, and still runs, is gone after some seconds of silence: reads go on elsewhere; calls that may
// change something are answered as lost, and none of them runs twice, not even when the worker is back.
func TestAWorkerThatIsCutOffIsGoneAfterItsSilence(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, "sqlite:hub.db", 1)
	one, two := s.work("one", netns.New(t, 11)), s.work("two", netns.New(t, 12))
	var release []func()
	for _, w := range []*worker{one, two} {
		for _, file := range []string{"gate", "slow"} {
			release = append(release, w.hold(t, file))
		}
	}
	reads, marks := calls(t.Context(), s.hubs[0], "read", `{}`, 20), calls(t.Context(), s.hubs[0], "mark", `{"id":"m#"}`, 20)
	s.busy(s.hubs[0], 40, "one", "two")
	kit.Eventually(t, "all marks are on the disk", func() bool { return len(s.marks()) == 20 })
	one.machine.Cut(t, true)
	cut := time.Now()
	for _, open := range release[2:] { // at the worker that is left
		open()
	}
	for range 20 {
		kit.Equal(t, kit.Receive(t, "an answer", reads).said(), "two")
	}
	took := time.Since(cut)
	t.Logf("the reads of the worker that was cut off ended elsewhere after %v", took)
	if took > 20*time.Second { // five of silence, one between two looks, and those of a slow machine
		t.Errorf("reads went on elsewhere only after %v", took)
	}
	lost := 0
	for range 20 {
		switch g := kit.Receive(t, "an answer", marks); {
		case g.err == nil && g.OK:
		case g.err == nil && g.Error.Code == "unavailable" && g.Error.Reason == "worker_gone":
			lost++
		default:
			t.Errorf("a call that may change something: %+v", g)
		}
	}
	if lost == 0 || lost == 20 {
		t.Errorf("%d of 20 calls were lost", lost)
	}
	kit.Equal(t, call(t.Context(), s.hubs[0], "mark", `{"id":"after"}`).said(), "after", "the tool where it runs well")
	one.machine.Cut(t, false)
	release[0]()
	release[1]()
	s.until(s.hubs[0], "one", "up")
	kit.Eventually(t, "the worker that is back has ended its old calls", func() bool {
		all := kit.Must(s.nodes(s.hubs[0]))(t)
		return all[0].Running+all[1].Running+all[2].Running == 0
	})
	for id, n := range s.marks() {
		kit.Equal(t, n, 1, id)
	}
	kit.Equal(t, call(t.Context(), s.hubs[0], "quick", `{}`).OK, true)
}
