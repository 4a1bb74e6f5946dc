package identity

import (
	"fmt"
	"testing"

	"toolpost/tool"
)

func TestAgentHasANameOfItsOwnAndNoMoreRightsThanItsPerson(t *testing.T) {
	local := tool.Principal{ID: "local", Door: "mcp", Operates: true}
	ada := tool.Principal{ID: "ada", Door: "mcp", Rights: &tool.Rights{Roles: []string{"reader"}, Tools: tool.Patterns{"read*"}}}
	for name, c := range map[string]struct {
		config string
		person tool.Principal
		agent  Agent
		want   string // the caller, its tools and roles; or the error
	}{
		"given":             {`{}`, local, Agent{Name: "Claude-Code", Client: "owner"}, "agent/claude-code  []"},
		"given with prefix": {`{}`, local, Agent{Name: "agent/x"}, "agent/x  []"},
		"given with tilde":  {`{}`, local, Agent{Name: "agent/~x"}, "agent/x  []"},
		"calls itself":      {`{}`, local, Agent{Client: "Claude Code"}, "agent/~claude-code  []"},
		"owner":             {`{}`, local, Agent{Client: "owner"}, "agent/~owner  []"},
		"a path":            {`{}`, local, Agent{Client: "agent/../owner\n"}, "agent/~owner  []"},
		"nothing":           {`{}`, local, Agent{}, "agent/~unnamed  []"},
		"not a name":        {`{}`, local, Agent{Client: "\u202e\u0000"}, "agent/~unnamed  []"},
		"of ada":            {`{}`, ada, Agent{Client: "x"}, "agent/~x read* [reader]"},
		"listed":            {`{list: {agent/x: {tools: "list*"}}}`, local, Agent{Name: "x"}, "agent/x list* []"},
		"listed, of ada":    {`{list: {agent/x: {tools: ["*"]}}}`, ada, Agent{Name: "x"}, "agent/x read* [reader]"},
		"takes a listed name": {`{list: {agent/x: {tools: "*"}}}`, local, Agent{Client: "x"},
			"access_denied: the config lists agents by name, and \"agent/~x\" is what this one calls itself; start it with `toolpost as mcp --caller NAME`"},
		"evades the list": {`{list: {agent/x: {tools: "list*"}}}`, local, Agent{Client: "y"},
			"access_denied: the config lists agents by name, and \"agent/~y\" is what this one calls itself; start it with `toolpost as mcp --caller NAME`"},
	} {
		t.Run(name, func(t *testing.T) {
			callers := of(t, "callers: "+c.config, Env{})
			p, err := callers.Agent(c.person, c.agent)
			got := fmt.Sprint(err)
			if err == nil {
				tools := tool.Patterns{}
				if p.Rights != nil {
					tools = p.Rights.Tools
				}
				got = fmt.Sprint(p.ID, " ", tools, " ", p.Roles())
			}
			if got != c.want || p.Operator() {
				t.Errorf("%s, operator %v; want %s", got, p.Operator(), c.want)
			}
		})
	}
}
