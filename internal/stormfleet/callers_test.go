package stormfleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// A history is what the callers did, and what they were told.
type history struct {
	mu       sync.Mutex
	attempts []attempt
	jobs     []begunJob
	plans    []begunPlan
	pays     []payment
	streams  []stream
}

// A begunJob is a job that a hub has acknowledged.
type begunJob struct{ id, tool, job, state string }

// A begunPlan marks three ids, once each.
type begunPlan struct {
	id  string
	how string
}

// A payment is a call that had to be approved: its caller was asked, and may have said yes.
type payment struct {
	id, approval string
	yes          bool
	how          string
}

// A stream is what a caller saw of the events of a call or a job.
type stream struct {
	id    string
	whole bool // it ended with the outcome
	ids   []int
	told  []int
}

// A caller makes one call after the other, at one door, and goes to another hub if it gets no outcome.
type caller struct {
	*history
	s    *site
	ctx  context.Context // after its end nothing is repeated
	name string
	door door
	rng  *rand.Rand
	hub  int
	n    int // things done, and tries of them
}

// patience is how long a caller waits for one answer, and keyFor how long it repeats a call: shorter than keys are remembered.
const (
	patience = 6 * time.Second
	keyFor   = 30 * time.Second
	callers  = 64
	thinks   = 250 * time.Millisecond
)

// call lets callers call until ctx ends. What they have begun they end.
func (s *site) call(ctx context.Context, seed uint64, h *history, all []door) {
	var work sync.WaitGroup
	for i := range callers {
		c := &caller{
			history: h, s: s, ctx: ctx, name: fmt.Sprint("c", i), door: all[max(0, i/16-1)], hub: i,
			rng: rand.New(rand.NewPCG(seed, uint64(i+100))),
		}
		work.Go(func() {
			for ctx.Err() == nil {
				c.one()
				sleep(ctx, thinks/2+time.Duration(c.rng.Int64N(int64(thinks))))
			}
		})
	}
	work.Wait()
}

// one does one of the things that callers do.
func (c *caller) one() {
	c.n++
	id := fmt.Sprintf("%s-%d", c.name, c.n)
	switch p := c.rng.IntN(100); {
	case p < 30:
		c.attempt("read", id, c.wait(), nil)
	case p < 45:
		c.retry("put", id, c.wait(), nil)
	case p < 70:
		c.once(id)
	case p < 78:
		c.attempt("mark", id, c.wait(), nil)
	case p < 84:
		c.attempt("meter", id, 0, nil)
	case p < 90:
		c.job(id)
	case p < 94:
		c.plan(id)
	case p < 98:
		c.pay(id)
	default:
		c.listen(id)
	}
}

// wait says how long a tool takes, in milliseconds: most are quick, and some last as long as a fault.
func (c *caller) wait() int { return c.rng.IntN([]int{5, 5, 5, 50, 500, 3000}[c.rng.IntN(6)]) }

func (c *caller) at() *node { return c.s.hubs[c.hub%len(c.s.hubs)] }

// attempt makes one attempt of a call at the hub of the caller, which is another one next time if there was no outcome.
func (c *caller) attempt(tool, id string, wait int, headers map[string]string) attempt {
	return c.try(tool, id, fmt.Sprintf(`{"id":%q,"wait":%d}`, id, wait), headers)
}

func (c *caller) try(tool, id, args string, headers map[string]string) attempt {
	c.n++
	a := attempt{id: id, call: fmt.Sprintf("%s-%d", id, c.n), tool: tool, door: c.door.name, hub: c.at().name}
	all := map[string]string{"Toolpost-Call": a.call}
	for name, value := range headers {
		all[name] = value
	}
	a.key = all["Idempotency-Key"] != ""
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.s.ctx), patience)
	defer stop()
	a.begun = time.Now()
	body, err := c.door.call(ctx, c.at(), tool, args, all)
	a.ended = time.Now()
	judge(&a, body, err)
	if a.how != ran {
		c.hub++
	}
	kept := a
	if kept.how == ran {
		kept.body = ""
	}
	c.note(func() { c.attempts = append(c.attempts, kept) })
	return a
}

// retry repeats a call until it has an outcome.
func (c *caller) retry(tool, id string, wait int, headers map[string]string) (a attempt) {
	return c.until(func() attempt { return c.attempt(tool, id, wait, headers) })
}

