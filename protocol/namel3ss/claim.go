package namel3ss

import (
	"cmp"
	"os"
	"strings"

	"toolpost/config"
	"toolpost/host/offlimits"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/protocol/namel3ss/pack"
)

// Claim says which files a configured source starts from, and which its tools may change. Of the app that is what
// decides which code is run and how; the rest of its folder is data, as far as anybody can tell.
func Claim(src config.Source) (offlimits.Claim, error) {
	o, err := optionsOf(src)
	o.Container.Image = cmp.Or(o.Image, o.Container.Image)
	c := o.Walls.Claim(src.Dir)
	c.Stays = o.Mode != modeFresh
	app := offlimits.Under(o.Folder(src.Dir), o.App)
	if o.Runner == appfile.RunnerService {
		return c, err
	}
	c.Starts = offlimits.Given(app, appfile.DeclarationsFile, ".namel3ss/", "tools/", pack.LocalFolder+"/", ".venv/",
		settingsFile)
	c.Starts = append(c.Starts, offlimits.Given(src.Dir, o.PackKeys...)...)
	c.Starts = append(c.Starts, o.Container.Starts(src.Dir)...)
	for _, program := range []string{o.Interpreter, o.Node} {
		if strings.Contains(program, "/") {
			c.Starts = append(c.Starts, offlimits.Under(src.Dir, program))
		}
	}
	return withModules(c, app, o.Entry), err
}

// withModules adds the code of functions that are named by their modules: of the source's own entry, and of the app's
// bindings. A module that is not there comes from somewhere else, and must not be hidden by an empty one.
func withModules(c offlimits.Claim, app string, entry string) offlimits.Claim {
	entries := []string{entry}
	data, _ := appfile.Read(app, bindingsFile) // what cannot be read starts nothing
	bindings, _ := appfile.ParseBindings(bindingsFile, data)
	for _, b := range bindings {
		entries = append(entries, b.Entry)
	}
	for _, e := range entries {
		module, _, _ := strings.Cut(e, ":")
		top, _, _ := strings.Cut(module, ".")
		for _, file := range []string{module, top, top + ".py", top + ".mjs", top + ".js"} {
			path := offlimits.Under(app, file)
			if _, err := os.Lstat(path); err == nil && module != "" {
				c.Starts = append(c.Starts, path)
			}
		}
	}
	return c
}
