// Package scale is a model of a fleet: callers, hubs, workers and a store, with the costs that were measured on a real one. It
// shows what bends first in a fleet that is larger than the machines at hand.
package scale

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Costs are what real programs were seen to take.
type Costs struct {
	Caller time.Duration // processor of a caller, for a call
	Hub    time.Duration // of a hub, for a call
	Worker time.Duration // of a worker, for a call
	Store  time.Duration // of the store, for the record of a call
	Node   time.Duration // of a hub in each second, for each node that is connected to it
}

// A Fleet is what is simulated.
type Fleet struct {
	Hubs, Workers int
	Places        int           // how many calls a worker runs at once
	Tool          time.Duration // how long its tool waits, without a processor
	Link          time.Duration // from one machine to another
	// How many processors there are at each hub and at each worker. If OneMachine is not 0, they and the store share so many. The store
	// has one for the connection over which a hub writes.
	HubCPUs, WorkerCPUs, OneMachine int
	Costs
}

// A Load is what callers do: so many of them, each of which waits for its answer, or so many calls a second at random moments.
type Load struct {
	Callers int
	Rate    float64
	For     time.Duration // of the fleet's time; the first fifth does not count
}

// A Seen is what became of it.
type Seen struct {
	Rate              float64
	Mean, Median, P99 time.Duration
	Hub, Tool, Store  float64 // how busy the processors of the hubs are, the places of the workers, and the processors of the store: 1 is always
}

// Run simulates a fleet. The same fleet, load and seed give the same result.
func Run(f Fleet, l Load, seed uint64) Seen {
	m := &model{Fleet: f, load: l, random: rand.New(rand.NewPCG(seed, 1)), from: l.For / 5}
	m.build()
	for i := range l.Callers {
		m.after(time.Duration(i)*time.Microsecond, m.call)
	}
	if l.Rate > 0 {
		m.arrive()
	}
	for _, h := range m.hubs {
		m.presence(h)
	}
	for len(m.events) > 0 && m.events[0].at < l.For {
		e := heap.Pop(&m.events).(event)
		m.now = e.at
		e.do()
	}
	return m.seen()
}

type model struct {
	Fleet
	load    Load
	random  *rand.Rand
	now     time.Duration
	from    time.Duration // from here on calls count
	events  events
	order   int
	hubs    []*hub
	workers []*worker
	callers *station
	turn    int
	took    []time.Duration
}

type hub struct {
	cpu, store *station
}

type worker struct {
	cpu, places *station
}

// A station serves so many at once, and the others in their order.
type station struct {
	m     *model
	free  int
	queue []job
	busy  time.Duration // since calls count
	size  int
}

type job struct {
	takes time.Duration
	then  func()
}

func (m *model) build() {
	of := func(size int) *station { return &station{m: m, free: size, size: size} }
	one := of(m.OneMachine)
	processors := func(n int) *station {
		if m.OneMachine > 0 {
			return one
		}
		return of(n)
	}
	for range m.Hubs {
		m.hubs = append(m.hubs, &hub{processors(m.HubCPUs), processors(1)})
	}
	for range m.Workers {
		m.workers = append(m.workers, &worker{processors(m.WorkerCPUs), of(m.Places)})
	}
	m.callers = processors(math.MaxInt32) // callers have machines of their own
}

// arrive lets calls begin at random moments.
func (m *model) arrive() {
	m.after(time.Duration(m.random.ExpFloat64()/m.load.Rate*float64(time.Second)), func() {
		m.call()
		m.arrive()
	})
}

// call is one call: from its caller to a hub, to a worker, and back. The record is written after the answer, as that of a tool that
// only reads.
func (m *model) call() {
	began := m.now
	h := m.hubs[m.turn%len(m.hubs)] // as load balancers do
	m.turn++
	w := m.pick()
	m.chain(
		step{m.callers, m.Caller, 0},
		step{h.cpu, m.Hub / 2, m.Link},
		step{w.cpu, m.Worker / 2, m.Link},
	)(func() {
		w.places.enter(func(leave func()) {
			m.after(m.Tool, func() {
				leave()
				m.chain(step{w.cpu, m.Worker / 2, 0}, step{h.cpu, m.Hub / 2, m.Link}, step{m.callers, 0, m.Link})(func() {
					h.store.serve(m.Store, func() {})
					if m.now >= m.from {
						m.took = append(m.took, m.now-began)
					}
					if m.load.Callers > 0 {
						m.call()
					}
				})
			})
		})
	})
}

// pick takes the less busy of two workers at random, as a hub does.
func (m *model) pick() *worker {
	a, b := m.workers[m.random.IntN(len(m.workers))], m.workers[m.random.IntN(len(m.workers))]
	if a.places.waiting() <= b.places.waiting() {
		return a
	}
	return b
}

// presence is what the nodes say of themselves to a hub, each of them once a second.
func (m *model) presence(h *hub) {
	var again func()
	again = func() {
		h.cpu.serve(m.Node, func() {})
		m.after(time.Second/time.Duration(m.Workers+m.Hubs), again)
	}
	again()
}

// A step is a stay at a station, after some time on the way.
type step struct {
	at    *station
	takes time.Duration
	way   time.Duration
}

// chain goes through steps, one after the other.
func (m *model) chain(steps ...step) func(then func()) {
	return func(then func()) {
		if len(steps) == 0 {
			then()
			return
		}
		s := steps[0]
		m.after(s.way, func() {
			s.at.serve(s.takes, func() { m.chain(steps[1:]...)(then) })
		})
	}
}

func (s *station) waiting() int { return len(s.queue) + s.size - s.free }

// serve does a job that takes a known time, once its turn comes.
func (s *station) serve(takes time.Duration, then func()) {
	s.queue = append(s.queue, job{takes, then})
	s.next()
}

func (s *station) next() {
	for s.free > 0 && len(s.queue) > 0 {
		j := s.queue[0]
		s.queue = s.queue[1:]
		s.free--
		s.count(j.takes)
		s.m.after(j.takes, func() {
			s.free++
			j.then()
			s.next()
		})
	}
}

// enter takes a place as soon as one is free, until leave.
func (s *station) enter(then func(leave func())) {
	s.serve(0, func() {
		s.free--
		began := s.m.now
		then(func() {
			s.free++
			s.count(s.m.now - began)
			s.next()
		})
	})
}

func (s *station) count(took time.Duration) {
	if s.m.now >= s.m.from {
		s.busy += took
	}
}

func (m *model) after(d time.Duration, do func()) {
	m.order++
	heap.Push(&m.events, event{m.now + d, m.order, do})
}

func (m *model) seen() (s Seen) {
	counted := (m.load.For - m.from).Seconds()
	s.Rate = float64(len(m.took)) / counted
	if n := len(m.took); n > 0 {
		slices.Sort(m.took)
		s.Median, s.P99 = m.took[n/2], m.took[n*99/100]
		for _, took := range m.took {
			s.Mean += took / time.Duration(n)
		}
	}
	part := func(of *station) float64 { return of.busy.Seconds() / counted / float64(of.size) }
	for _, h := range m.hubs {
		s.Hub += part(h.cpu) / float64(len(m.hubs))
		s.Store += part(h.store) / float64(len(m.hubs))
	}
	for _, w := range m.workers {
		s.Tool += part(w.places) / float64(len(m.workers))
	}
	return s
}

// An event happens at a moment; those of the same moment in the order in which they were made.
type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

var _ heap.Interface = (*events)(nil)

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}
