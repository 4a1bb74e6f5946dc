package tool_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func anyGuarantees() *rapid.Generator[tool.Guarantees] {
	return rapid.Custom(func(t *rapid.T) tool.Guarantees {
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		return tool.Guarantees{
			NoFilesystemRead:  flag("no_filesystem_read"),
			NoFilesystemWrite: flag("no_filesystem_write"),
			NoNetwork:         flag("no_network"),
			NoSubprocess:      flag("no_subprocess"),
			NoEnvRead:         flag("no_env_read"),
			NoEnvWrite:        flag("no_env_write"),
			SecretsAllowed: rapid.OneOf(
				rapid.Just([]string(nil)),
				rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 5),
			).Draw(t, "secrets_allowed"),
			Sandbox: flag("sandbox"),
		}
	})
}

// same compares guarantees; the order and repetition of secrets do not matter.
func same(a, b tool.Guarantees) bool {
	a.SecretsAllowed, b.SecretsAllowed = set(a.SecretsAllowed), set(b.SecretsAllowed)
	return cmp.Equal(a, b)
}

func set(names []string) []string {
	if names == nil {
		return nil
	}
	return slices.Compact(append([]string{}, slices.Sorted(slices.Values(names))...))
}

// holds reports whether o forbids everything that g forbids.
func holds(g, o tool.Guarantees) bool {
	walls := maps.Collect(o.All())
	for name, on := range g.All() {
		if on && !walls[name] {
			return false
		}
	}
	if g.Sandbox && !o.Sandbox {
		return false
	}
	if g.SecretsAllowed == nil {
		return true
	}
	return o.SecretsAllowed != nil &&
		!slices.ContainsFunc(o.SecretsAllowed, func(s string) bool { return !slices.Contains(g.SecretsAllowed, s) })
}

func TestTightenLaws(t *testing.T) {
	for name, law := range map[string]func(a, b, c tool.Guarantees) bool{
		"it never takes a wall away":         func(a, b, _ tool.Guarantees) bool { return holds(a, a.Tighten(b)) && holds(b, a.Tighten(b)) },
		"it adds no wall that neither asked": func(a, b, c tool.Guarantees) bool { return !holds(a, c) || !holds(b, c) || holds(a.Tighten(b), c) },
		"the order does not matter":          func(a, b, _ tool.Guarantees) bool { return same(a.Tighten(b), b.Tighten(a)) },
		"the grouping does not matter":       func(a, b, c tool.Guarantees) bool { return same(a.Tighten(b).Tighten(c), a.Tighten(b.Tighten(c))) },
		"what holds already is covered":      func(a, b, _ tool.Guarantees) bool { return a.Tighten(b).Covers(b) && (!a.Covers(b) || holds(b, a)) },
		"twice is once":                      func(a, b, _ tool.Guarantees) bool { return same(a.Tighten(b).Tighten(b), a.Tighten(b)) },
		"the zero value guarantees nothing":  func(a, _, _ tool.Guarantees) bool { return same(a.Tighten(tool.Guarantees{}), a) },
		"asking for no secrets allows none": func(a, _, _ tool.Guarantees) bool {
			return none(a.Tighten(tool.Guarantees{SecretsAllowed: []string{}}))
		},
		"what is asked for is what it lists":  func(a, _, _ tool.Guarantees) bool { return len(a.Asked()) == count(a) },
		"what two ask for, the tightened has": func(a, b, _ tool.Guarantees) bool { return subset(a.Asked(), a.Tighten(b).Asked()) },
	} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			a, b, c := anyGuarantees().Draw(t, "a"), anyGuarantees().Draw(t, "b"), anyGuarantees().Draw(t, "c")
			if !law(a, b, c) {
				t.Fatalf("not so for\na %+v\nb %+v\nc %+v", a, b, c)
			}
		}))
	}
}

func none(g tool.Guarantees) bool { return g.SecretsAllowed != nil && len(g.SecretsAllowed) == 0 }

func count(g tool.Guarantees) int {
	n := 0
	for _, on := range g.All() {
		if on {
			n++
		}
	}
	if g.SecretsAllowed != nil {
		n++
	}
	if g.Sandbox {
		n++
	}
	return n
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

func TestGuaranteesHaveTheContractsNames(t *testing.T) {
	g := tool.Guarantees{
		NoFilesystemRead: true, NoFilesystemWrite: true, NoNetwork: true,
		NoSubprocess: true, NoEnvRead: true, NoEnvWrite: true, SecretsAllowed: []string{}, Sandbox: true,
	}
	want := []string{
		"no_filesystem_read", "no_filesystem_write", "no_network", "no_subprocess", "no_env_read", "no_env_write", "secrets_allowed", "sandbox",
	}
	kit.Equal(t, cmp.Diff(want, g.Asked()), "")
	for name := range g.All() { // a caller may stop early
		kit.Equal(t, name, want[0])
		break
	}
}
