package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/engine/member"
	"toolpost/tool"
)

// A simStore is a store that outlives programs: the journal of a worker, or what the hubs share.
type simStore struct {
	s      *sim
	name   string
	claims map[[32]byte]*simClaim
}

type simClaim struct {
	idempotency.Claim
	owner context.Context // the life of its program
}

func newSimStore(s *sim, name string) *simStore {
	return &simStore{s: s, name: name, claims: map[[32]byte]*simClaim{}}
}

// A simOutcomes is the store as one program sees it.
type simOutcomes struct {
	*simStore
	life context.Context
}

var _ idempotency.Outcomes = simOutcomes{}

func (st *simStore) of(life context.Context) simOutcomes { return simOutcomes{st, life} }

// do lets a living program look at a claim, and change it.
func (o simOutcomes) do(scope [32]byte, change func(c *simClaim)) error {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.life.Err() != nil {
		return errors.New("killed")
	}
	if o.s.plant.forgets == o.name {
		delete(o.claims, scope)
	}
	change(o.claims[scope])
	return nil
}

// seen is what a program knows of a claim. Now and then a living program cannot be seen by others.
func (o simOutcomes) seen(c *simClaim) idempotency.Claim {
	c.Lost = c.Lost || c.Result == nil && c.owner.Err() != nil
	c.Away = c.Result == nil && c.owner != o.life && markOf(fmt.Sprint(c.Call, time.Since(o.s.began)/(2*time.Second)))%2 == 0
	return c.Claim
}

func (o simOutcomes) Claim(_ context.Context, scope, input [32]byte, call string, _ time.Duration) (c idempotency.Claim, err error) {
	err = o.do(scope, func(had *simClaim) {
		if had != nil {
			c = o.seen(had)
			return
		}
		c = idempotency.Claim{Mine: true, Input: input, Call: call}
		if input == [32]byte{} && o.s.plant.forgets == "refusals" {
			return
		}
		o.claims[scope] = &simClaim{Claim: idempotency.Claim{Input: input, Call: call}, owner: o.life}
	})
	return c, err
}

func (o simOutcomes) Settle(_ context.Context, scope [32]byte, result []byte, _ time.Duration) error {
	return o.do(scope, func(c *simClaim) {
		if result == nil && c != nil && c.owner == o.life {
			delete(o.claims, scope)
		} else if c != nil && c.owner == o.life {
			c.Result = result
		}
	})
}

func (o simOutcomes) Lose(_ context.Context, scope [32]byte, _ time.Duration) error {
	return o.do(scope, func(c *simClaim) {
		if c != nil && c.owner == o.life {
			c.Lost = true
		}
	})
}

func (o simOutcomes) Known(_ context.Context, scope [32]byte, _ time.Duration) (c idempotency.Claim, known bool, err error) {
	err = o.do(scope, func(had *simClaim) {
		if known = had != nil; known {
			c = o.seen(had)
		}
	})
	return c, known, err
}

func (o simOutcomes) Take(_ context.Context, scope [32]byte, from idempotency.Claim, call string, _ time.Duration) (taken bool, err error) {
	err = o.do(scope, func(c *simClaim) {
		if taken = c != nil && c.Result == nil && c.Call == from.Call && c.At == from.At; taken {
			o.s.note("%s is taken over by %s", from.Call, call)
			o.s.taken++
			*c = simClaim{Claim: idempotency.Claim{Input: c.Input, Call: call, At: c.At + 1}, owner: o.life}
		}
	})
	return taken, err
}

func (o simOutcomes) Reach(context.Context) (time.Duration, error) {
	return idempotency.LostFor, nil
}

func (o simOutcomes) Hold(_ context.Context, scope [32]byte, call string) (held bool, err error) {
	err = o.do(scope, func(c *simClaim) {
		if held = c != nil && c.owner == o.life && c.Call == call && c.Result == nil && !c.Lost; held {
			c.At++
		}
	})
	return held, err
}

// simMembers is what the store knows of the members.
type simMembers struct {
	member.Store
	all []member.Member
}

func (m simMembers) Members(context.Context) ([]member.Member, error) { return m.all, nil }
func (m simMembers) Shares(context.Context) ([]member.Share, error)   { return nil, nil }

