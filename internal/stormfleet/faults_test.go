package stormfleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A fault is something that breaks at a time after the storm began, and is repaired a while later.
type fault struct {
	kind  string
	nodes []string // that it befalls
	at    time.Duration
	lasts time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%v %s %s for %v", f.at.Round(time.Millisecond), f.kind, strings.Join(f.nodes, "+"), f.lasts.Round(time.Millisecond))
}

// Kinds of faults. Those of nodes and those between them come from two tracks, so that a node may be frozen while PostgreSQL fails
// over. Those of one track come one after the other.
func ofNodes() []string {
	return []string{"kill", "freeze", "restart", "kill", "freeze", "drain", "full disk", "rolling restart"}
}

func between() []string {
	return []string{"cut", "one-way cut", "fail-over", "silent primary", "frozen primary", "split", "delay", "loss"}
}

// schedule says what breaks when. It depends on nothing but its arguments.
func schedule(seed uint64, length time.Duration, hubs, workers []string) (all []fault) {
	scale := max(0.25, min(1, length.Minutes())) // a short storm has short faults
	some := func(rng *rand.Rand, from, to time.Duration) time.Duration {
		return time.Duration(scale * float64(from+time.Duration(rng.Int64N(int64(to-from)))))
	}
	for track, kinds := range [][]string{ofNodes(), between()} {
		rng := rand.New(rand.NewPCG(seed, uint64(track)))
		for at := some(rng, time.Second, 4*time.Second); ; at += some(rng, time.Second, 5*time.Second) {
			if len(kinds) == 0 {
				kinds = [][]string{ofNodes(), between()}[track]
			}
			i := rng.IntN(len(kinds)) // each kind once before one comes again
			f := fault{kind: kinds[i], at: at}
			kinds = append(kinds[:i:i], kinds[i+1:]...)
			f.lasts = some(rng, time.Second, 9*time.Second)
			switch f.kind {
			case "kill", "restart":
				f.lasts = some(rng, 0, 4*time.Second)
			case "rolling restart":
				f.lasts = 5 * time.Second * time.Duration(len(hubs)+len(workers))
			case "fail-over", "silent primary":
				f.lasts = some(rng, 4*time.Second, 8*time.Second)
			}
			f.nodes = befalls(rng, f.kind, hubs, workers)
			if at > length {
				break
			}
			if at+f.lasts <= length {
				all = append(all, f)
				at += f.lasts
			}
		}
	}
	return all
}

// befalls chooses the nodes of a fault.
func befalls(rng *rand.Rand, kind string, hubs, workers []string) []string {
	hub, worker := hubs[rng.IntN(len(hubs))], workers[rng.IntN(len(workers))]
	switch kind {
	case "full disk":
		return []string{worker}
	case "split": // a hub and a worker from the majority
		return []string{hub, worker}
	case "fail-over", "silent primary", "frozen primary":
		return []string{"postgres"}
	case "loss", "rolling restart":
		return nil
	}
	return []string{[]string{hub, worker}[rng.IntN(2)]}
}

// rage lets the faults of a schedule happen, each track by itself, and tells of each when it is over.
func (s *site) rage(faults []fault, began time.Time, told func(f fault, begun, ended time.Time)) {
	var tracks sync.WaitGroup
	for i := 0; i < len(faults); {
		j := i + 1
		for j < len(faults) && faults[j].at >= faults[j-1].at {
			j++
		}
		track := faults[i:j]
		i = j
		tracks.Go(func() {
			for _, f := range track {
				sleep(s.ctx, time.Until(began.Add(f.at)))
				begun := time.Now()
				if err := s.happen(f); err != nil && s.ctx.Err() == nil {
					s.t.Errorf("%v: the fault itself failed: %v", f, err)
				}
				told(f, begun, time.Now())
			}
		})
	}
	tracks.Wait()
}

