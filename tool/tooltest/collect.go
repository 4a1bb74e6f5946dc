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
	changes tool.Changes
}

// Emit keeps e.
func (c *Collect) Emit(e tool.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
	c.changes.Tell()
	return nil
}

// Events returns the events so far.
func (c *Collect) Events() []tool.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// Logs returns the messages of the log events so far.
func (c *Collect) Logs() []string {
	var messages []string
	for _, e := range c.Events() {
		var data tool.Log
		if e.Kind == tool.KindLog && strictjson.Unmarshal(e.Data, &data) == nil {
			messages = append(messages, data.Message)
		}
	}
	return messages
}

// WaitLog waits until an event with that log message has come, or ctx has ended.
func (c *Collect) WaitLog(ctx context.Context, message string) error {
	for {
		changed := c.changes.Changed()
		if slices.Contains(c.Logs(), message) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
