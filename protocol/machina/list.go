package machina

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// tierTag prefixes the tag that carries the tier of a tool in a listing, for which the protocol has no field.
const tierTag = "tier."

// words returns a tool in the form of --list.
func (o offer) words() listed {
	l := listed{
		AID: o.aid, Name: o.spec.Name, Deterministic: o.spec.Effects.ReadOnly() && o.spec.Effects.Idempotent,
		Tags: []string{}, SideEffects: sideEffects(o.spec.Effects), ReplayInputs: []string{},
	}
	if o.spec.Tier > 0 || o.spec.TierDeclared() {
		l.Tags = append(l.Tags, tierTag+strconv.Itoa(o.spec.Tier))
	}
	return l
}

// sideEffects returns effects in the protocol's terms. A tool that declares nothing has an empty list.
func sideEffects(e tool.Effects) []string {
	if e.ReadOnly() {
		return []string{"none"}
	}
	words := []string{}
	for _, w := range []struct {
		word string
		on   bool
	}{{"read", e.Reads}, {"write", e.Writes}, {"network", e.Network}, {"exec", e.Exec},
		{"destructive", e.Destructive}} {
		if w.on {
			words = append(words, w.word)
		}
	}
	return words
}

// effects is the inverse. A toolhost's terms are free-form, such as filesystem_read and process_exec. They are matched by
// the parts they contain, broadly for harmful ones; an unknown term counts as the worst.
func (l listed) effects() tool.Effects {
	e := tool.Effects{Idempotent: l.Deterministic}
	for _, word := range l.SideEffects {
		word = strings.ToLower(word)
		has := func(parts ...string) bool {
			return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(word, p) })
		}
		writes, network, exec := has("write", "append", "create"), has("network"), has("exec", "process", "shell")
		reads := slices.Contains(strings.FieldsFunc(word, func(r rune) bool { return r < 'a' || r > 'z' }), "read")
		e.Reads, e.Writes, e.Network, e.Exec = e.Reads || reads, e.Writes || writes, e.Network || network, e.Exec ||
			exec
		e.Destructive = e.Destructive || !reads && !writes && !network && !exec && word != "none"
	}
	if slices.Equal(l.SideEffects, []string{"none"}) || l.Deterministic && len(l.SideEffects) == 0 {
		e.Reads = true // this means that it only reads
	}
	return e
}

func (l listed) tier() *int {
	for _, tag := range l.Tags {
		if rest, ok := strings.CutPrefix(tag, tierTag); ok {
			if n, err := strconv.Atoi(rest); err == nil && tool.CheckTier(&n) == nil {
				return &n
			}
		}
	}
	return nil
}

// decodeListing reads the answer of --list.
func decodeListing(doc []byte) ([]listed, error) {
	var l listing
	if err := strictjson.Unmarshal(doc, &l); err != nil {
		return nil, err
	}
	if !l.OK {
		return nil, fmt.Errorf("it says: %s", clip(l.Error))
	}
	seen := map[string]bool{}
	for _, t := range l.Tools {
		switch {
		case t.AID == "":
			return nil, fmt.Errorf("a tool without an aid")
		case seen[t.AID]:
			return nil, fmt.Errorf("two tools with the aid %s", clip(t.AID))
		}
		seen[t.AID] = true
	}
	return l.Tools, nil
}

// clip bounds how much of a peer's text an error repeats.
func clip(s string) string {
	const enough = 300
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= enough {
		return s
	}
	return strings.ToValidUTF8(s[:enough], "") + "..."
}

// An offer is a tool with its name in Machina.
type offer struct {
	aid  string
	spec *tool.Spec
}

// offers names the tools of one source. A tool that has an aid among its own names keeps it; the others are
// AID.<SOURCE>.<NAME>.v1. Of two that would clash the second in the order of names gets a number, so that the same tools
// always get the same aids.
func offers(source string, specs []*tool.Spec) []offer {
	specs = slices.SortedFunc(slices.Values(specs), func(a, b *tool.Spec) int { return cmp.Compare(a.Name, b.Name) })
	taken := map[string]bool{}
	list := make([]offer, len(specs))
	for i, s := range specs {
		list[i].spec = s
		if own := ownAID(s); own != "" && !taken[own] {
			list[i].aid, taken[own] = own, true
		}
	}
	for i, s := range specs {
		if list[i].aid != "" {
			continue
		}
		stem := "AID." + slug(source) + "." + slug(s.Ref().Name)
		aid := tool.Untaken(stem, math.MaxInt, func(stem string) bool { return taken[stem+".v1"] }) + ".v1"
		list[i].aid, taken[aid] = aid, true
	}
	return list
}

// ownAID returns the aid among a tool's own names, if any.
func ownAID(s *tool.Spec) string {
	for _, name := range append([]string{s.Name}, s.Aliases...) {
		if strings.HasPrefix(name, "AID.") {
			return name
		}
	}
	return ""
}

// slug turns any name into one part of an aid.
func slug(name string) string {
	return tool.Safe(strings.ToUpper(name), func(r rune) bool { return 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' })
}

// nameOf derives a name from an aid, for a tool without one: AID.MEMORY.QUERY.v1 is memory.query.
func nameOf(aid string) string {
	parts := strings.Split(aid, ".")
	if len(parts) > 2 && parts[0] == "AID" {
		parts = parts[1 : len(parts)-1]
	}
	return strings.ToLower(strings.Join(parts, "."))
}