// sleep waits for a while, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// happen lets a fault happen and repairs it: a node that has ended is started again by its keeper.
func (s *site) happen(f fault) error {
	var nodes []*node
	for _, name := range f.nodes {
		if n := s.find(name); n != nil {
			nodes = append(nodes, n)
		}
	}
	switch f.kind {
	case "kill":
		s.down(nodes[0], f.lasts, func() { nodes[0].signal(syscall.SIGKILL) })
	case "restart":
		s.down(nodes[0], f.lasts, func() { nodes[0].signal(syscall.SIGTERM) })
	case "drain":
		return s.drain(nodes[0], f.lasts)
	case "freeze":
		nodes[0].signal(syscall.SIGSTOP)
		sleep(s.ctx, f.lasts)
		nodes[0].signal(syscall.SIGCONT)
	case "rolling restart": // with another version of the program: the later one, and then the earlier one again
		before := s.bin
		s.bin, s.other = s.other, s.bin
		for _, n := range s.nodes() {
			s.down(n, 0, func() {
				n.signal(syscall.SIGTERM)
				n.words[slices.Index(n.words, before)] = s.bin
			})
			for end := time.Now().Add(10 * time.Second); s.ctx.Err() == nil && time.Now().Before(end); sleep(s.ctx, 100*time.Millisecond) {
				if s.works(s.hubs[0]) == nil || s.works(s.hubs[len(s.hubs)-1]) == nil {
					break
				}
			}
		}
	case "full disk":
		return s.fill(nodes[0], f.lasts)
	case "fail-over", "silent primary", "frozen primary":
		return s.failOver(f)
	default:
		return s.disturb(f, nodes)
	}
	return nil
}

// down ends a node, and keeps it down for a while.
func (s *site) down(n *node, lasts time.Duration, end func()) {
	s.downAfter(n, n.starts.Load(), lasts, end)
}

// downAfter is down for a node that may have ended already, after a number of starts.
func (s *site) downAfter(n *node, before int64, lasts time.Duration, end func()) {
	n.held.Lock()
	end()
	sleep(s.ctx, lasts)
	n.held.Unlock()
	n.restarted(s.ctx, before)
}

// drain asks another hub to let a node end.
func (s *site) drain(n *node, lasts time.Duration) error {
	for _, hub := range s.hubs {
		before := n.starts.Load()
		ctx, stop := context.WithTimeout(s.ctx, 10*time.Second)
		body, err := post(ctx, hub, "toolpost.drainNode", fmt.Sprintf(`{"node":%q}`, n.name), nil)
		stop()
		if err != nil || !strings.Contains(body, `"ok":true`) {
			continue // this hub may be cut off
		}
		s.downAfter(n, before, lasts, func() {
			for end := time.Now().Add(20 * time.Second); n.pid.Load() != 0 && n.starts.Load() == before; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) { // an operator would lose patience
					n.signal(syscall.SIGTERM)
				}
			}
		})
		return nil
	}
	return nil
}

// fill fills the disk of a worker.
func (s *site) fill(n *node, lasts time.Duration) error {
	f, err := os.Create(filepath.Join(n.dir, "filler"))
	if err != nil {
		return err
	}
	for size := 1 << 20; size > 0; { // to the last byte
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	sleep(s.ctx, lasts)
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// failOver breaks the primary: it dies, or says nothing for a while. Unless that is all, the standby becomes the primary after a
// third of the time, and gets a standby of its own in the end.
func (s *site) failOver(f fault) error {
	switch f.kind {
	case "fail-over":
		s.primary.Stop(syscall.SIGKILL)
	default:
		s.primary.Freeze(true)
		if f.kind == "frozen primary" {
			sleep(s.ctx, f.lasts)
			s.primary.Freeze(false)
			return nil
		}
	}
	sleep(s.ctx, f.lasts/3)
	s.standby.Promote(s.t)
	s.promoted = append(s.promoted, time.Now())
	sleep(s.ctx, f.lasts*2/3)
	if f.kind == "silent primary" {
		s.primary.Freeze(false)
		s.primary.Stop(syscall.SIGQUIT)
	}
	s.primary, s.standby = s.standby, s.standby.Standby(s.t)
	return nil
}

// disturb breaks what is between nodes.
func (s *site) disturb(f fault, nodes []*node) (err error) {
	var these, others []string
	for _, n := range nodes {
		these = append(these, n.machine.Address())
	}
	for _, n := range s.nodes() {
		if !strings.Contains(strings.Join(f.nodes, " "), n.name) {
			others = append(others, n.machine.Address())
		}
	}
	others = append(others, "10.9.1.2", "10.9.2.2") // the servers of PostgreSQL
	change := func(on bool) error {
		switch f.kind {
		case "loss":
			return s.net.lose(on)
		case "delay":
			return s.net.delay(these[0], on)
		case "one-way cut":
			return s.net.cut(these, others, on)
		}
		if err := s.net.cut(these, others, on); err != nil {
			return err
		}
		return s.net.cut(others, these, on)
	}
	if err := change(true); err != nil {
		return err
	}
	sleep(s.ctx, f.lasts)
	return change(false)
}
