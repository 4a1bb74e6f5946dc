package identity

import (
	"cmp"
	"fmt"
	"strings"

	"toolpost/tool"
)

// An Agent is how a program on this machine, which an agent started, says who it is.
type Agent struct {
	Name   string // given by the person who set the agent up; "" if none
	Client string // as the client calls itself, which can be anything
}

// unnamed is the name of an agent that has none.
const unnamed = "unnamed"

// maxAgent is how long the name of an agent may be, in bytes.
const maxAgent = 64

// name returns the caller's name for the agent. Letters, digits and -._ stay; everything else becomes a dash.
func (a Agent) name() string {
	prefix, text := tool.AgentPrefix, a.Name
	if text == "" {
		prefix, text = tool.SelfPrefix, a.Client
	}
	text = strings.ToLower(strings.TrimPrefix(text, tool.AgentPrefix))
	text = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r) {
			return r
		}
		return '-'
	}, text[:min(len(text), maxAgent)])
	return prefix + cmp.Or(strings.Trim(text, "-."), unnamed)
}

// Agent returns the caller for an agent of p, a person that was admitted. It never has more rights than p: it is no operator,
// and if the config lists the agent, it has what both have. If the config lists agents, each needs a given name, because
// one that names itself could choose that of another, or one that is not on the list.
func (c *Callers) Agent(p tool.Principal, a Agent) (tool.Principal, error) {
	p.ID, p.Operates = a.name(), false
	p.Proof = "" // it is that of the person: a link to the console, say, would sign in as the person
	err := cmp.Or(c.o.apart(p.ID), c.o.unlike(p.ID, p.Roles()))
	listed := c.rights[p.ID]
	switch {
	case listed != nil && p.Rights != nil:
		p.Rights = narrowed(p.Rights, listed.Roles, listed)
	case listed != nil:
		p.Rights = listed
	case tool.SelfNamed(p.ID) && c.listsAgents() && err == nil:
		err = fmt.Errorf("the config lists agents by name, and %q is what this one calls itself", p.ID)
	}
	if err != nil {
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "%w; start it with `toolpost as mcp --caller NAME`", err).
			Because(Reason)
	}
	return p, nil
}

func (c *Callers) listsAgents() bool {
	for name := range c.rights {
		if strings.HasPrefix(name, tool.AgentPrefix) {
			return true
		}
	}
	return false
}
