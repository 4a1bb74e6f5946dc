package connection

import (
	"time"

	"toolpost/config"
)

// At sets the clock.
func (c *Connections) At(now func() time.Time) { c.env.now = now }

// Secrets sets the secrets of clients.
func (c *Connections) Secrets(s config.Secrets) { c.env.Secrets = s }
