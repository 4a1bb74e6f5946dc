package fleets

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/internal/pg"
	"toolpost/internal/served"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// A call with a key runs once, and has one outcome, whether its hub is killed, its worker is cut off for a while, or its worker is
// killed.
func TestAKeyHasOneOutcomeWhateverDies(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, pg.New(t).Database(t), 2)
	w, two := s.work("one", netns.New(t, 11)), s.hubs[1]
	// begin makes a call that waits until release, and returns its answer.
	begin := func(hub *served.Server, id string) (release func(), answered <-chan answer) {
		release = w.hold(t, "slow")
		got := make(chan answer, 1)
		go func() { got <- call(t.Context(), hub, "mark", fmt.Sprintf(`{"id":%q}`, id), "Idempotency-Key", id) }()
		kit.Eventually(t, "the call runs", func() bool { return s.marks()[id] == 1 })
		return release, got
	}
	again := func(id string) answer {
		return call(t.Context(), two, "mark", fmt.Sprintf(`{"id":%q}`, id), "Idempotency-Key", id)
	}
	// until repeats a call until its answer says something.
	until := func(id, says string) {
		t.Helper()
		kit.Until(t, func() error {
			if a := again(id); !strings.Contains(a.said(), says) {
				return errors.New(a.said())
			}
			return nil
		})
		kit.Equal(t, s.marks()[id], 1, id)
	}

	release, got := begin(s.hubs[0], "hub-killed")
	s.hubs[0].Kill()
	kit.Equal(t, kit.Receive(t, "the end of the connection", got).err != nil, true)
	until("hub-killed", "still runs at the node one; ask again later")
	release()
	until("hub-killed", "hub-killed")
	kit.Equal(t, again("hub-killed").OK, true)

	release, got = begin(two, "cut-off")
	kit.OK(t, syscall.Kill(w.Pid(), syscall.SIGSTOP))
	kit.Equal(t, kit.Receive(t, "an answer without the worker", got).Error.Reason, "worker_gone")
	release()
	kit.OK(t, syscall.Kill(w.Pid(), syscall.SIGCONT))
	until("cut-off", "cut-off")
	kit.Equal(t, again("cut-off").OK, true)

	release, got = begin(two, "worker-killed")
	w.Kill()
	kit.Equal(t, kit.Receive(t, "an answer without the worker", got).Error.Reason, "worker_gone")
	release()
	s.hubs = s.hubs[1:]
	s.start(w)
	until("worker-killed", "the node one ended while it ran the call")

	// What is known by now is in the record, beside the rows of the calls that were lost, and what is not known is not.
	type row struct {
		Tool    string `json:"tool"`
		Outcome string `json:"outcome"`
		Node    string `json:"node"`
		Parent  string `json:"parent"`
	}
	var late []row
	kit.Until(t, func() error {
		rows := s.run("hub-2", "audit", "export", "--kind", "late")
		late = late[:0]
		for line := range strings.Lines(rows) {
			late = append(late, row{})
			kit.OK(t, strictjson.Unmarshal([]byte(line), &late[len(late)-1]))
		}
		if len(late) < 2 {
			return errors.New(rows)
		}
		return nil
	})
	kit.Equal(t, len(late), 2)
	kit.Contains(t, s.run("hub-2", "audit", "verify"), "signed, with 2 receipts", "those of the late outcomes")
	all := s.run("hub-2", "audit", "export")
	for _, r := range late {
		kit.Equal(t, r.Tool+" "+r.Outcome+" "+r.Node, "mark ok one")
		kit.Equal(t, strings.Contains(all, `"call":"`+r.Parent+`"`), true, r.Parent)
	}
}
