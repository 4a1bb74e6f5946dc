package tooltest

import (
	"context"
	"slices"
	"sync"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Collect is a Sink that keeps every event and can be waited on. The zero value is ready.
type Collect struct {
	mu      sync.Mutex
	events  []tool.Event
	changed chan struct{} // closed at the next event; nil: nobody waits
}

// Emit keeps e.
func (c *Collect) Emit(e tool.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	return nil
}

// Events returns the events so far.
func (c *Collect) Events() []tool.Event {
	events, _ := c.look()
	return events
}

// Logs returns the messages of the log events so far.
func (c *Collect) Logs() []string {
	var messages []string
	for _, e := range c.Events() {
		if message, ok := logMessage(e); ok {
			messages = append(messages, message)
		}
	}
	return messages
}

// WaitLog waits until an event with that log message has come, or ctx has ended.
func (c *Collect) WaitLog(ctx context.Context, message string) error {
	for {
		events, changed := c.look()
		for _, e := range events {
			if m, ok := logMessage(e); ok && m == message {
				return nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Collect) look() (events []tool.Event, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return slices.Clone(c.events), c.changed
}

func logMessage(e tool.Event) (string, bool) {
	var data tool.Log
	if e.Kind != tool.KindLog || strictjson.Unmarshal(e.Data, &data) != nil {
		return "", false
	}
	return data.Message, true
}
