package node

import (
	"time"

	"toolpost/engine/policy"
	"toolpost/protocol/all"
	"toolpost/tool"
)

// doorNames lists the doors that a call can have come in by: those of a config, the command line, and each
// protocol that can be spoken on stdin and stdout.
func doorNames(protocols []Protocol) []string {
	names := []string{"cli"}
	for _, d := range all.DoorParts() {
		names = append(names, d.Name)
	}
	for _, p := range protocols {
		names = append(names, p.Name)
	}
	return names
}

// Explain says what the policy decides about a call, as of a time, and why.
func (n *Node) Explain(c *tool.Call, at time.Time) (policy.Explanation, error) {
	e, err := n.engine.Explain(c, at)
	return e, n.redactor.Error(err)
}

// Spec finds a tool for whoever runs the node, also where the policy hides it from them.
func (n *Node) Spec(name string) (*tool.Spec, error) { return n.engine.Spec(name) }
