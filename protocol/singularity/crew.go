package singularity

import "sync"

// A crew serves deliveries concurrently, up to a limit; more of them wait, up to a bound.
//
// All deliveries go through one queue. A worker that finishes one takes the next, and rests when the queue is empty. Adding
// to the queue also makes sure that a worker is on its way to it. So a slow delivery delays no other: as soon as it blocks,
// the worker that is on its way takes over. And a few workers serve a burst of quick deliveries in sequence, so that their
// answers leave together.
type crew struct {
	run      func(delivery)
	most     int // workers
	backlog  int // deliveries that may wait for a worker
	maxBytes int // of all waiting deliveries

	mu      sync.Mutex
	waiting fifo
	workers int
	busy    int             // workers that serve a delivery
	coming  bool            // a worker is on its way to the queue
	idle    []chan struct{} // a send wakes a worker, closing ends it. The last to rest works next: its stack is warm
	closed  bool
	gone    sync.WaitGroup
}

// submit never waits. It returns false if there is no room.
func (c *crew) submit(j delivery) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting := c.waiting.len() - (c.most - c.busy); waiting >= 0 { // no worker is left for this one
		j.bytes = len(j.msg.Data)
		if waiting >= c.backlog || c.waiting.bytes+j.bytes > c.maxBytes {
			return false
		}
	}
	c.waiting.push(j)
	c.send()
	return true
}

// send gets a worker on its way, unless one already is or all are busy.
func (c *crew) send() {
	if c.coming {
		return
	}
	if last := len(c.idle) - 1; last >= 0 {
		c.idle[last] <- struct{}{} // has room for one, and this is the only sender
		c.idle = c.idle[:last]
		c.coming = true
	} else if c.workers < c.most {
		c.workers++
		c.gone.Go(c.work)
		c.coming = true
	}
}

// work serves the queue, and rests when it is empty.
func (c *crew) work() {
	wake := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	for sent := true; ; c.mu.Lock() {
		if sent {
			c.coming = false
		}
		for c.waiting.len() > 0 {
			c.serve(c.waiting.pop())
		}
		if c.closed {
			return
		}
		c.idle = append(c.idle, wake)
		c.mu.Unlock()
		_, sent = <-wake // at the end it serves what still waits: the worker on its way may get a slow delivery
	}
}

// serve runs one delivery, without holding the lock.
func (c *crew) serve(j delivery) {
	c.busy++
	if c.waiting.len() > 0 {
		c.send()
	}
	c.mu.Unlock()
	c.run(j)
	c.mu.Lock()
	c.busy--
}

// finish waits until every delivery has been served. Nothing may be submitted afterwards.
func (c *crew) finish() {
	c.mu.Lock()
	c.closed = true
	for _, wake := range c.idle {
		close(wake)
	}
	c.idle = nil
	c.mu.Unlock()
	c.gone.Wait()
}

// A fifo holds deliveries in their order of arrival.
type fifo struct {
	items []delivery // those before first have left
	first int
	bytes int
}

func (f *fifo) len() int { return len(f.items) - f.first }

func (f *fifo) push(j delivery) {
	if f.first > len(f.items)/2 && len(f.items) == cap(f.items) { // reuse the room of those that left
		n := copy(f.items, f.items[f.first:])
		clear(f.items[n:])
		f.items, f.first = f.items[:n], 0
	}
	f.items = append(f.items, j)
	f.bytes += j.bytes
}

func (f *fifo) pop() delivery {
	j := f.items[f.first]
	f.items[f.first] = delivery{}
	if f.first++; f.first == len(f.items) {
		f.items, f.first = f.items[:0], 0
	}
	f.bytes -= j.bytes
	return j
}
