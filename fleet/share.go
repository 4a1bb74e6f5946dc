package fleet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"toolpost/tool"
)

// A Version describes a definition that nodes have of a tool.
type Version struct {
	Digest  string   `json:"digest"`
	Percent int      `json:"percent" doc:"how many of a hundred calls run by it"`
	Counts  bool     `json:"counts,omitempty" doc:"it is the one that lists show, and has the rest of the calls"`
	Nodes   []string `json:"nodes" doc:"that have it; without any, its calls run by the definition that counts"`
	Effects []string `json:"effects,omitempty"`
	Tier    int      `json:"tier"`
}

// sharing returns how the other nodes define a tool.
func (n *Node) sharing(s *tool.Spec) (*shared, error) {
	n.hub.mu.Lock()
	from := n.hub.sources[s.Source]
	n.hub.mu.Unlock()
	if t := from.tool(ownName(s)); t != nil {
		return t, nil
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no other node has the tool %s; `toolpost fleet` shows the nodes", s.Ref())
}

// Versions describes the definitions that other nodes have of a tool, and those that have a share of its calls.
func (n *Node) Versions(ctx context.Context, s *tool.Spec) (all []Version, err error) {
	_ = n.roster.Refresh(ctx) // else the shares that were read last count
	t, err := n.sharing(s)
	if err != nil {
		return nil, err
	}
	at, rest := map[string]*Version{}, 100
	for d, v := range t.versions {
		at[d] = &Version{Digest: d, Counts: v == t.version, Nodes: []string{}, Effects: v.Spec.Effects.Words(), Tier: v.Spec.Tier}
		for _, p := range v.have {
			at[d].Nodes = append(at[d].Nodes, p.Name)
		}
		slices.Sort(at[d].Nodes)
	}
	for _, one := range n.roster.Shares() {
		if one.Source == s.Source && one.Tool == ownName(s) && one.Digest != t.digest {
			at[one.Digest] = cmp.Or(at[one.Digest], &Version{Digest: one.Digest, Nodes: []string{}})
			at[one.Digest].Percent, rest = one.Percent, rest-one.Percent
		}
	}
	at[t.digest].Percent = rest
	for _, d := range slices.Sorted(maps.Keys(at)) {
		all = append(all, *at[d])
	}
	return all, nil
}

// Share replaces the shares that further definitions have of the calls of a tool, each as DIGEST=10%.
func (n *Node) Share(ctx context.Context, s *tool.Spec, shares []string) error {
	t, err := n.sharing(s)
	if err != nil {
		return err
	}
	to, sum := map[string]int{}, 0
	for _, one := range shares {
		digits, percent, _ := strings.Cut(one, "=")
		p, err := strconv.Atoi(strings.TrimSuffix(percent, "%"))
		if err != nil || !strings.HasSuffix(percent, "%") || p < 1 || p > 100 {
			return tool.Errorf(tool.CodeInvalidInput, "%q is no share; write DIGEST=N%%, with N from 1 to 100", one)
		}
		digest, err := t.begins(s, digits)
		if err != nil {
			return err
		}
		to[digest], sum = p, sum+p
	}
	if sum > 100 {
		return tool.Errorf(tool.CodeInvalidInput, "the shares of %s are %d %% together; they can be 100 %%", s.Ref(), sum)
	}
	if to[t.digest] > 0 { // else another one would count, and get the rest
		return tool.Errorf(tool.CodeConflict, "%s is the definition of %s that counts, and gets what the others leave; give a share to another one", t.digest, s.Ref())
	}
	if err := n.env.Register.SetShares(ctx, s.Source, ownName(s), to); err != nil {
		return err
	}
	n.tellMembers(ctx, "")
	return n.roster.Refresh(ctx)
}

// begins returns the digest of the definition that begins with some digits, and can have a share.
func (t *shared) begins(s *tool.Spec, digits string) (string, error) {
	all := slices.DeleteFunc(slices.Sorted(maps.Keys(t.versions)), func(d string) bool { return len(t.versions[d].have) == 0 })
	fit := slices.DeleteFunc(slices.Clone(all), func(d string) bool { return len(digits) < 6 || !strings.HasPrefix(d, digits) })
	switch {
	case len(fit) != 1:
		return "", tool.Errorf(tool.CodeNotFound, "%q does not name one definition of %s; write the first 6 or more digits of one of these: %s", digits, s.Ref(),
			strings.Join(all, ", "))
	case t.Upstream || t.versions[fit[0]].Upstream:
		return "", tool.Errorf(tool.CodeUnsupported, "a third party describes %s: it is pinned by one definition, so its calls are not shared", s.Ref())
	}
	return fit[0], nil
}
