package singularity

import "sync"

// A crew runs jobs side by side, up to a number of them; more wait, up to a bound. The worker that rested last works
// next: under light load few of them share the work, and their stacks stay warm.
type crew struct {
	run      func(job)
	most     int // workers
	backlog  int // jobs that may wait
	maxBytes int // of all jobs that wait

	mu      sync.Mutex
	workers int
	idle    []chan job
	waiting []job // in the order in which they came
	bytes   int
	closed  bool
	gone    sync.WaitGroup
}

// submit never waits. It reports false where there is no room.
func (c *crew) submit(j job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := len(c.idle) - 1; last >= 0 {
		c.idle[last] <- j // has room for one, and nobody else sends
		c.idle = c.idle[:last]
		return true
	}
	if c.workers < c.most {
		c.workers++
		c.gone.Go(func() { c.work(j) })
		return true
	}
	if size := len(j.msg.Data); len(c.waiting) < c.backlog && c.bytes+size <= c.maxBytes {
		c.waiting = append(c.waiting, j)
		c.bytes += size
		return true
	}
	return false
}

func (c *crew) work(j job) {
	inbox := make(chan job, 1)
	for ok := true; ok; {
		c.run(j)
		if j, ok = c.next(inbox); !ok {
			j, ok = <-inbox
		}
	}
}

// next gives a job that waits. Where there is none the worker rests: its inbox brings the next one, or is closed.
func (c *crew) next(inbox chan job) (job, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		j := c.waiting[0]
		c.waiting[0] = job{}
		c.waiting = c.waiting[1:]
		c.bytes -= len(j.msg.Data)
		return j, true
	}
	if c.closed {
		close(inbox)
	} else {
		c.idle = append(c.idle, inbox)
	}
	return job{}, false
}

// finish waits until every job has been run. Nothing is submitted any more.
func (c *crew) finish() {
	c.mu.Lock()
	c.closed = true
	for _, inbox := range c.idle {
		close(inbox)
	}
	c.idle = nil
	c.mu.Unlock()
	c.gone.Wait()
}
