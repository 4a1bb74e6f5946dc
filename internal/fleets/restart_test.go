package fleets

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/internal/pg"
	"toolpost/internal/rounds"
	"toolpost/internal/served"
	"toolpost/tool/tooltest"
)

// A balancer passes calls on to hubs that /readyz says are ready, and to the other one if a hub takes none.
type balancer struct {
	hubs    [2]atomic.Pointer[served.Server]
	ready   [2]atomic.Bool
	refused atomic.Int64 // calls that went to the other hub
	none    atomic.Int64 // waits for a hub that is ready
}

// look asks the hubs whether they are ready, until ctx ends.
func (b *balancer) look(ctx context.Context) {
	for ctx.Err() == nil {
		for i := range b.hubs {
			b.ready[i].Store(ready(ctx, b.hubs[i].Load()))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func ready(ctx context.Context, hub *served.Server) bool {
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	body, err := hub.Ask(ctx, "GET", "/readyz", "")
	return err == nil && strings.Contains(body, `"ok":true`)
}

// call makes a call at one of the hubs that are ready; it waits while none has said so. Only a hub that did not take it gives it
// to the other one.
func (b *balancer) call(ctx context.Context, name, args string) (a answer) {
	for range 1000 {
		i := rand.IntN(2)
		if !b.ready[i].Load() {
			i = 1 - i
		}
		if !b.ready[i].Load() {
			b.none.Add(1)
			time.Sleep(20 * time.Millisecond)
			continue
		}
		a = call(ctx, b.hubs[i].Load(), name, args)
		if !errors.Is(a.err, syscall.ECONNREFUSED) && a.Error.Reason != "draining" {
			return a
		}
		b.refused.Add(1)
		time.Sleep(20 * time.Millisecond)
	}
	return a
}

// Every node restarts, after SIGTERM or after `fleet drain` (after each of them in the long round), while 64 callers call through a load balancer: no call
// fails, none that changes something runs twice, and jobs go on at the other hub.
func TestARollingRestartFailsNoCall(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, pg.New(t).Database(t), 2)
	one, two := s.work("one", netns.New(t, 11)), s.work("two", netns.New(t, 12))
	defer func() {
		if t.Failed() {
			t.Log(s.logs())
		}
	}()
	b := &balancer{}
	for i := range b.hubs {
		b.hubs[i].Store(s.hubs[i])
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	load.Go(func() { b.look(ctx) })
	kit.Eventually(t, "both hubs are ready", func() bool { return b.ready[0].Load() && b.ready[1].Load() })
	var made atomic.Int64
	for caller := range 64 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				name, args := "quick", `{}`
				if (caller+n)%2 == 1 {
					name, args = "mark", fmt.Sprintf(`{"id":"%d-%d"}`, caller, n)
				}
				if a := b.call(context.WithoutCancel(ctx), name, args); a.err != nil || !a.OK {
					t.Errorf("%s %s: %+v", name, args, a)
				}
				made.Add(1)
				time.Sleep(200 * time.Millisecond) // the point is the restarts, and not the rate
			}
		})
	}
	release := []func(){one.hold(t, "gate"), two.hold(t, "gate")}
	var jobs []string
	for range 4 {
		begun, _ := call(ctx, s.hubs[0], "startJob", `{"tool":"read","arguments":{}}`).Output.(map[string]any)
		jobs = append(jobs, fmt.Sprint(begun["job"]))
	}
	s.busyAtLeast(s.hubs[0], 4)
	for round := range rounds.Of(1, 2) {
		for i := range s.hubs {
			s.restartHub(b, i, (round+i)%2 == 1)
		}
		for i, w := range []*worker{one, two} {
			if (round+i)%2 == 1 {
				s.run("hub-1", "fleet", "drain", w.name)
				w.Await(t)
			} else {
				w.Stop(t)
			}
			s.start(w)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	release[0]()
	release[1]()
	for _, job := range jobs {
		kit.Until(t, func() error {
			body := kit.Must(s.hubs[1].Raw(ctx, "toolpost.showJob", fmt.Sprintf(`{"job":%q}`, job)))(t)
			switch {
			case strings.Contains(body, `"state":"done"`):
				return nil
			case strings.Contains(body, `"error"`):
				t.Fatal(body)
			}
			return errors.New(body)
		})
	}
	stop()
	load.Wait()
	for id, n := range s.marks() {
		kit.Equal(t, n, 1, id)
	}
	t.Logf("%d calls, of which %d were given to the other hub, and %d waits for one", made.Load(), b.refused.Load(), b.none.Load())
	if made.Load() < 500 {
		t.Errorf("only %d calls were made: there was no load", made.Load())
	}
}

// restartHub restarts a hub. Before it takes no more calls, it says so to load balancers.
func (s *site) restartHub(b *balancer, i int, drain bool) {
	s.t.Helper()
	old, ended := s.hubs[i], make(chan struct{})
	began := time.Now()
	if drain {
		s.run(fmt.Sprint("hub-", 2-i), "fleet", "drain", fmt.Sprint("hub-", i+1))
		go func() { defer close(ended); old.Await(s.t) }()
	} else {
		go func() { defer close(ended); old.Stop(s.t) }()
	}
	kit.Eventually(s.t, "the hub is not ready any more", func() bool { return !ready(s.t.Context(), old) })
	a := call(s.t.Context(), old, "quick", `{}`)
	if late := time.Since(began); late < time.Second && !a.OK {
		s.t.Errorf("%v after the signal, the hub is not ready, and takes no calls either: %+v", late, a)
	}
	kit.Receive(s.t, "the end of a hub", ended)
	s.hubs[i] = served.StartAgain(s.t, old, s.bin, s.dir+fmt.Sprint("/hub-", i+1))
	b.hubs[i].Store(s.hubs[i])
	kit.Eventually(s.t, "the hub is ready again", b.ready[i].Load)
}

// A hub that has just started is ready once it knows the tools of its workers, as otherwise a load balancer would send it calls of
// tools that it says it does not have, and once it knows the other hubs, which may be the next to be drained.
func TestAHubIsReadyOnceItKnowsTheOtherNodes(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, pg.New(t).Database(t), 2)
	w := s.work("one", netns.New(t, 11))
	for _, late := range []int{w.Pid(), s.hubs[1].Pid()} {
		kit.OK(t, syscall.Kill(late, syscall.SIGSTOP))
		s.hubs[0].Stop(t)
		s.hubs[0] = served.StartAgain(t, s.hubs[0], s.bin, s.dir+"/hub-1")
		if late != w.Pid() {
			kit.Eventually(t, "the worker is there", func() bool { return call(t.Context(), s.hubs[0], "quick", `{}`).OK })
		}
		kit.Eventually(t, "the hub waits for the other nodes", func() bool { // and on a slow machine first for the store
			body, err := s.hubs[0].Ask(t.Context(), "GET", "/readyz", "")
			return err == nil && strings.Contains(body, "the hub waits for the other nodes")
		})
		kit.OK(t, syscall.Kill(late, syscall.SIGCONT))
		kit.Eventually(t, "the hub is ready", func() bool { return ready(t.Context(), s.hubs[0]) })
	}
	kit.Equal(t, call(t.Context(), s.hubs[0], "quick", `{}`).said(), "one")
	w.Kill()
	s.until(s.hubs[0], "one", "gone")
	kit.Equal(t, ready(t.Context(), s.hubs[0]), true, "after a node has left")
	s.run("hub-1", "fleet", "drain", "hub-2")
	s.hubs[1].Await(t)
}