// late is the record of a hub.
func (s *sim) late(_ context.Context, r *tool.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("%s is recorded late: %s", r.Parent, r.Outcome)
	s.lates = append(s.lates, *r)
	return nil
}

// row adds a call to the record, which does not have its outcome. The caller holds mu.
func (s *sim) row(c *simCall, o tool.Outcome) *tool.Record {
	r := *c.record
	if r.Outcome = o; o == tool.OutcomeLost {
		r.Node = c.hub
	}
	s.record = append(s.record, &r)
	return &r
}

// rows reads the record.
func (s *sim) rows(_ context.Context, f audit.Filter, visit func(*tool.Record) error) error {
	s.mu.Lock()
	all := slices.Clone(s.record)
	for _, r := range s.lates {
		all = append(all, &r)
	}
	s.mu.Unlock()
	for _, r := range all {
		if f.Fits(r) {
			_ = visit(r)
		}
	}
	return nil
}

// first is the id of the call that others repeat.
func (c *simCall) first() string { return strings.TrimRight(c.id, "'") }

// repeat makes a call with a key again until it has an outcome, at any hub, as a careful client does.
func (s *sim) repeat(ctx context.Context, c *simCall, dice *rand.Rand) {
	for range 6 {
		pause, h := between(dice, 100*time.Millisecond, 5*time.Second), s.hubs[dice.IntN(len(s.hubs))]
		if c.key == "" || c.result != nil {
			return
		}
		tool.Sleep(ctx, pause)
		c = &simCall{id: c.id + "'", tool: c.tool, key: c.key, events: c.events, pad: c.pad, takes: c.takes, slow: c.slow, left: 20 * time.Second}
		s.make(ctx, h, c)
	}
}

// checkKeys checks that the calls with one key have one outcome, and that what must not run twice has not.
func (s *sim) checkKeys() {
	outcomes, ended := map[string][]string{}, map[string]int{}
	for _, c := range s.calls {
		if c.key != "" && c.result != nil {
			outcomes[c.key] = append(outcomes[c.key], string(c.result.Output))
		}
	}
	for key, all := range outcomes {
		if slices.Sort(all); all[0] != all[len(all)-1] {
			s.fail("the key %s has the outcomes %v", key, all)
		}
	}
	for _, r := range s.runs {
		if c := s.calls[r.call]; r.tool == "std.change" && c.key != "" {
			if ended[c.key]++; ended[c.key] == 2 {
				s.fail("the key %s let change run twice", c.key)
			}
		}
	}
}

// checkLost checks that whoever asks for the outcome of a call later learns the truth, and so does the record.
func (s *sim) checkLost(ctx context.Context) {
	runs, lates := map[string]*simRun{}, map[string]tool.Outcome{}
	ids := map[*simRun]int{}
	for i, r := range s.runs {
		runs[r.call], ids[r] = r, i
	}
	for _, r := range s.lates {
		if had, twice := lates[r.Parent]; twice {
			s.fail("%s is late twice: %s and %s", r.Parent, had, r.Outcome)
		}
		lates[r.Parent] = r.Outcome
	}
	for id, c := range s.calls {
		if c.tool != "change" || c.result != nil {
			continue
		}
		r, node, err := s.hubs[0].node.Outcome(ctx, id)
		said := fmt.Sprintf("%s: the nodes say %v, %q and %v", id, r, node, err)
		switch run := runs[id]; {
		case run == nil && tool.CodeOf(err) != tool.CodeNotFound:
			s.fail("%s; it did not run", said)
		case run == nil && lates[id] != "":
			s.fail("%s is late with %s; it did not run", id, lates[id])
		case run == nil || r == nil && strings.Contains(said, "whether it had an effect is not known"): // its program was killed
		case run.ended && (r == nil || string(r.Output) != strconv.Itoa(ids[run])) && !tool.NotRun(c.err):
			s.fail("%s; it ran as %d", said, ids[run])
		case c.recorded && tool.InDoubt(c.err) && lates[id] == "" && run.ended:
			s.fail("%s ran as %d, and the record does not say so", id, ids[run])
		}
	}
}
