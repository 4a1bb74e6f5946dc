package tool_test

import (
	"testing"

	"toolpost/tool"
)

// A name that an agent gave itself gives it nothing, and takes it out of nothing that is said of agents.
func TestSelfGivenNameIsNoWayToGain(t *testing.T) {
	for pattern, want := range map[tool.Glob]struct{ given, concerned, is, restricted bool }{
		// a given name agent/friend; agent/~friend, as a client calls itself
		"agent/friend":  {true, true, false, true},
		"agent/f*":      {true, true, false, true},
		"agent/other":   {false, false, false, true},
		"agent/??????":  {true, true, false, true},
		"agent/~friend": {false, false, false, true},
		"agent/~*":      {false, false, false, true},
		"agent/*":       {true, true, true, true},
		"*":             {true, true, true, true},
		"ag*friend":     {true, true, false, true},
		"*friend":       {true, true, false, true},
		"agent":         {false, false, false, false},
		"owner":         {false, false, false, false},
		"own*":          {false, false, false, false},
		"?gent/friend":  {true, true, false, true},
	} {
		named, self := tool.Principal{ID: "agent/friend"}, tool.Principal{ID: "agent/~friend"}
		list := tool.Globs{pattern}
		if named.Given(list) != want.given || named.Is(list) != want.given || named.Concerns(list) != want.concerned {
			t.Errorf("%s: a given name: %v %v %v", pattern, named.Given(list), named.Is(list), named.Concerns(list))
		}
		if self.Given(list) != want.is || self.Is(list) != want.is || self.Concerns(list) != want.restricted {
			t.Errorf("%s: a name of its own: %v %v %v", pattern, self.Given(list), self.Is(list), self.Concerns(list))
		}
	}
}
