package shell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// environment builds what a command gets to see. Nothing of ours is passed on: our own variables may hold
// secrets. Home is a folder of the command's own, cache one that the caller's commands share.
func (t *Tools) environment(v *verdict, w *workplace, extra map[string]string) []string {
	env := map[string]string{
		"PATH": strings.Join(t.path, ":"), "HOME": w.home, "TMPDIR": w.tmp, "PWD": v.dir, "XDG_CACHE_HOME": w.cache,
		"GOPATH": w.cache + "/go", "npm_config_cache": w.cache + "/npm",
		"GIT_CONFIG_GLOBAL": w.gitconfig, "GIT_CEILING_DIRECTORIES": strings.Join(w.ceilings, ":"),
	}
	lists, network := known().lists, "without the network"
	if v.network {
		network = "with the network"
	}
	for _, line := range slices.Concat(lists["set"], lists[network]) {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	settings := lists["git settings"]
	env["GIT_CONFIG_COUNT"] = fmt.Sprint(len(settings))
	for i, line := range settings {
		key, value, _ := strings.Cut(line, "=")
		env[fmt.Sprintf("GIT_CONFIG_KEY_%d", i)], env[fmt.Sprintf("GIT_CONFIG_VALUE_%d", i)] = key, value
	}
	maps.Copy(env, t.o.Env)
	maps.Copy(env, extra)
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// badVariable says why a caller may not set a variable, whatever the config says: it would choose what runs.
func badVariable(name string) string {
	if !isVariable(name) {
		return "is not the name of a variable"
	}
	upper := strings.ToUpper(name)
	closed := func(list string, matches func(closed string) bool) bool {
		return slices.ContainsFunc(strings.Fields(strings.Join(known().lists[list], " ")), matches)
	}
	switch {
	case closed("closed to callers, with all that begins so", func(c string) bool { return strings.HasPrefix(upper, c) }):
		return "can choose what a command runs"
	case closed("closed to callers", func(c string) bool { return upper == c }):
		return "can choose what a command runs, or where"
	}
	return ""
}

func isVariable(name string) bool {
	return name != "" && !isDigits(name[:1]) && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
