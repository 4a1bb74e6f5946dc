package tool_test

import (
	"maps"
	"strings"
	"testing"

	"toolpost/tool"
)

func TestNamesAreSluggedAndDoNotClash(t *testing.T) {
	long := strings.Repeat("x", 70)
	specs := []*tool.Spec{
		{Name: "plain", Source: "s"}, {Name: "a.b", Source: "one"}, {Name: "a_b", Source: "two"}, {Name: "two_a_b", Source: "s"},
		{Name: "größe", Source: "s"}, {Name: "c d", Source: "s"}, {Name: "c.d", Source: "s"}, {Name: long + "1", Source: "s"}, {Name: long + "2", Source: "s"},
	}
	got := map[string]string{}
	for name, spec := range tool.Slugs(specs) {
		if len(name) > 64 || tool.Slug(name) != name {
			t.Errorf("%q is not a name", name)
		}
		got[name] = spec.Name
	}
	want := map[string]string{
		"plain": "plain", "one_a_b": "a.b", "two_a_b": "a_b", "two_a_b_2": "two_a_b", "gr__e": "größe", "s_c_d": "c d", "s_c_d_2": "c.d",
		"s_" + strings.Repeat("x", 62): long + "1", "s_" + strings.Repeat("x", 60) + "_2": long + "2",
	}
	if !maps.Equal(want, got) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