func (c *caller) until(do func() attempt) (a attempt) {
	for end := time.Now().Add(keyFor - patience); ; sleep(c.ctx, time.Duration(200+c.rng.IntN(400))*time.Millisecond) {
		if a = do(); a.how == ran || time.Now().After(end) || c.ctx.Err() != nil || over(a) {
			return a
		}
	}
}

// over reports whether an answer is the last word: the tool failed, what became of it will never be known, or it was denied.
func over(a attempt) bool {
	return a.key && a.how == failed || strings.Contains(a.body, "ended while it ran the call") || strings.Contains(a.body, "its outcome is unknown") ||
		strings.HasSuffix(a.why, "approval_denied") || strings.HasSuffix(a.why, "unknown_question")
}

// once makes a call that must not run twice: its key says which attempts are one. Some look at the outcome once more.
func (c *caller) once(id string) {
	wait, key := c.wait(), map[string]string{"Idempotency-Key": id}
	a := c.retry("mark", id, wait, key)
	if a.how == ran && c.rng.IntN(3) == 0 {
		c.hub++
		c.attempt("mark", id, wait, key)
	}
}

// job starts a job, with a key, until a hub acknowledges it.
func (c *caller) job(id string) {
	tool := []string{"mark", "put", "read", "mark", "put", "read", "tell"}[c.rng.IntN(7)]
	args := fmt.Sprintf(`{"tool":%q,"arguments":{"id":%q,"wait":%d}}`, tool, id, c.wait())
	if tool == "tell" {
		args = `{"tool":"tell","arguments":{}}`
	}
	a := c.until(func() attempt { return c.try("startJob", id, args, map[string]string{"Idempotency-Key": id}) })
	if a.how == ran {
		c.note(func() { c.jobs = append(c.jobs, begunJob{id: id, tool: tool, job: a.said}) })
	}
}

func (c *caller) note(what func()) {
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	what()
}

// plan runs a plan with three tools, or starts it as a job. It is never repeated.
func (c *caller) plan(id string) {
	var tools []string
	for i := range 3 {
		tools = append(tools, fmt.Sprintf(`{"toolId":"t%d","tool":"mark","input":{"id":"%s-%d","wait":%d},"retryPolicy":{"maxRetries":0}}`,
			i, id, i, c.wait()/10))
	}
	args := fmt.Sprintf(`{"plan":{"requestId":%q,"tools":[%s]}}`, id, strings.Join(tools, ","))
	p := begunPlan{id: id}
	if c.rng.IntN(2) == 0 {
		a := c.try("plan.run", id, args, nil)
		p.how = a.how
		if a.how == ran && strings.Contains(a.body, `"success":false`) {
			p.how = refused
		}
		c.note(func() { c.plans = append(c.plans, p) })
		return
	}
	args = fmt.Sprintf(`{"tool":"plan.run","arguments":%s}`, args)
	a := c.until(func() attempt { return c.try("startJob", id, args, map[string]string{"Idempotency-Key": id}) })
	c.note(func() {
		c.plans = append(c.plans, p)
		if a.how == ran {
			c.jobs = append(c.jobs, begunJob{id: id, tool: "plan.run", job: a.said})
		}
	})
}

// pay makes a call that has to be approved, decides about it at another hub, and makes it again at a third.
func (c *caller) pay(id string) {
	p := payment{id: id}
	_ = c.until(func() attempt {
		a := c.attempt("pay", id, 0, nil)
		if p.approval = askOf.FindString(a.body); p.approval != "" {
			a.how = ran // the question is what was wanted
		}
		return a
	})
	if p.approval == "" {
		return
	}
	c.hub++
	p.yes = c.rng.IntN(4) > 0
	_ = c.until(func() attempt {
		a := c.try("approvals.decide", id, fmt.Sprintf(`{"id":%q,"approve":%t}`, p.approval, p.yes), nil)
		if strings.HasPrefix(a.why, "conflict") { // an attempt without an answer had decided
			a.how = ran
		}
		return a
	})
	c.hub++
	p.how = c.retry("pay", id, 0, map[string]string{"Toolpost-Resume": p.approval}).how
	c.note(func() { c.pays = append(c.pays, p) })
}

// listen reads the events of a call over HTTP.
func (c *caller) listen(id string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.s.ctx), 2*patience)
	defer stop()
	body, _ := send(ctx, fresh(), c.at(), "/v1/tools/tell/call", `{}`, map[string]string{"Accept": "text/event-stream"})
	if !strings.Contains(body, `{"ok":true`) {
		c.hub++
	}
	c.note(func() { c.streams = append(c.streams, streamOf(id, body)) })
}
