package scale

import (
	"math"
	"testing"
	"time"
)

// near fails the test unless a value is within a part of another one.
func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*want {
		t.Errorf("%s: got %.4g, want %.4g", what, got, want)
	}
}

// A queue in front of one server, with arrivals at random and jobs of one length, is known by formula. (The second stays of calls come at
// the times at which the first ones ended, which is nearly at random unless the hub is very busy.)
func TestAHubIsTheQueueOfTheBooks(t *testing.T) {
	const cost = time.Millisecond
	for _, busy := range []float64{0.2, 0.4, 0.6} {
		f := Fleet{Hubs: 1, Workers: 50, Places: 1000, Tool: time.Second, HubCPUs: 1, WorkerCPUs: 1, Costs: Costs{Hub: 2 * cost}}
		// Each call passes the hub twice, a second apart, for a millisecond each: as one stream of twice as many jobs.
		s := Run(f, Load{Rate: busy / (2 * cost).Seconds(), For: time.Minute}, 1)
		near(t, "busy", s.Hub, busy, 0.03)
		near(t, "mean beside the tool", s.Mean.Seconds()-1, 2*(cost.Seconds()+busy/2/(1-busy)*cost.Seconds()), 0.1)
	}
}

// Callers who wait for their answers cannot make more calls than the places of the tools allow, nor more than they ask for.
func TestPlacesBoundTheRate(t *testing.T) {
	f := Fleet{Hubs: 1, Workers: 4, Places: 8, Tool: 20 * time.Millisecond, HubCPUs: 2, WorkerCPUs: 2, Costs: Costs{Hub: time.Microsecond}}
	many := Run(f, Load{Callers: 200, For: 10 * time.Second}, 1)
	near(t, "all places taken", many.Rate, 4*8/0.020, 0.02)
	near(t, "places", many.Tool, 1, 0.02)
	few := Run(f, Load{Callers: 3, For: 10 * time.Second}, 1)
	near(t, "three callers", few.Rate, 3/0.020, 0.02)
}

// On one machine everything shares its processors.
func TestOneMachineDoesTheWorkOfAll(t *testing.T) {
	f := Fleet{
		Hubs: 1, Workers: 2, Places: 100, OneMachine: 2,
		Costs: Costs{Caller: 50 * time.Microsecond, Hub: 100 * time.Microsecond, Worker: 60 * time.Microsecond, Store: 40 * time.Microsecond},
	}
	s := Run(f, Load{Callers: 64, For: 2 * time.Second}, 1)
	near(t, "rate", s.Rate, 2/250e-6, 0.03)
}

// What nodes say of themselves takes a hub's time, once a second for each.
func TestPresenceTakesTheHubsTime(t *testing.T) {
	f := Fleet{Hubs: 2, Workers: 998, Places: 8, HubCPUs: 1, WorkerCPUs: 1, Costs: Costs{Node: 300 * time.Microsecond}}
	s := Run(f, Load{Rate: 1, For: 10 * time.Second}, 1)
	near(t, "busy", s.Hub, 0.3, 0.03)
}

// The same seed gives the same result, and another one nearly.
func TestASeedRepeats(t *testing.T) {
	f := Fleet{Hubs: 3, Workers: 10, Places: 8, Tool: time.Millisecond, HubCPUs: 1, WorkerCPUs: 1, Costs: Costs{Hub: 200 * time.Microsecond}}
	l := Load{Rate: 5000, For: 2 * time.Second}
	a, b, c := Run(f, l, 7), Run(f, l, 7), Run(f, l, 8)
	if a != b {
		t.Errorf("the same seed gave %+v and %+v", a, b)
	}
	if a == c {
		t.Errorf("another seed gave the same, %+v", a)
	}
	near(t, "rate", c.Rate, a.Rate, 0.05)
}
