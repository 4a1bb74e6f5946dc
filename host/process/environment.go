package process

import (
	"os"
	"slices"
)

// Environment builds what a tool gets to see of the environment: PATH, HOME, LANG and TMPDIR as we have
// them, the variables named by pass, and those given by set, which win. Our own environment may hold
// secrets of others, so nothing else is passed on.
func Environment(set map[string]string, pass []string) []string {
	var env []string
	for _, name := range append([]string{"PATH", "HOME", "LANG", "TMPDIR"}, pass...) {
		value, have := os.LookupEnv(name)
		if _, given := set[name]; have && !given {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return slices.Compact(env)
}
