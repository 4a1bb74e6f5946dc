package singularity

import "sync"

// A crew runs jobs side by side, up to a number of them; more wait, up to a bound.
//
// All jobs go through one line. A worker that has done its job takes the next one, and rests when there is none.
// Whoever leaves a job in the line sees to it that a worker is on its way to it. So a job that takes long holds no
// other up: as soon as it waits for something, the worker that is on its way takes over. And a burst of quick jobs
// is done by few workers, one after the other, and their answers leave together.
type crew struct {
	run      func(job)
	most     int // workers
	backlog  int // jobs that may wait for a worker
	maxBytes int // of all jobs that wait for one

	mu      sync.Mutex
	line    line
	workers int
	busy    int       // workers that run a job
	coming  bool      // a worker is on its way to the line
	idle    []*worker // the one that rested last works next: its stack is warm
	closed  bool
	gone    sync.WaitGroup
}

type worker struct {
	wake chan struct{} // one, or closed: the worker goes home
	busy bool
}

// submit never waits. It reports false where there is no room.
func (c *crew) submit(j job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting := c.line.len() - (c.most - c.busy); waiting >= 0 { // no worker is left for this one
		j.bytes = len(j.msg.Data)
		if waiting >= c.backlog || c.line.bytes+j.bytes > c.maxBytes {
			return false
		}
	}
	c.line.push(j)
	c.send()
	return true
}

// send gets a worker on its way, unless one is or all have work.
func (c *crew) send() {
	if c.coming {
		return
	}
	if last := len(c.idle) - 1; last >= 0 {
		c.idle[last].wake <- struct{}{} // has room for one, and nobody else sends
		c.idle = c.idle[:last]
		c.coming = true
	} else if c.workers < c.most {
		c.workers++
		c.gone.Go(c.work)
		c.coming = true
	}
}

func (c *crew) work() {
	me := &worker{wake: make(chan struct{}, 1)}
	for awake := true; awake; _, awake = <-me.wake {
		for j, ok := c.next(me); ok; j, ok = c.next(me) {
			c.run(j)
		}
	}
}

// next gives a worker its next job, or lets it rest.
func (c *crew) next(me *worker) (j job, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if me.busy {
		c.busy--
	} else {
		c.coming = false
	}
	if me.busy = c.line.len() > 0; !me.busy {
		c.rest(me)
		return j, false
	}
	c.busy++
	j = c.line.pop()
	if c.line.len() > 0 {
		c.send()
	}
	return j, true
}

func (c *crew) rest(me *worker) {
	if c.closed {
		close(me.wake)
	} else {
		c.idle = append(c.idle, me)
	}
}

// finish waits until every job has been run. Nothing is submitted any more.
func (c *crew) finish() {
	c.mu.Lock()
	c.closed = true
	for _, w := range c.idle {
		close(w.wake)
	}
	c.idle = nil
	c.mu.Unlock()
	c.gone.Wait()
}

// A line holds jobs in the order in which they came.
type line struct {
	jobs  []job // those before first have left
	first int
	bytes int
}

func (l *line) len() int { return len(l.jobs) - l.first }

func (l *line) push(j job) {
	if l.first > len(l.jobs)/2 && len(l.jobs) == cap(l.jobs) { // use the room of those that left
		n := copy(l.jobs, l.jobs[l.first:])
		clear(l.jobs[n:])
		l.jobs, l.first = l.jobs[:n], 0
	}
	l.jobs = append(l.jobs, j)
	l.bytes += j.bytes
}

func (l *line) pop() job {
	j := l.jobs[l.first]
	l.jobs[l.first] = job{}
	if l.first++; l.first == len(l.jobs) {
		l.jobs, l.first = l.jobs[:0], 0
	}
	l.bytes -= j.bytes
	return j
}
