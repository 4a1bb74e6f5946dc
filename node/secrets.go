package node

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
func (n *Node) Secrets() []SecretStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []SecretStatus
	for _, name := range n.vault.Names() {
		_, err := n.vault.Secret(name)
		list = append(list, SecretStatus{name, n.secrets[name].String(), err})
	}
	return list
}

// readSecrets reads the section and the secrets that it names. From then on their values are redacted.
func (n *Node) readSecrets(ctx context.Context, cfg *config.Config) (map[string]secret.From, *secret.Vault, error) {
	var from map[string]secret.From
	if err := cfg.Secrets.Decode(&from); err != nil {
		return nil, nil, err
	}
	if len(from) == 0 {
		return nil, nil, nil
	}
	vault := secret.Open(ctx, cfg.Dir, from, n.offLimits(cfg, from, n.claim))
	n.redactor.Learn(vault)
	for _, name := range vault.Names() {
		if _, err := vault.Secret(name); err != nil {
			n.o.Log.Warn("a secret is not available; whoever needs it fails", "secret", name, "error", message(err))
		}
		if err := from[name].Links(cfg.Dir); err != nil {
			n.o.Log.Warn("the file of a secret has other names", "secret", name, "error", message(err))
		}
	}
	return from, vault, nil
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
