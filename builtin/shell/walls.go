package shell

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// confine makes the walls of a call: its commands read the folders that are offered to its caller, change the writable ones,
// and have a home and a cache of their own. Nothing else exists for them.
func (s *session) confine(c *tool.Call, events *tool.Relay) error {
	w, err := s.around(s.view.Roots(), []string{s.work.dir}, []string{s.work.home, s.work.tmp, s.work.cache})
	if err != nil {
		return err
	}
	s.guarantees = c.Tightened(tool.Guarantees{})
	s.watch.Follow(events, walls.Sources(tool.Guarantees{}, s.guarantees))
	s.walls, err = w.Confine(c.Spec.Name, s.guarantees, &s.watch)
	return err
}

// around returns the walls of commands over some roots, with folders of their own to read and to change.
func (t *Tools) around(roots []workspace.Root, read, write []string) (*walls.Walls, error) {
	needs := walls.Needs{Dir: t.base, Read: read, Write: write}
	needs.Run = slices.Clone(write) // a compiler's output there is run there
	for _, r := range roots {
		if r.Write {
			needs.Write = append(needs.Write, r.Dir)
		} else {
			needs.Read = append(needs.Read, r.Dir)
		}
		needs.Run = append(needs.Run, r.Dir) // which code may be run was already judged
	}
	for _, folder := range t.path {
		needs.Run = append(needs.Run, walls.Code(folder+"/x")...)
	}
	return t.o.Walls.Around(needs)
}

// roomOf describes the walls, for advice: the offered folders have a setting of their own.
func (t *Tools) roomOf(w *walls.Walls) *tool.Room {
	room := w.Room()
	if room == nil {
		return nil
	}
	room.Key = "shell"
	for _, r := range t.ws.Roots() {
		room.Roots = append(room.Roots, r.Dir)
	}
	return room
}

// room returns the walls of one command. They open the network if the command may use it, and a command that only reads finds
// the folders read-only. What its caller may not read is hidden, and what it may not write is read-only, whichever words name
// it.
func (s *session) room(v *verdict, closed workspace.Closed) *sandbox.Confinement {
	if s.walls == nil {
		return nil
	}
	room := *s.walls
	if v.network && !s.guarantees.NoNetwork && room.Network == sandbox.NetworkNone {
		room.Network = sandbox.NetworkAll
	}
	room.Subprocess = room.Subprocess && !(v.alone && holdsAlone())
	if !v.changes && !room.WriteOnly {
		for _, r := range s.view.Roots() {
			room.Writable = slices.DeleteFunc(slices.Clone(room.Writable), func(path string) bool { return path == r.Dir })
			room.Readable = append(slices.Clip(room.Readable), r.Dir)
		}
	}
	room.Hidden = closed.Hidden
	room.ReadOnly = slices.Concat(room.ReadOnly, closed.Fixed, closed.Git)
	return &room
}

// closed lists what is closed to a command.
func (s *session) closed(v *verdict) (all workspace.Closed, err error) {
	if s.walls == nil {
		return all, nil
	}
	git := v.repository != "" && !v.code.covers(CodeTree)
	for _, r := range s.view.Roots() {
		c, err := s.view.Closed(s.ctx, r.Dir, git, v.changes)
		if err != nil {
			return all, v.notHere("%w; offer a smaller folder", err)
		}
		all.Hidden, all.Fixed = append(all.Hidden, c.Hidden...), append(all.Fixed, c.Fixed...)
		all.Git = append(all.Git, c.Git...)
	}
	if len(all.Hidden)+len(all.Fixed) > maxClosed {
		return all, v.notHere("more than %d files below the folders may not be read, or not written, and cannot all be hidden "+
			"or fixed; allow their names with `sensitive: {allow: [...]}`, deny a whole folder, or offer a smaller one", maxClosed)
	}
	switch {
	case !v.changes:
		all.Git = nil
	case git && len(all.Git) > maxNested: // those that it works in
		all.Git = slices.DeleteFunc(all.Git, func(path string) bool {
			return !offlimits.Within(path, v.repository) && !offlimits.Within(v.repository, filepath.Dir(path))
		})
	}
	if len(all.Git) > maxNested {
		return all, v.notHere("there are more than %d repositories below the folders, which cannot all be closed to a command; "+
			"offer a smaller folder", maxNested)
	}
	if git {
		all.Git = v.decisive(all.Git)
	}
	// A git folder that the config itself names as writable stays open.
	all.Git = slices.DeleteFunc(all.Git, func(path string) bool { return gives(s.walls.Profile, path) })
	return all, nil
}

// decisive lists the files in git's own folders that decide which programs git runs, also for the owner later. Git may change
// all others there, and its settings if the subcommand has to: which ones was judged. All other programs find the folders
// closed, as the file tools do.
func (v *verdict) decisive(folders []string) (all []string) {
	files := []string{"hooks", "info/attributes", "config.worktree", "config"}
	if slices.Contains(program("git").of("subcommands that write settings"), v.subcommand) {
		files = files[:3]
	}
	for _, folder := range folders {
		for _, file := range files {
			for _, pattern := range []string{file, "modules/*/" + file, "worktrees/*/" + file} {
				found, _ := fs.Glob(os.DirFS(folder), pattern)
				for _, name := range found {
					all = append(all, filepath.Join(folder, name))
				}
			}
		}
	}
	return all
}

// holdsAlone reports whether this machine can keep a program from starting others.
func holdsAlone() bool {
	return slices.ContainsFunc(sandbox.Probe(), func(l sandbox.Layer) bool { return l.Name == sandbox.LayerNotify && l.Works })
}

// gives reports whether the walls name a folder itself as writable, and not only one around it.
func gives(p sandbox.Profile, folder string) bool {
	return slices.ContainsFunc(p.Writable, func(path string) bool {
		t, err := offlimits.Find(path, p.Off)
		return err == nil && t.Path == folder
	})
}

// environment returns the variables of a command. Ours are not passed on: they may hold secrets. Home is a folder of the
// command's own; the cache is shared by the caller's commands.
func (t *Tools) environment(v *verdict, w *workplace, extra map[string]string) []string {
	env := map[string]string{
		"PATH": strings.Join(t.path, ":"), "HOME": w.home, "TMPDIR": w.tmp, "PWD": v.dir, "XDG_CACHE_HOME": w.cache,
		"GOPATH": w.cache + "/go", "npm_config_cache": w.cache + "/npm",
		"GIT_CONFIG_GLOBAL": w.gitconfig, "GIT_CEILING_DIRECTORIES": strings.Join(w.ceilings, ":"),
	}
	network := "without the network"
	if v.network {
		network = "with the network"
	}
	for _, line := range slices.Concat(lists()["set"], lists()[network]) {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	settings := lists()["git settings"]
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

// badVariable returns why a caller may not set a variable, whatever the config says: it would choose what runs.
func badVariable(name string) string {
	if !isVariable(name) {
		return "is not the name of a variable"
	}
	upper := strings.ToUpper(name)
	begins := func(c string) bool { return strings.HasPrefix(upper, c) }
	switch {
	case slices.ContainsFunc(wordsOf("closed to callers, with all that begins so"), begins):
		return "can choose what a command runs"
	case slices.Contains(wordsOf("closed to callers"), upper):
		return "can choose what a command runs, or where"
	}
	return ""
}

func isVariable(name string) bool {
	return name != "" && (name[0] < '0' || name[0] > '9') &&
		strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
