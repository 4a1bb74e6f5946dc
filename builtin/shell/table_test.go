package shell

import (
	"strings"
	"testing"
)

func TestALineThatIsNotWellFormedIsAnError(t *testing.T) {
	for line, want := range map[string]string{
		"colour blue": "no such field", "args": "has no value", "single yes": "no such field", "code some": "none, tree and any", "min few": "invalid syntax",
		"check nothing": "no such check", "$nowhere": "no $nowhere above", "-a b": "b is no option", "": "no field",
	} {
		if err := new(table).add("x", []string{line}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
	tab := new(table)
	for _, c := range []struct{ head, want string }{{"x, y", ""}, {"z, x", "x is there twice"}, {"w sub", "w is not known yet"}, {"y sub", ""}, {"y sub", "twice"}} {
		if err := tab.add(c.head, nil); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.head, err, c.want)
		}
	}
}
