package connection

import (
	"time"

	"toolpost/config"
)

// At sets the clock.
func (c *Connections) At(now func() time.Time) { c.env.now = now }

// Secrets sets the secrets of clients.
func (c *Connections) Secrets(s config.Secrets) { c.env.Secrets = s }

// Waiting returns how many callers have calls that wait.
func (c *Connections) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}
