package catalogue

import (
	"context"
	"sync"

	"toolpost/config"
	"toolpost/host/secret"
)

// A SecretStatus describes one secret of the config.
type SecretStatus struct {
	Name string
	From string // its origin, in words
	Err  error  // why it has no value; nil if it has one
}

// Secrets describes every secret of the config, without its value.
func (c *Catalogue) Secrets() []SecretStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []SecretStatus
	for _, name := range c.vault.Names() {
		_, err := c.vault.Secret(name)
		list = append(list, SecretStatus{name, c.secrets[name].String(), err})
	}
	return list
}

// Secret implements config.Secrets, with the secrets of the current config.
func (c *Catalogue) Secret(name string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.vault.Secret(name)
}

// openVault reads the secrets of a config; nil if it has none. From then on their values are redacted.
func (c *Catalogue) openVault(ctx context.Context, cfg *config.Config, from map[string]secret.From) *secret.Vault {
	if len(from) == 0 {
		return nil
	}
	vault := secret.Open(ctx, cfg.Dir, from, c.offLimits(cfg, from, c.claim))
	c.env.Redactor.Learn(vault)
	for _, name := range vault.Names() {
		if _, err := vault.Secret(name); err != nil {
			c.env.Log.Warn("a secret is not available; what needs it fails", "secret", name, "error", message(err))
		}
		if err := from[name].Links(cfg.Dir); err != nil {
			c.env.Log.Warn("the file of a secret has other names", "secret", name, "error", message(err))
		}
	}
	return vault
}

// lent are the secrets of the config for one source. It remembers which were requested: a source is reopened if the value of
// one changes.
type lent struct {
	mu    sync.Mutex
	vault *secret.Vault
	asked map[string]bool
}

// Secret implements config.Secrets.
func (l *lent) Secret(name string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[name] = true
	return l.vault.Secret(name)
}

// renew switches to another vault, unless a requested secret has another value there.
func (l *lent) renew(v *secret.Vault) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.asked {
		if !l.vault.Same(v, name) {
			return false
		}
	}
	l.vault = v
	return true
}
