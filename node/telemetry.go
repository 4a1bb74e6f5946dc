package node

import (
	"context"
	"io"

	"toolpost/engine/telemetry"
	"toolpost/tool"
)

// lookup finds a tool once the engine is there, which needs the telemetry first.
func (n *Node) lookup(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error) {
	return n.engine.Lookup(ctx, p, name)
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
	of := func(s telemetry.Sample, label, value string, count float64) telemetry.Sample {
		s.Labels, s.Value = []telemetry.Label{{Name: label, Value: value}}, count
		return s
	}
	sources := telemetry.Sample{Name: "toolpost.sources", Help: "Sources of the config."}
	c, lookups := n.cache.Stats(), telemetry.Sample{
		Name: "toolpost.cache.lookups", Help: "Calls that could be answered from memory.", Counter: true,
	}
	return []telemetry.Sample{
		of(sources, "state", "open", states[true]), of(sources, "state", "failed", states[false]),
		of(lookups, "result", "hit", float64(c.Hits)), of(lookups, "result", "miss", float64(c.Misses)),
		{Name: "toolpost.cache.results", Help: "Results that are kept.", Value: float64(c.Entries)},
		{Name: "toolpost.cache.size", Help: "Size of the results that are kept.", Unit: "By", Value: float64(c.Bytes)},
	}
}
