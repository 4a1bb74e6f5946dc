package machina

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"toolpost/tool"
)

// An offer is a tool under the name that Machina has for it.
type offer struct {
	aid  string
	spec *tool.Spec
}

// offers names the tools of one source. A tool that has an aid among its own names keeps it; the others are
// AID.<SOURCE>.<NAME>.v1. Of two that would clash the second in the order of names gets a number, so
// that the same tools always get the same aids.
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

// ownAID returns the aid that a tool brings along, if any.
func ownAID(s *tool.Spec) string {
	for _, name := range append([]string{s.Name}, s.Aliases...) {
		if strings.HasPrefix(name, "AID.") {
			return name
		}
	}
	return ""
}

// slug makes one part of an aid of any name.
func slug(name string) string {
	return tool.Safe(strings.ToUpper(name), func(r rune) bool { return 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' })
}

// nameOf makes a name of an aid, for a tool that has none: AID.MEMORY.QUERY.v1 is memory.query.
func nameOf(aid string) string {
	parts := strings.Split(aid, ".")
	if len(parts) > 2 && parts[0] == "AID" {
		parts = parts[1 : len(parts)-1]
	}
	return strings.ToLower(strings.Join(parts, "."))
}
