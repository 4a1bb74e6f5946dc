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
