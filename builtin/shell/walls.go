package shell

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/host/offlimits"
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

// room returns the walls of one command. They open the network if the command may use it. Git's own folders are closed to
// all programs but git, as they are to the file tools: they decide which programs git runs at its next use. Git itself may
// change them, unless it runs code of the tree: the settings that it changes were judged. A git folder that the config
// itself names as writable stays open.
func (s *session) room(v *verdict) (*sandbox.Confinement, error) {
	if s.walls == nil {
		return nil, nil
	}
	room := *s.walls
	if v.network && !s.guarantees.NoNetwork && room.Network == sandbox.NetworkNone {
		room.Network = sandbox.NetworkAll
	}
	room.Subprocess = room.Subprocess && !(v.alone && holdsAlone())
	room.ReadOnly = slices.Concat(room.ReadOnly, v.fixed)
	if len(v.hidden) > 0 {
		off := offlimits.List{}
		if room.Off != nil {
			off = *room.Off
		}
		off.Absent = slices.Concat(off.Absent, v.hidden)
		room.Off = &off
	}
	if !v.changes && !room.WriteOnly {
		for _, r := range s.view.Roots() {
			room.Writable = slices.DeleteFunc(slices.Clone(room.Writable), func(path string) bool { return path == r.Dir })
			room.Readable = append(slices.Clip(room.Readable), r.Dir)
		}
	}
	if !v.changes || v.repository != "" && !v.code.covers(CodeTree) {
		return &room, nil
	}
	for _, r := range s.view.Roots() {
		if !slices.Contains(room.Writable, r.Dir) {
			continue
		}
		found, err := repositories(r.Dir)
		if err != nil {
			return nil, v.notHere("%w", err)
		}
		found = slices.DeleteFunc(found, func(path string) bool { return gives(room.Profile, path) })
		room.ReadOnly = append(room.ReadOnly, found...)
	}
	return &room, nil
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

// repositories lists git's own folders below a folder, and files in place of one. It fails if there are too many to close.
func repositories(folder string) ([]string, error) {
	var found []string
	seen := 0
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // if we cannot read it, a command cannot either
		}
		if seen++; seen > maxBelow {
			return fmt.Errorf("there is more below %s than can be searched for repositories; offer a smaller folder", folder)
		}
		if !strings.EqualFold(d.Name(), ".git") || d.Type()&fs.ModeSymlink != 0 { // the target of a link is found by itself
			return nil
		}
		if found = append(found, path); len(found) > maxNested {
			return fmt.Errorf("there are more than %d repositories below %s, which cannot all be closed to a command; "+
				"offer a smaller folder", maxNested, folder)
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return found, err
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
