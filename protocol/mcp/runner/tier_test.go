package runner

import (
	"testing"

	"toolpost/tool"
)

// A tool without hints is not safe, what a server admits counts, and a hint that a tool is harmless is believed only if
// the config says so.
func TestTheTierOfATool(t *testing.T) {
	yes, no := true, false
	reads := tool.Effects{Reads: true}
	for name, c := range map[string]struct {
		o     SourceOptions
		hints *toolHints
		tier  int
		from  tool.TierFrom
	}{
		"without annotations":          {SourceOptions{}, nil, 1, tool.TierDefault},
		"annotations without a hint":   {SourceOptions{}, &toolHints{Title: "x"}, 1, tool.TierDefault},
		"a hint that is not believed":  {SourceOptions{}, &toolHints{ReadOnly: &yes, Destructive: &no}, 1, tool.TierDefault},
		"a hint that is believed":      {SourceOptions{TrustHints: true}, &toolHints{ReadOnly: &yes, OpenWorld: &no}, 0, tool.TierEffects},
		"nothing that can be believed": {SourceOptions{TrustHints: true}, nil, 1, tool.TierDefault},
		"it admits that it writes":     {SourceOptions{}, &toolHints{ReadOnly: &no}, 1, tool.TierTool},
		"it admits the network":        {SourceOptions{}, &toolHints{OpenWorld: &yes}, 2, tool.TierTool},
		"it admits that it destroys":   {SourceOptions{}, &toolHints{Destructive: &yes}, 3, tool.TierTool},
		"the config says its effects":  {SourceOptions{Effects: reads}, nil, 0, tool.TierEffects},
		"hints add to the config":      {SourceOptions{Effects: reads}, &toolHints{OpenWorld: &yes}, 2, tool.TierEffects},
		"the config says its tier":     {SourceOptions{Tier: new(0)}, &toolHints{Destructive: &yes}, 0, tool.TierConfig},
	} {
		s := (&Runner{o: &c.o}).specOf(&upstreamTool{Hints: c.hints})
		if s.SettleTier(); s.Tier != c.tier || s.TierFrom != c.from {
			t.Errorf("%s: tier %d from %s, want %d from %s", name, s.Tier, s.TierFrom, c.tier, c.from)
		}
	}
}
