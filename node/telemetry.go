package node

import (
	"io"

	"toolpost/config"
	"toolpost/engine/cache"
	"toolpost/engine/telemetry"
)

// openTelemetry makes what measures calls.
func (n *Node) openTelemetry() error {
	var o telemetry.Options
	if err := n.cfg.Telemetry.Decode(&o); err != nil {
		return err
	}
	var err error
	n.telemetry, err = telemetry.New(o, telemetry.Env{
		Version: n.o.Version, Log: n.o.Log, Lookup: n.engine.Lookup, Secret: n.secret, Redact: n.redactor.String, Samples: n.samples,
	})
	return err
}

// secret gives a secret of the config as it is now.
func (n *Node) secret(name string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.vault.Secret(name)
}

// Metrics writes what was measured, as Prometheus reads it.
func (n *Node) Metrics(w io.Writer) error { return n.telemetry.Metrics(w) }

// samples tells what there is to measure beside calls.
func (n *Node) samples() []telemetry.Sample {
	states := map[bool]float64{}
	for _, s := range n.Sources() {
		states[s.Err == nil]++
	}
	source := func(state string, count float64) telemetry.Sample {
		return telemetry.Sample{
			Name: "toolpost.sources", Help: "Sources of the config.", Labels: []telemetry.Label{{Name: "state", Value: state}}, Value: count,
		}
	}
	c := n.cache.Stats()
	lookup := func(result string, count int64) telemetry.Sample {
		return telemetry.Sample{
			Name: "toolpost.cache.lookups", Help: "Calls that could be answered from memory.", Counter: true,
			Labels: []telemetry.Label{{Name: "result", Value: result}}, Value: float64(count),
		}
	}
	return []telemetry.Sample{
		source("open", states[true]), source("failed", states[false]),
		lookup("hit", c.Hits), lookup("miss", c.Misses),
		{Name: "toolpost.cache.results", Help: "Results that are kept.", Value: float64(c.Entries)},
		{Name: "toolpost.cache.size", Help: "Size of the results that are kept.", Unit: "By", Value: float64(c.Bytes)},
	}
}

// readCaches reads limits.cache.
func readCaches(cfg *config.Config) ([]cache.Rule, error) {
	var rules []cache.Rule
	if err := cfg.Limits.Cache.Decode(&rules); err != nil {
		return nil, err
	}
	return rules, cache.Check(rules)
}
